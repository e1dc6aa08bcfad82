"""Small differences of one output are large ones of what many observations share; fitted models."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nn_uq_dist as nuq
from nn_uq_dist.diagnostics import joint_summary, summary
from nn_uq_dist.diagnostics.arguments import is_made_of
from nn_uq_dist.plots import plot_calibration

pytestmark = pytest.mark.viz

KEY = jax.random.key(0)


def words_of(model, draws, **options):
    return summary(model, draws, progress=False, **options)["verdict", "words"].tolist()


@pytest.mark.slow
def test_a_thousand_observations_of_an_exponential():
    """``y = exp(m + s z)``: the posterior of `m` by the tangent against that by the exact
    distribution."""
    scale, count = 0.04, 1000
    lin = nuq.linearize(jnp.exp, nuq.Input.normal(jnp.zeros(1), scale))
    pairs = nuq.paired_draws(jnp.exp, lin, KEY, 1000, progress=False)
    (one,) = words_of(lin, pairs)
    assert one.startswith("linearization, small: draws shifted by +0.02 sd")
    table = summary(lin, pairs, observations=count, progress=False)
    many = table["verdict", "words"].item()
    start = (
        "linearization, large for 1000 observations: draws shifted by +0.02 sd, together by +0.63"
    )
    assert many.startswith(start)

    y = np.exp(scale * np.random.default_rng(0).normal(size=(20, count)))
    grid = np.linspace(-0.02, 0.02, 4001)
    loc = np.exp(grid)
    squares = np.sum(y**2, axis=1)[:, None] - 2 * np.sum(y, axis=1)[:, None] * loc + count * loc**2
    logs = -squares / (2 * (scale * loc) ** 2) - count * grid
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    found = weights @ grid / weights.sum(axis=1)
    off = (found - np.log(y).mean(axis=1)) / (scale / count**0.5)
    predicted = -(table["mean", "error"] / table["sd", "monte_carlo"]).item() * count**0.5
    np.testing.assert_allclose(off, predicted, rtol=1 / 3)  # each of the 20 data sets


def test_a_width_that_many_observations_share():
    """Of a distribution that is 4% too narrow the posterior of the width is off by .8 sd: .04
    sqrt(2 n)."""
    distribution = nuq.LinearizedMarginal(jnp.zeros(1), jnp.full((1, 1), 1e-3), jnp.full(1, 0.96))
    draws = np.random.default_rng(0).normal(size=(20_000, 1))
    (one,), (many,) = words_of(distribution, draws), words_of(distribution, draws, observations=200)
    assert one.startswith("linearization, small: sd 3.6%")
    assert many.startswith("linearization, large for 200 observations: sd 3.6%")


def test_moments_are_looked_at_before_a_difference_is_small():
    """Rare large draws hardly move the distribution function."""
    rng = np.random.default_rng(0)
    distribution = nuq.LinearizedMarginal(jnp.zeros(1), jnp.full((1, 1), 1e-3), jnp.ones(1))
    draws = rng.normal(size=(20_000, 1)) + 23.0 * (rng.uniform(size=(20_000, 1)) < 0.00175)
    table = summary(distribution, draws, progress=False)
    assert table["kolmogorov_smirnov", "monte_carlo"].item() < 0.01
    assert table["verdict", "words"].item().startswith("linearization, large: sd 2")


def test_what_would_not_show_is_said():
    distribution = nuq.LinearizedMarginal(jnp.zeros(1), jnp.ones((1, 2)))
    draws = distribution.sample(KEY, (900,))
    (words,) = words_of(distribution, draws, observations=400)
    assert words == (
        "noise: no difference beyond chance; shifts of up to 2 sd for 400 observations would not "
        "show"
    )
    with pytest.raises(ValueError, match=r"observations must be .* got 0"):
        words_of(distribution, draws, observations=0)


# -- a correction and the pairs that it was made of ------------------------------------------------


def network(x):
    return jnp.stack([jnp.exp(x[0]) + x[1], x[1] - 0.3 * x[0] ** 2])


@pytest.fixture(scope="module")
def fitted():
    # Far from zero, so that draws of any key are alike up to a thousandth.
    lin = nuq.linearize(lambda x: 500 + network(x), nuq.Input.box(jnp.zeros(2), half_width=0.5))
    pairs = [
        nuq.paired_draws(lambda x: 500 + network(x), lin, jax.random.key(k), n, progress=False)
        for k, n in ((0, 400), (1, 400), (0, 600))
    ]
    return lin, lin.corrected(pairs[0]), pairs


def test_draws_of_a_correction_are_recognized(fitted):
    lin, corrected, (own, fresh, longer) = fitted
    for draws in (own, longer):
        assert is_made_of(corrected, draws)
        assert is_made_of(corrected, draws.network)
    assert not is_made_of(corrected, fresh)
    assert not is_made_of(corrected, fresh.network)
    assert not is_made_of(lin, own)
    one = nuq.linearize(jnp.exp, nuq.Input.box(jnp.zeros(1), 0.5))
    pairs = nuq.paired_draws(jnp.exp, one, KEY, 100, progress=False)
    assert is_made_of(one.corrected(pairs), pairs.network[:, 0])  # draws of one output alone


@pytest.mark.slow
def test_a_correction_is_not_judged_by_its_own_pairs(fitted):
    lin, corrected, (own, fresh, longer) = fitted
    for draws in (own, longer.network):
        table = summary(corrected, draws, progress=False)
        assert set(table["verdict", "dominates"]) == {"unknown"}
        assert "made of these draws; take fresh ones" in table["verdict", "words"].iloc[0]
        assert np.isfinite(table["mean", "error"]).all()
    for model, draws in ((corrected, fresh), (corrected, fresh.network[:400]), (lin, own)):
        assert "unknown" not in set(summary(model, draws, progress=False)["verdict", "dominates"])


@pytest.mark.slow
def test_neither_jointly_nor_in_a_figure(fitted):
    _, corrected, (own, fresh, _) = fitted
    joint = corrected.gaussian_copula(correlation="linear")
    for draws, is_own in ((own, True), (fresh, False)):
        found = joint_summary(corrected, draws, KEY, joint, progress=False)
        assert ("made of these draws" in found.verdict) == is_own
        assert (set(found.calibration["dominates"]) == {"unknown"}) == is_own
        text = plot_calibration(corrected, draws).axes[0].texts[0].get_text()
        assert ("no test: made of these draws" in text) == is_own
