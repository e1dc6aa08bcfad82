"""Verdicts agree with the numbers beside them, and chance alone seldom makes one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import nn_uq_dist as nuq
from nn_uq_dist.diagnostics import joint_summary, summary
from nn_uq_dist.diagnostics._joint_tables import calibration_columns
from nn_uq_dist.diagnostics._verdict import correlation_words, joint_verdict

pytestmark = pytest.mark.viz

NAMES = ["a", "b"]


def calibration(white, linear):
    """The table as `joint_summary` makes it."""
    return calibration_columns(white, linear, "copula", "copula")


def verdict(columns, correlation=""):
    rows = dict(
        zip([*NAMES, "radius"], zip(columns["ks"], columns["dominates"], strict=True), strict=True)
    )
    return joint_verdict(rows, correlation)


@pytest.mark.parametrize("count", [200, 20_000])
def test_right_distributions_show_an_error_in_one_table_of_a_hundred(count):
    # 400 tables: 4 expected at most, by Bonferroni's bound; beyond 13 is four standard deviations.
    rng = np.random.default_rng(0)
    found = [
        calibration(rng.normal(size=(count, 2)), rng.normal(size=(count, 2))) for _ in range(400)
    ]
    wrong = sum(verdict(table) != "no error exceeds the noise of the draws" for table in found)
    assert wrong <= 13
    p_values = np.array([table["p_value"] for table in found])
    # Three tests share a level: at most 5% beyond 0.05, and not much less.
    assert ((p_values < 0.05).mean(axis=0) > 0.02).all()
    assert ((p_values < 0.05).mean(axis=0) < 0.08).all()


@pytest.mark.parametrize("offset", [0.0, 3.0, 1e3])
def test_pairs_with_a_linear_network_show_no_rounding(offset):
    def net(x):
        return jnp.array([offset + x[0] + 0.3 * x[1], x[1] - 0.2 * x[0]])

    f = nuq.Input.normal(np.zeros(2, np.float32), np.array([0.5, 0.7], np.float32))
    lin = nuq.linearize(net, f)
    for seed in range(3):
        pairs = nuq.paired_draws(net, lin, jax.random.key(seed), 500, progress=False)
        table = summary(lin, pairs, progress=False)
        assert set(table["verdict", "words"]) == {"noise: no difference beyond chance"}
    copula = lin.gaussian_copula()
    found = joint_summary(lin, pairs, jax.random.key(1), copula, progress=False).verdict
    assert found == "no error exceeds the noise of the draws"


@pytest.mark.parametrize(
    "change",
    [
        lambda w: w * np.array([1.0, 1.05]),  # sd 5% too narrow
        lambda w: w + np.array([0.05, 0.0]),
        lambda w: np.stack([w[:, 0], 0.06 * w[:, 0] ** 2 + w[:, 1]], axis=1),
    ],
    ids=["sd", "mean", "bent"],
)
def test_a_small_error_of_the_joint_distribution_is_not_called_none(change):
    rng = np.random.default_rng(1)
    table = calibration(change(rng.normal(size=(20_000, 2))), rng.normal(size=(20_000, 2)))
    assert min(table["p_value"]) < 1e-4
    words = verdict(table)
    assert words.startswith(("small error by the linearization", "moderate error by the linear"))
    # The numbers in the words are those of the row that they name.
    where = words.split("(see ")[1].split(")")[0]
    ks = table["ks"][[*NAMES, "radius"].index(where)]
    assert f"distance {ks:.2g} " in words


def test_p_values_are_those_of_scipy():
    rng = np.random.default_rng(2)
    white = rng.normal(0.03, 1.02, size=(3000, 2))
    table = calibration(white, white)
    squares = np.sum(white**2)
    for w, p in zip(white.T, table["p_value"], strict=False):
        freedom = len(w) - 1
        total = freedom * w.var(ddof=1)
        of_sd = 2 * min(scipy.stats.chi2.cdf(total, freedom), scipy.stats.chi2.sf(total, freedom))
        of_mean = 2 * scipy.stats.norm.sf(abs(w.mean()) * np.sqrt(len(w)))
        of_ks = scipy.stats.kstest(w, "norm").pvalue
        assert p == pytest.approx(3 * min(of_sd, of_mean, of_ks), rel=0.05, abs=1e-3)
    of_mean = 2 * min(scipy.stats.chi2.cdf(squares, 6000), scipy.stats.chi2.sf(squares, 6000))
    assert table["p_value"][2] <= 3 * of_mean * (1 + 1e-9)


def test_only_correlations_show_an_error():
    difference = np.array([[0.0, 0.02, 0.0], [0.02, 0.0, np.nan], [0.0, np.nan, 0.0]])
    error = np.array([[0.0, 0.004, 0.01], [0.004, 0.0, np.nan], [0.01, np.nan, 0.0]])
    words = correlation_words(difference, error, ["a", "b", "c"], 1e-7)
    assert "correlation of a and b is off by 0.02" in words
    assert correlation_words(difference / 2, error, ["a", "b", "c"], 1e-7) == ""
    assert correlation_words(np.zeros((1, 1)), np.zeros((1, 1)), ["a"], 1e-7) == ""
    assert verdict({"ks": [0.01] * 3, "dominates": ["noise"] * 3}, words) == words


def test_the_worst_row_is_named():
    table = {"ks": [0.05, 0.2, 0.3], "dominates": ["linearization", "copula", "noise"]}
    words = verdict(table, "nothing else")
    assert words == "large error by the copula: Kolmogorov-Smirnov distance 0.2 (see b)"


@pytest.mark.slow
def test_summary_names_quantiles_and_tails_where_no_moment_differs():
    """A distribution of the same mean, sd and skewness, with other tails."""
    rng = np.random.default_rng(3)
    size = 40_000
    distribution = nuq.LinearizedMarginal(jnp.zeros(2), jnp.full((2, 1), 0.01), jnp.ones(2))
    normal = rng.normal(size=size)
    mixed = rng.normal(size=size) * np.where(rng.uniform(size=size) < 0.02, 2.5, 0.9389)
    table = summary(distribution, np.stack([normal, mixed], axis=1), progress=False)
    assert table["verdict", "dominates"].tolist() == ["noise", "linearization"]
    words = table["verdict", "words"].iloc[1]
    assert words.startswith("linearization, small: only")
    assert any(name in words for name in ("tail", "kurtosis", "q0.0", "q0.9"))


def test_words_stay_short_for_tiny_spreads():
    distribution = nuq.LinearizedMarginal(jnp.zeros(1), jnp.ones((1, 3)))
    draws = 1e-200 * np.asarray(distribution.sample(jax.random.key(0), (500,)), np.float64)
    table = summary(distribution, draws, progress=False)
    words = table["verdict", "words"].item()
    assert "times too wide" in words
    assert len(words) < 100
    sd = table["sd", "monte_carlo"].item()
    assert sd == pytest.approx(draws.std(ddof=1) or 1e-200, rel=0.2)
    assert sd / 1e-200 == pytest.approx((draws / 1e-200).std(ddof=1), rel=1e-9)
