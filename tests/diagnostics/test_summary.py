"""Tables of diagnostics: every number against SciPy or brute force, errors by repetition."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import scipy.optimize
import scipy.stats
from arviz_stats.base import array_stats

import nn_uq_dist as nuq
from nn_uq_dist.diagnostics import JointSummary, summary
from nn_uq_dist.diagnostics._statistics import uniformity_p_value
from nn_uq_dist.distributions import LinearizedMarginal
from nn_uq_dist.plots._plot_calibration import dkw_half_width

pytestmark = pytest.mark.viz

MOMENTS = ("mean", "sd", "skewness")
QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)


def moment_of(name, x):
    functions = {
        "mean": lambda x: np.mean(x, axis=-1),
        "sd": lambda x: np.std(x, ddof=1, axis=-1),
        "skewness": lambda x: scipy.stats.skew(x, axis=-1),
    }
    return functions[name](x)


def uniform_plus_normal(half_width, scale):
    """Distribution of half_width U + scale N: the convolution integral of the normal CDF in closed
    form."""
    norm = scipy.stats.norm

    def cdf(x):
        antiderivative = lambda z: z * norm.cdf(z) + norm.pdf(z)  # noqa: E731
        upper, lower = (x + half_width) / scale, (x - half_width) / scale
        return scale * (antiderivative(upper) - antiderivative(lower)) / (2 * half_width)

    def ppf(p):
        end = half_width + 40 * scale
        return scipy.optimize.brentq(lambda x: cdf(x) - p, -end, end, xtol=1e-13)

    return cdf, np.vectorize(ppf), np.sqrt(half_width**2 / 3 + scale**2)


def known_distributions():
    """Marginals with their CDF, quantile function and sd from elsewhere."""
    uniform = scipy.stats.uniform(-2, 4)
    trapezoid = scipy.stats.trapezoid(0.25, 0.75, -2, 4)  # 1.5 U_1 + 0.5 U_2
    hall = scipy.stats.irwinhall(4, -2 * 0.7, 2 * 0.35)  # 0.35 (U_1 + ... + U_4)
    for distribution, weights in (
        (uniform, [2.0]),
        (trapezoid, [1.5, 0.5]),
        (hall, [0.35] * 4),
    ):
        yield weights, None, distribution.cdf, distribution.ppf, distribution.std()
    yield [1.5], 0.4, *uniform_plus_normal(1.5, 0.4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("weights", "scale", "cdf", "ppf", "sd", "precision"),
    [
        (*distribution, precision)
        for distribution, precision in zip(
            known_distributions(), ["float32", "float64"] * 2, strict=True
        )
    ],
    ids=["uniform", "trapezoid", "irwin_hall", "uniform_plus_normal"],
    indirect=["precision"],
)
def test_summary_agrees_with_known_distributions(precision, weights, scale, cdf, ppf, sd):
    tolerance = 1e-9 if precision == "float64" else 3e-5
    scales = None if scale is None else jnp.array([scale, scale])
    distribution = LinearizedMarginal(jnp.array([0.0, 0.0]), jnp.array([weights, weights]), scales)
    generator = np.random.default_rng(3)
    shape = (20_000, 2)
    draws = generator.uniform(-1, 1, (*shape, len(weights))) @ np.array(weights)
    draws += generator.normal(size=shape) * (scale or 0)
    draws[:, 1] = 0.9 * draws[:, 1] + 0.05 * draws[:, 1] ** 2  # a distribution of its own
    table = summary(distribution, draws, quantiles=QUANTILES, tails=(0.01, 0.001))

    assert table.index.tolist() == ["y[0]", "y[1]"]
    expected = {"mean": 0, "sd": sd, "skewness": 0}
    expected |= {f"q{p:g}": ppf(p) for p in QUANTILES}
    brute = {moment: moment_of(moment, draws.T) for moment in MOMENTS}
    brute |= {f"q{p:g}": np.quantile(draws, p, axis=0, method="hazen") for p in QUANTILES}
    for name, value in expected.items():
        part = table[name]
        np.testing.assert_allclose(part["analytic"], value, atol=tolerance)
        np.testing.assert_allclose(part["monte_carlo"], brute[name], rtol=1e-9, atol=1e-12)
        np.testing.assert_array_equal(part["error"], part["analytic"] - part["monte_carlo"])
        assert abs(part["error"].iloc[0]) < 4.5 * part["standard_error"].iloc[0]

    distance = table["kolmogorov_smirnov", "monte_carlo"]
    exact = [scipy.stats.kstest(x, cdf).statistic for x in draws.T]
    np.testing.assert_allclose(distance, exact, atol=tolerance)
    assert (table.loc["y[1]", distance.name] > table.loc["y[0]", distance.name]).all()
    for level in (0.01, 0.001):
        for side, sign in (("lower", 1), ("upper", -1)):
            part = table[f"{side}_tail_{level:g}"]
            beyond = (sign * draws < sign * (ppf(level) if sign > 0 else -ppf(level))).mean(axis=0)
            np.testing.assert_allclose(part["monte_carlo"], beyond, atol=1.01 / 20_000)
    outside = [((x < ppf(0)) | (x > ppf(1))).mean() if scale is None else 0 for x in draws.T]
    np.testing.assert_allclose(table["draws", "outside_support"], outside, atol=1 / 20_000)
    assert table["verdict", "dominates"].tolist() == ["noise", "linearization"]
    assert "too wide" in table.loc["y[1]", ("verdict", "words")]
    floor = table["kolmogorov_smirnov", "noise_floor"]
    np.testing.assert_allclose(floor, scipy.stats.kstwobign.mean() / np.sqrt(20_000), rtol=1e-6)


@pytest.mark.slow
@pytest.mark.usefixtures("fully_optimized")
def test_p_values_are_calibrated_on_draws_of_the_distribution_itself():
    # 500 repetitions in one table: 25 +- 4.9 rejections at 5%, so 10 to 40 is beyond three.
    distribution = LinearizedMarginal(
        jnp.zeros(500), jnp.broadcast_to(jnp.array([0.5, 0.3, 0.2]), (500, 3))
    )
    draws = distribution.sample(jax.random.key(5), (1_000,))
    table = summary(distribution, draws)
    assert 10 <= (table["pit", "p_value"] < 0.05).sum() <= 40
    band = dkw_half_width(1_000)
    assert 10 <= (table["kolmogorov_smirnov", "monte_carlo"] > band).sum() <= 40
    # By the rule: 0.5% by the distance, 3 x 0.27% by the moments, and 0.3% by each tail of .01, of
    # which ten draws are expected: 10 of 500, and three standard deviations.
    assert (table["verdict", "dominates"] != "noise").sum() < 20
    part = table["kolmogorov_smirnov"]
    np.testing.assert_allclose(part["monte_carlo"].mean(), part["noise_floor"].iloc[0], rtol=0.06)


@pytest.mark.slow
def test_verdict_names_what_differs():
    distribution = LinearizedMarginal(jnp.zeros(5), jnp.full((5, 3), 0.5))
    draws = np.random.default_rng(0).uniform(-0.5, 0.5, (20_000, 5, 3)).sum(axis=-1)
    draws[:, 1] *= 1.3
    draws[:, 2] += 0.2
    draws[:, 3] = draws[:, 3] + 0.3 * draws[:, 3] ** 2 - 0.3 * draws[:, 3].var()
    draws[:, 4] = np.nan
    with pytest.warns(RuntimeWarning, match=r"y\[4\]: 20000"):
        table = summary(distribution, draws)
    words = table["verdict", "words"].tolist()
    assert words[0] == "noise: no difference beyond chance"
    assert words[1].startswith("linearization, moderate: sd 2")
    assert "% too narrow, " in words[1]
    assert words[1].endswith("of the draws beyond the support")
    assert "draws shifted by +0.39 sd" in words[2]
    assert "draws skewed (+" in words[3]
    assert words[4] == "too few finite draws"
    names = ["noise", *["linearization"] * 3, "unknown"]
    assert table["verdict", "dominates"].tolist() == names


def test_draws_that_rounding_puts_on_the_edge_are_not_beyond_it():
    # One uniform input, float32: some draws of 10 + 0.01 U round to the end of the support.
    distribution = LinearizedMarginal(jnp.full(1, 10.0), jnp.full((1, 1), 0.01))
    draws = np.float32(10) + np.float32(0.01) * np.random.default_rng(0).uniform(
        -1, 1, (50_000, 1)
    ).astype(np.float32)
    draws[:3] = np.float32(10.01)
    table = summary(distribution, draws)
    assert table["draws", "outside_support"].item() == 0
    assert table["verdict", "dominates"].item() == "noise"
    draws[:3] = np.float32(10.0101)
    assert summary(distribution, draws)["draws", "outside_support"].item() == pytest.approx(6e-5)


def test_a_table_is_printed_with_its_verdicts_first_within_80_columns():
    size = 25
    distribution = LinearizedMarginal(jnp.zeros(size), jnp.full((size, 3), 0.5))
    draws = np.array(distribution.sample(jax.random.key(0), (1_000,)))
    draws[:, 1] = 3 * draws[:, 1] ** 2 - 1e4
    names = ["an output with a long name", *(f"output {k}" for k in range(1, size))]
    table = summary(distribution, draws, output_names=names)
    assert table.shape == (size, 25)
    assert table.columns[0] == ("verdict", "words")
    lines = repr(table).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["output", "verdict"]
    start = lines.index(next(line for line in lines if line.startswith("output 1 ")))
    words = " ".join(" ".join(lines[start : start + 3]).split())
    assert f"output 1 {table.loc['output 1', ('verdict', 'words')]}"[:120] in words
    assert lines[-1] == "and 5 more rows, all with .to_string()"
    page = table._repr_html_()
    assert table.loc["output 1", ("verdict", "words")] in page
    assert "outside_support" in page
    assert type(table["mean"]) is type(table.round(2)) is pd.DataFrame
    assert pickle.loads(pickle.dumps(table)).equals(table)  # noqa: S301


def test_verdict_on_constant_draws():
    distribution = LinearizedMarginal(jnp.zeros(1), jnp.full((1, 3), 0.5))
    table = summary(distribution, np.full((200, 1), 0.1))
    assert table["verdict", "words"].item() == "linearization, large: all draws are equal"


def test_verdict_of_a_joint_summary():
    distribution = LinearizedMarginal(jnp.zeros(2), jnp.full((2, 3), 0.5))
    draws = distribution.sample(jax.random.key(0), (1_000,))
    calibration = pd.DataFrame(
        {"dominates": ["noise", "copula", "copula"]}, index=["a", "b", "radius"]
    )
    joint = JointSummary("", calibration, None, 0.0, 1_000, 0, "copula")
    table = summary(distribution, draws, output_names=["a", "b"], joint=joint)["verdict"]
    assert table["dominates"].tolist() == ["noise", "copula"]
    assert table["words"].iloc[1].startswith("copula: alone within the noise")
    with pytest.raises(ValueError, match=r"joint must have the outputs.*y\[0\], y\[1\], got a, b"):
        summary(distribution, draws, joint=joint)
    with pytest.raises(TypeError, match="joint must be a JointSummary, got DataFrame"):
        summary(distribution, draws, joint=calibration)


def test_linearization_is_taken_by_its_marginals():
    distribution = LinearizedMarginal(jnp.zeros(2), jnp.array([[1.0, 0.5], [0.2, 0.3]]))

    class Standard:
        def marginals(self):
            return distribution

    draws = distribution.sample(jax.random.key(0), (500,))
    assert summary(Standard(), draws).equals(summary(distribution, draws))


def test_one_output_without_a_batch_axis():
    distribution = LinearizedMarginal(0.5, jnp.array([1.0, 0.5]))
    draws = distribution.sample(jax.random.key(0), (500,))
    table = summary(distribution, draws, output_names=["level"], quantiles=[0.9])
    assert table.index.tolist() == ["level"]
    assert "q0.9" in table.columns.get_level_values("statistic")
    assert table.equals(
        summary(distribution, draws[:, None], output_names=["level"], quantiles=[0.9])
    )
    least = summary(distribution, draws, output_names=["level"], quantiles=[], tails=[])
    assert least["mean"].equals(table["mean"])


@pytest.mark.slow
def test_draws_that_are_not_finite_are_counted_and_left_out():
    distribution = LinearizedMarginal(jnp.zeros(3), jnp.ones((3, 4)))
    draws = np.array(distribution.sample(jax.random.key(0), (400,)))
    draws[:5, 1] = [np.nan, np.inf, -np.inf, np.nan, np.nan]
    draws[:350, 2] = np.nan
    before = draws.copy()
    with pytest.warns(RuntimeWarning, match=r"b: 5, c: 350"):
        table = summary(distribution, draws, output_names=list("abc"))
    np.testing.assert_array_equal(draws, before)
    assert table["draws", "non_finite"].tolist() == [0, 5, 350]
    assert table["draws", "total"].tolist() == [400] * 3
    assert table.loc["b", ("mean", "monte_carlo")] == pytest.approx(draws[5:, 1].mean(), rel=1e-6)
    values = table.xs("monte_carlo", axis=1, level="value")
    assert np.isfinite(values.loc[["a", "b"]]).all(axis=None)
    assert values.loc["c"].isna().all()  # 50 draws say too little
    analytic = table.xs("analytic", axis=1, level="value")
    assert np.isfinite(analytic).all(axis=None)


WRONG = [
    ({"draws": np.zeros((200, 3))}, ValueError, r"draws must have shape .*\(n, 2\).*\(200, 3\)"),
    ({"draws": np.zeros((2, 200))}, ValueError, r"got \(2, 200\); pass its transpose"),
    ({"draws": np.zeros(200)}, ValueError, r"got \(200,\)"),
    ({"draws": np.zeros((99, 2))}, ValueError, "at least 100 rows, got 99"),
    ({"draws": np.zeros((200, 2), complex)}, TypeError, "real numbers, got dtype complex128"),
    ({"output_names": ["a"]}, ValueError, "one name per output, 2, got 1"),
    ({"output_names": ["a", "a"]}, ValueError, "must differ, got a more than once"),
    ({"output_names": "ab"}, TypeError, "got the string 'ab'"),
    ({"quantiles": [0.5, 1.0]}, ValueError, r"levels in \(0, 1\)"),
    ({"quantiles": 0.5}, ValueError, r"levels in \(0, 1\)"),
    ({"quantiles": [0.5, 0.5]}, ValueError, "must differ"),
    ({"tails": [0.5]}, ValueError, r"tails must be a sequence of levels in \(0, 0.5\)"),
    ({"marginals": np.zeros(2)}, TypeError, "a LinearizedMarginal or a Linearization, got ndarray"),
    (
        {"marginals": lambda: LinearizedMarginal(jnp.zeros((2, 2)), jnp.ones((2, 2, 3)))},
        ValueError,
        r"draws must have shape .*\(n, 2, 2\), got \(200, 2\)",
    ),
]


def test_wrong_arguments_are_named():
    for wrong, error, message in WRONG:
        arguments = {
            "marginals": LinearizedMarginal(jnp.zeros(2), jnp.ones((2, 3))),
            "draws": np.zeros((200, 2)),
        } | wrong
        if callable(arguments["marginals"]) and "marginals" in wrong:
            arguments["marginals"] = arguments["marginals"]()
        with pytest.raises(error, match=message):
            summary(**arguments)


def test_pairs_of_another_input_are_refused():
    wide, narrow = (nuq.linearize(jnp.tanh, nuq.Input.box(jnp.zeros(2), b)) for b in (0.8, 0.5))
    pairs = nuq.paired_draws(jnp.tanh, wide, jax.random.key(0), 200, progress=False)
    with pytest.raises(ValueError, match="pairs whose inputs have another mean or standard"):
        summary(narrow, pairs, progress=False)


def test_noise_from_few_draws_says_what_it_hides():
    lin = nuq.linearize(lambda x: x, nuq.Input.box(jnp.zeros(1), 1.0))
    draws = np.random.default_rng(0).uniform(-1, 1, (120, 1))
    (words,) = summary(lin, draws, progress=False)["verdict", "words"]
    assert words.endswith("with so few draws distances of up to 0.2 would not show")


@pytest.mark.parametrize("count", [100, 1_000])
def test_uniformity_test_is_calibrated(count):
    # ArviZ's own p-value is below 0.05 for 6.5% of uniform samples. 2000 of them here: 5% +- 0.5%.
    u = np.random.default_rng(7).random((2_000, count))
    found = np.array([uniformity_p_value(row) for row in u])
    for level in (0.05, 0.2):
        error = np.sqrt(level * (1 - level) / len(u))
        assert abs((found < level).mean() - level) < 3.5 * error + 0.005
    assert uniformity_p_value(u[0] ** (1.2 if count > 100 else 2)) < 1e-3
    raw, _, _ = array_stats.uniformity_test(u[:100], method="pot_c")
    assert (np.argsort(raw) == np.argsort(found[:100], kind="stable")).mean() > 0.9
