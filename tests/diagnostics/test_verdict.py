"""Verdicts agree with the numbers beside them, and chance alone seldom makes one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nn_uq_dist as nuq
from nn_uq_dist.diagnostics import joint_summary, summary
from nn_uq_dist.diagnostics._joint_summary import calibration_columns
from nn_uq_dist.diagnostics._verdict import correlation_words, joint_verdict
from nn_uq_dist.plots import plot_calibration

pytestmark = pytest.mark.viz

KEY = jax.random.key(0)


def standard(size=1, scale=1.0):
    """Normal but for a thousandth."""
    return nuq.LinearizedMarginal(jnp.zeros(size), jnp.full((size, 1), 1e-3), jnp.full(size, scale))


def words_of(model, draws, **options):
    return summary(model, draws, progress=False, **options)["verdict", "words"].tolist()


def test_right_distributions_show_an_error_in_one_table_of_a_hundred():
    # 400 tables: 4 expected at most, by Bonferroni's bound; beyond 13 is four standard deviations.
    rng = np.random.default_rng(0)
    both = [rng.normal(size=(2, 200, 2)) for _ in range(400)]
    found = [calibration_columns(*part, "copula") for part in both]
    assert sum(set(table["dominates"]) != {"noise"} for table in found) <= 13
    p_values = np.array([table["p_value"] for table in found])
    # Three tests share a level: at most 5% beyond 0.05, and not much less.
    np.testing.assert_allclose((p_values < 0.05).mean(axis=0), 0.05, atol=0.03)


def test_pairs_with_a_linear_network_show_no_rounding():
    def net(x):
        return jnp.array([1e3 + x[0] + 0.3 * x[1], x[1] - 0.2 * x[0]])

    f = nuq.Input.normal(np.zeros(2, np.float32), np.array([0.5, 0.7], np.float32))
    lin = nuq.linearize(net, f)
    pairs = nuq.paired_draws(net, lin, KEY, 500, progress=False)
    assert set(summary(lin, pairs, progress=False)["verdict", "dominates"]) == {"noise"}
    copula = lin.gaussian_copula()
    found = joint_summary(lin, pairs, jax.random.key(1), copula, progress=False)
    assert set(found.calibration["dominates"]) == {"noise"}
    assert "linearization" not in found.verdict


@pytest.mark.parametrize("change", ["sd", "mean", "bent"])
def test_a_small_error_of_the_joint_distribution_is_not_called_none(change):
    rng = np.random.default_rng(1)
    white, linear = rng.normal(size=(2, 20_000, 2))
    if change == "sd":  # 5% too narrow
        white[:, 1] *= 1.05
    else:
        white[:, 1 * (change == "bent")] += 0.05 if change == "mean" else 0.06 * white[:, 0] ** 2
    table = calibration_columns(white, linear, "copula")
    assert min(table["p_value"]) < 1e-4
    assert "linearization" in table["dominates"]


def test_only_correlations_show_an_error():
    difference = np.array([[0.0, 0.02, 0.0], [0.02, 0.0, np.nan], [0.0, np.nan, 0.0]])
    error = np.array([[0.0, 0.004, 0.01], [0.004, 0.0, np.nan], [0.01, np.nan, 0.0]])
    words = correlation_words(difference, error, ["a", "b", "c"], 1e-7)
    assert "a and b" in words
    assert correlation_words(difference / 2, error, ["a", "b", "c"], 1e-7) == ""
    # But if there is another, the worst row is named.
    table = {"ks": [0.05, 0.2, 0.3], "dominates": ["linearization", "copula", "noise"]}
    verdict = joint_verdict(["a", "b", "radius"], table["ks"], table["dominates"], words)
    assert verdict.startswith("large error by the copula")


@pytest.mark.slow
def test_quantiles_and_tails_count_where_no_moment_differs():
    """A distribution of the same mean, sd and skewness, with other tails."""
    rng = np.random.default_rng(3)
    size = 40_000
    normal = rng.normal(size=size)
    mixed = rng.normal(size=size) * np.where(rng.uniform(size=size) < 0.02, 2.5, 0.9389)
    right, words = words_of(standard(2), np.stack([normal, mixed], axis=1))
    assert right.startswith("noise")
    assert words.startswith("linearization, small")


@pytest.mark.slow
def test_a_thousand_observations_of_an_exponential():
    """``y = exp(m + s z)``: the posterior of `m` by the tangent against that by the exact
    distribution."""
    scale, count = 0.04, 1000
    lin = nuq.linearize(jnp.exp, nuq.Input.normal(jnp.zeros(1), scale))
    pairs = nuq.paired_draws(jnp.exp, lin, KEY, 1000, progress=False)
    (one,) = words_of(lin, pairs)
    assert one.startswith("linearization, small")
    table = summary(lin, pairs, observations=count, progress=False)
    assert table["verdict", "words"].item().startswith("linearization, large")

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


def test_moments_are_looked_at_before_a_difference_is_small():
    """Rare large draws hardly move the distribution function."""
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(20_000, 1)) + 23.0 * (rng.uniform(size=(20_000, 1)) < 0.00175)
    table = summary(standard(), draws, progress=False)
    assert table["kolmogorov_smirnov", "monte_carlo"].item() < 0.01
    assert table["verdict", "words"].item().startswith("linearization, large")


def test_a_width_that_many_observations_share():
    """Of a distribution that is 4% too narrow the posterior of the width is off by .8 sd: .04
    sqrt(2 n)."""
    draws = np.random.default_rng(0).normal(size=(20_000, 1))
    (one,), (many,) = (words_of(standard(1, 0.96), draws, observations=n) for n in (1, 200))
    assert one.startswith("linearization, small")
    assert many.startswith("linearization, large")


def test_what_would_not_show_is_said():
    for count, observations, hides in ((900, 400, True), (120, 1, True), (900, 1, False)):
        draws = np.random.default_rng(0).normal(size=(count, 1))
        (words,) = words_of(standard(), draws, observations=observations)
        assert words.startswith("noise")
        assert ("would not show" in words) == hides


def far(x):  # from zero, so that draws of any key are alike up to a thousandth
    return 500 + jnp.stack([jnp.exp(x[0]) + x[1], x[1] - 0.3 * x[0] ** 2])


@pytest.fixture(scope="module")
def fitted():
    lin = nuq.linearize(far, nuq.Input.box(jnp.zeros(2), half_width=0.5))
    of_keys = [(0, 400), (1, 400), (0, 600)]
    pairs = [nuq.paired_draws(far, lin, jax.random.key(k), n, progress=False) for k, n in of_keys]
    return lin.corrected(pairs[0]), pairs


@pytest.mark.slow
def test_a_correction_is_not_judged_by_its_own_pairs(fitted):
    corrected, (own, fresh, longer) = fitted
    joint = corrected.gaussian_copula()
    for draws, is_own in ((own, True), (fresh, False)):
        found = joint_summary(corrected, draws, KEY, joint, progress=False)
        assert (set(found.calibration["dominates"]) == {"unknown"}) == is_own
        np.testing.assert_allclose(found.correlation["linear"], corrected.correlation, rtol=1e-5)
        text = plot_calibration(corrected, draws).axes[0].texts[0].get_text()
        assert ("made of these draws" in text) == is_own
    for draws, is_own in ((own.network, True), (longer, True), (fresh, False)):
        table = summary(corrected, draws, progress=False)
        assert (set(table["verdict", "dominates"]) == {"unknown"}) == is_own
        assert np.isfinite(table["mean", "error"]).all()
