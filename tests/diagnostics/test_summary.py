"""The table `summary`: numbers against SciPy or brute force, errors by repetition, pairs."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
import scipy.stats

from nn_uq_dist import Input, linearize, paired_draws
from nn_uq_dist.diagnostics import JointSummary, summary
from nn_uq_dist.distributions import LinearizedMarginal
from nn_uq_dist.sampling import paired_statistics

pytestmark = pytest.mark.viz

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
# Two equal outputs, and the same in SciPy's words; the second is not symmetric.
KNOWN = {
    "float32": (
        lambda: LinearizedMarginal(jnp.zeros(2), jnp.full((2, 4), 0.35)),
        scipy.stats.irwinhall(4, -2 * 0.7, 2 * 0.35),
    ),
    "float64": (lambda: dist.LogNormal(jnp.zeros(2), 0.5), scipy.stats.lognorm(0.5)),
}


@pytest.mark.slow
def test_summary_agrees_with_known_distributions(precision):
    tolerance = 1e-9 if precision == "float64" else 3e-5
    make, known = KNOWN[precision]
    draws = known.rvs((20_000, 2), random_state=np.random.default_rng(3))
    draws[:, 1] *= 1.1  # a distribution of its own
    table = summary(make(), draws, quantiles=QUANTILES, tails=(0.01, 0.001))

    assert table.index.tolist() == ["y[0]", "y[1]"]
    mean, variance, skewness = map(float, known.stats("mvs"))
    expected = {"mean": mean, "sd": np.sqrt(variance), "skewness": skewness}
    expected |= {f"q{p:g}": known.ppf(p) for p in QUANTILES}
    brute = {"mean": draws.mean(axis=0), "sd": draws.std(axis=0, ddof=1)}
    brute |= {"skewness": scipy.stats.skew(draws)}
    brute |= {f"q{p:g}": np.quantile(draws, p, axis=0, method="hazen") for p in QUANTILES}
    for name, value in expected.items():
        part = table[name]
        np.testing.assert_allclose(part["analytic"], value, rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(part["monte_carlo"], brute[name], rtol=1e-9, atol=1e-12)
        np.testing.assert_array_equal(part["error"], part["analytic"] - part["monte_carlo"])
        assert abs(part["error"].iloc[0]) < 4.5 * part["standard_error"].iloc[0]

    distance = table["kolmogorov_smirnov", "monte_carlo"]
    exact = [scipy.stats.kstest(x, known.cdf).statistic for x in draws.T]
    np.testing.assert_allclose(distance, exact, atol=tolerance)
    for level in (0.01, 0.001):
        beyond = {"lower": draws < known.ppf(level), "upper": draws > known.isf(level)}
        for side, is_beyond in beyond.items():
            found = table[f"{side}_tail_{level:g}", "monte_carlo"]
            np.testing.assert_allclose(found, is_beyond.mean(axis=0), atol=1.01 / 20_000)
    low, high = known.support()
    outside = ((draws < low) | (draws > high)).mean(axis=0)
    np.testing.assert_allclose(table["draws", "outside_support"], outside, atol=1 / 20_000)
    assert table["verdict", "dominates"].tolist() == ["noise", "linearization"]
    floor = table["kolmogorov_smirnov", "noise_floor"]
    np.testing.assert_allclose(floor, scipy.stats.kstwobign.mean() / np.sqrt(20_000), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.usefixtures("fully_optimized")
def test_p_values_are_calibrated_on_draws_of_the_distribution_itself():
    # 500 repetitions in one table: 25 +- 4.9 rejections at 5%, so 10 to 40 is beyond three.
    rows = jnp.broadcast_to(jnp.array([0.5, 0.3, 0.2]), (500, 3))
    distribution = LinearizedMarginal(jnp.zeros(500), rows)
    draws = distribution.sample(jax.random.key(5), (1_000,))
    table = summary(distribution, draws)
    assert 10 <= (table["pit", "p_value"] < 0.05).sum() <= 40
    band = np.sqrt(np.log(40) / 2000)
    assert 10 <= (table["kolmogorov_smirnov", "monte_carlo"] > band).sum() <= 40
    # By the rule: 0.5% by the distance, 3 x 0.27% by the moments, and 0.3% by each tail of .01, of
    # which ten draws are expected: 10 of 500, and three standard deviations.
    assert (table["verdict", "dominates"] != "noise").sum() < 20
    part = table["kolmogorov_smirnov"]
    np.testing.assert_allclose(part["monte_carlo"].mean(), part["noise_floor"].iloc[0], rtol=0.06)


@pytest.mark.slow
def test_verdict_names_what_differs():
    distribution = LinearizedMarginal(jnp.zeros(6), jnp.full((6, 3), 0.5))
    draws = np.random.default_rng(0).uniform(-0.5, 0.5, (20_000, 6, 3)).sum(axis=-1)
    draws[:, 1] *= 1.3
    draws[:, 2] += 0.2
    draws[:, 3] = draws[:, 3] + 0.3 * draws[:, 3] ** 2 - 0.3 * draws[:, 3].var()
    draws[:, 4:] = 0.1, np.nan
    with pytest.warns(RuntimeWarning, match=r"y\[5\]: 20000"):
        table = summary(distribution, draws)
    words = table["verdict", "words"]
    for name, feature in zip(("y[1]", "y[2]", "y[3]"), ("sd", "shifted", "skewed"), strict=True):
        assert feature in words[name]
    assert "support" in words["y[1]"]
    kinds = ["noise", *["linearization"] * 4, "unknown"]
    assert table["verdict", "dominates"].tolist() == kinds


def test_draws_that_rounding_puts_on_the_edge_are_not_beyond_it():
    # One uniform input, float32: some draws of 10 + 0.01 U round to the end of the support.
    distribution = LinearizedMarginal(jnp.full(1, 10.0), jnp.full((1, 1), 0.01))
    uniform = np.random.default_rng(0).uniform(-1, 1, (50_000, 1)).astype(np.float32)
    draws = np.float32(10) + np.float32(0.01) * uniform
    draws[:3] = np.float32(10.01)
    table = summary(distribution, draws)
    assert table["draws", "outside_support"].item() == 0
    assert table["verdict", "dominates"].item() == "noise"
    draws[:3] = np.float32(10.0101)
    assert summary(distribution, draws)["draws", "outside_support"].item() == pytest.approx(6e-5)


def test_a_table_is_printed_with_its_verdicts_first_within_80_columns():
    size = 25
    distribution = dist.Normal(jnp.zeros(size), 1.0)
    draws = np.random.default_rng(0).normal(size=(1_000, size))
    names = ["an output with a name that stands alone", *(f"output {k}" for k in range(1, size))]
    table = summary(distribution, draws, output_names=names)
    lines = repr(table).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["output", "verdict"]
    assert "5 more rows" in lines[-1]
    assert table.loc["output 1", ("verdict", "words")] in table._repr_html_()
    assert pickle.loads(pickle.dumps(table)).equals(table)  # noqa: S301


def test_verdict_of_a_joint_summary():
    distribution = dist.Normal(jnp.zeros(2), 1.0)
    draws = np.random.default_rng(0).normal(size=(1_000, 2))
    rows = {"a": "noise", "b": "copula", "radius": "copula"}
    calibration = pd.Series(rows).to_frame("dominates")
    joint = JointSummary("", calibration, None, 0.0, 1_000, 0, "copula")
    table = summary(distribution, draws, output_names=["a", "b"], joint=joint)["verdict"]
    assert table["dominates"].tolist() == ["noise", "copula"]
    for wrong, got in ((joint, "a, b"), (calibration, "DataFrame")):
        with pytest.raises(ValueError, match=rf"joint must be .* y\[0\], y\[1\], got {got}"):
            summary(distribution, draws, joint=wrong)


def test_one_output_without_a_batch_axis():
    draws = np.random.default_rng(0).normal(size=500)
    one = summary(dist.Normal(0.0, 1.0), draws, output_names=["level"], quantiles=[0.9])
    column = summary(dist.Normal(0.0, 1.0), draws[:, None], output_names=["level"], tails=[])
    assert column["mean"].equals(one["mean"])


def test_draws_that_are_not_finite_are_counted_and_left_out():
    distribution = dist.Normal(jnp.zeros(3), 1.0)
    draws = np.random.default_rng(0).normal(size=(400, 3))
    draws[:5, 1] = [np.nan, np.inf, -np.inf, np.nan, np.nan]
    draws[:350, 2] = np.nan
    with pytest.warns(RuntimeWarning, match=r"b: 5, c: 350"):
        table = summary(distribution, draws, output_names=list("abc"))
    np.testing.assert_array_equal(
        table["draws"][["total", "non_finite"]].T, [[400] * 3, [0, 5, 350]]
    )
    assert table.loc["b", ("mean", "monte_carlo")] == pytest.approx(draws[5:, 1].mean(), rel=1e-6)
    values = table.xs("monte_carlo", axis=1, level="value")
    assert np.isfinite(values.loc[["a", "b"]]).all(axis=None)
    assert values.loc["c"].isna().all()  # 50 draws say too little
    assert np.isfinite(table.xs("analytic", axis=1, level="value")).all(axis=None)


def test_verdict_does_not_take_the_skewness_of_a_distribution_for_an_error():
    rng = np.random.default_rng(0)
    draws = np.stack([rng.exponential(0.5, 20_000), rng.normal(3, 3, 20_000)], axis=1)
    distribution = dist.Exponential(jnp.array([2.0, 1 / 3]))
    kinds = summary(distribution, draws)["verdict", "dominates"].tolist()
    assert kinds == ["noise", "linearization"]


KEY = jax.random.key(0)
STATISTICS = ("mean", "sd", "skewness", "q0.05", "q0.5", "q0.95", "lower_tail_0.05",
              "upper_tail_0.05")  # fmt: skip
ASKED = {"quantiles": [0.05, 0.5, 0.95], "tails": [0.05]}


def exponential(f):
    """Log-uniform, 0.7 times the input in the exponent; and twice that."""
    return jnp.exp(jnp.array([0.7, 1.4]) * f[0])


LIN = linearize(exponential, Input.box([0.0], half_width=0.5))


@pytest.mark.slow
def test_the_table_has_the_statistics_of_the_pairs():
    pairs = paired_draws(exponential, LIN, KEY, 1000, progress=False)
    table, plain = (summary(LIN, draws, **ASKED) for draws in (pairs, pairs.network))
    found = paired_statistics(pairs)
    ends = [found.exceedance(table[name, "analytic"].to_numpy()) for name in ("q0.05", "q0.95")]
    quantiles = [found.quantile(level) for level in ASKED["quantiles"]]
    estimates = [found.mean, found.sd, found.skewness, *quantiles, *ends]
    for name, (value, error, _) in zip(STATISTICS, estimates, strict=True):
        share = 1 - value if name == "lower_tail_0.05" else value
        np.testing.assert_allclose(table[name, "monte_carlo"], share, rtol=1e-6)
        np.testing.assert_allclose(table[name, "standard_error"], error, rtol=1e-6)
        if "tail" not in name:
            np.testing.assert_array_equal(table[name, "analytic"], plain[name, "analytic"])
            difference = table[name, "analytic"] - table[name, "monte_carlo"]
            np.testing.assert_array_equal(table[name, "error"], difference)
            assert (error < 0.8 * plain[name, "standard_error"]).all()
    # Nothing else than the sharper distance has changed.
    same = [c for c in plain.columns if c[0] not in {*STATISTICS, "kolmogorov_smirnov", "verdict"}]
    assert table[same].equals(plain[same])


@pytest.mark.slow
def test_pairs_see_what_as_many_plain_draws_do_not():
    lin = linearize(exponential, Input.normal([0.0], 0.05))
    pairs = paired_draws(exponential, lin, KEY, 200, progress=False)
    assert (summary(lin, pairs.network)["verdict", "dominates"] == "noise").all()
    table = summary(lin, pairs)
    assert (table["verdict", "dominates"] == "linearization").all()
    assert table["verdict", "words"].str.contains("shifted").all()
    # The mean of a lognormal, which the tangent takes for 1.
    exact = np.exp(np.array([0.035, 0.07]) ** 2 / 2)
    np.testing.assert_allclose(table["mean", "error"], 1 - exact, rtol=0.1)
    floor = table["kolmogorov_smirnov", "noise_floor"]
    assert (floor < 0.5 * scipy.stats.kstwobign.mean() / np.sqrt(200)).all()


def test_the_distribution_need_not_be_the_linear_one():
    # The network's own distribution, lognormal; from pairs with a tangent that is far off.
    lin = linearize(exponential, Input.normal([0.0], 0.25))
    pairs = paired_draws(exponential, lin, KEY, 1000, progress=False)
    table = summary(dist.LogNormal(0.0, jnp.array([0.175, 0.35])), pairs, **ASKED)
    assert (table["verdict", "dominates"] == "noise").all(), table["verdict", "words"].tolist()
    for name in ("mean", "sd", "q0.05", "q0.5", "q0.95", "lower_tail_0.05", "upper_tail_0.05"):
        part = table[name]
        off = part["monte_carlo"] - 0.05 if "tail" in name else part["error"]
        assert (off.abs() < 4 * part["standard_error"]).all()
