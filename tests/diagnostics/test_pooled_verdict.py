"""Small differences of one output are large ones of what many observations share; fitted models."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nn_uq_dist as nuq
from nn_uq_dist.diagnostics import joint_summary, summary
from nn_uq_dist.diagnostics._arguments import is_made_of
from nn_uq_dist.plots import plot_calibration

pytestmark = pytest.mark.viz

KEY = jax.random.key(0)


def words_of(model, draws, **options):
    return summary(model, draws, progress=False, **options)["verdict", "words"].tolist()


def mean_and_sd(log_density, grid):
    """Of a density on a grid, over the last axis."""
    weights = np.exp(log_density - log_density.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    mean = weights @ grid
    return mean, np.sqrt(weights @ grid**2 - mean**2)


def shifts_of(table):
    return -(table["mean", "error"] / table["sd", "monte_carlo"]).to_numpy()


@pytest.mark.slow
def test_a_thousand_observations_of_an_exponential():
    """``y = exp(m + s z)``: the posterior of `m` by the tangent against that by the exact law."""
    scale, count = 0.04, 1000
    lin = nuq.linearize(jnp.exp, nuq.InputLaw(jnp.zeros(1), scale=scale))
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
    found, _ = mean_and_sd(-squares / (2 * (scale * loc) ** 2) - count * grid, grid)
    off = (found - np.log(y).mean(axis=1)) / (scale / count**0.5)
    predicted = shifts_of(table).item() * count**0.5
    np.testing.assert_allclose(off, predicted, rtol=1 / 3)  # each of the 20 data sets


BOTTOM, RADIUS, UPPER, LOWER = 760.0, 7700.0, 89335.0, 89.55


def borehole(x):
    """Flow (m3/year) by radius (m), upper head (m), length (m) and conductivity (m/year)."""
    xp = np if isinstance(x[0], np.ndarray) else jnp
    radius, head, length, conductivity = x
    log = xp.log(RADIUS / radius)
    leak = 2 * length * UPPER / (log * radius**2 * conductivity) + UPPER / LOWER
    return 2 * np.pi * UPPER * (head - BOTTOM) / (log * (1 + leak))


@pytest.mark.slow
def test_fifty_boreholes_share_a_factor_of_the_conductivity():
    """Radius and head have normal errors; given the radius, the flow is normal."""
    count, error, head_error = 50, 0.085, 10.0
    rng = np.random.default_rng(1)
    radius, length = rng.uniform(0.08, 0.15, count), rng.uniform(1120, 1680, count)
    conductivity = rng.uniform(9855, 12045, count)
    head = np.full(count, 1050.0)
    loc = np.stack([radius, head, length, conductivity], axis=1)
    scale = np.stack([error * radius, np.full(count, head_error), 0 * head, 0 * head], axis=1)
    law = nuq.InputLaw(loc.astype(np.float32), scale=scale.astype(np.float32))

    def network(x):
        return borehole(x)[None]

    lin = nuq.linearize(network, law)
    pairs = nuq.paired_draws(network, lin, KEY, 8000, progress=False)
    alone = [words.startswith("linearization, small") for words in words_of(lin, pairs)]
    assert sum(alone) >= 48
    table = summary(lin, pairs, observations=count, progress=False)
    start = "linearization, large for 50 observations"
    assert all(words.startswith(start) for words in table["verdict", "words"])
    predicted = shifts_of(table).mean() * count**0.5

    factors = np.linspace(0.9, 1.1, 101)
    z = np.linspace(-4.5, 4.5, 91)
    at = radius * (1 + error * z[:, None])

    def flow(radius):  # (factors, ..., observations)
        lead = (-1,) + (1,) * radius.ndim
        return borehole((radius, 1050.0 + 0 * radius, length, factors.reshape(lead) * conductivity))

    mean = flow(radius)
    slope = (flow(radius * 1.0001) - flow(radius * 0.9999)) / 0.0002
    sd = np.hypot(slope * error, mean * head_error / (1050 - BOTTOM))
    np.testing.assert_allclose(mean[50], lin.loc[:, 0], rtol=1e-5)
    np.testing.assert_allclose(sd[50] ** 2, lin.variance[:, 0], rtol=1e-4)
    inner, inner_sd = flow(at), flow(at) * head_error / (1050 - BOTTOM)
    off = []
    for _ in range(40):
        own = radius * (1 + error * rng.normal(size=count))
        y = borehole((own, head + head_error * rng.normal(size=count), length, conductivity))
        tangent = np.sum(-(((y - mean) / sd) ** 2) / 2 - np.log(sd), axis=1)
        terms = np.exp(-(((y - inner) / inner_sd) ** 2 + z[:, None] ** 2) / 2) / inner_sd
        exact, exact_sd = mean_and_sd(np.log(terms.sum(axis=1)).sum(axis=1), factors)
        off.append((mean_and_sd(tangent, factors)[0] - exact) / exact_sd)
    # Data sets differ by their own skewness; their mean has a standard error of .03.
    np.testing.assert_allclose(np.mean(off), predicted, rtol=1 / 3)


def test_a_width_that_many_observations_share():
    """Of a law that is 4% too narrow the posterior of the width is off by .8 sd: .04 sqrt(2 n)."""
    law = nuq.LinearizedMarginal(jnp.zeros(1), jnp.full((1, 1), 1e-3), jnp.full(1, 0.96))
    draws = np.random.default_rng(0).normal(size=(20_000, 1))
    (one,), (many,) = words_of(law, draws), words_of(law, draws, observations=200)
    assert one.startswith("linearization, small: sd 3.6%")
    assert many.startswith("linearization, large for 200 observations: sd 3.6%")


def test_moments_are_looked_at_before_a_difference_is_small():
    """Rare large draws hardly move the distribution function."""
    rng = np.random.default_rng(0)
    law = nuq.LinearizedMarginal(jnp.zeros(1), jnp.full((1, 1), 1e-3), jnp.ones(1))
    draws = rng.normal(size=(20_000, 1)) + 23.0 * (rng.uniform(size=(20_000, 1)) < 0.00175)
    table = summary(law, draws, progress=False)
    assert table["kolmogorov_smirnov", "monte_carlo"].item() < 0.01
    assert table["verdict", "words"].item().startswith("linearization, large: sd 2")


def test_what_would_not_show_is_said():
    law = nuq.LinearizedMarginal(jnp.zeros(1), jnp.ones((1, 2)))
    draws = law.sample(KEY, (900,))
    (words,) = words_of(law, draws, observations=400)
    assert words == (
        "noise: no difference beyond chance; shifts of up to 2 sd for 400 observations would not "
        "show"
    )
    with pytest.raises(ValueError, match=r"observations must be .* got 0"):
        words_of(law, draws, observations=0)


# -- a correction and the pairs that it was made of ------------------------------------------------


def network(x):
    return jnp.stack([jnp.exp(x[0]) + x[1], x[1] - 0.3 * x[0] ** 2])


@pytest.fixture(scope="module")
def fitted():
    # Far from zero, so that draws of any key are alike up to a thousandth.
    lin = nuq.linearize(lambda x: 500 + network(x), nuq.InputLaw(jnp.zeros(2), half_width=0.5))
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
    one = nuq.linearize(jnp.exp, nuq.InputLaw(jnp.zeros(1), 0.5))
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
