"""Tables of distributions that do not come from a linearization: by the contracts alone, against
SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats

from nn_uq_dist import GaussianCopulaJoint, Input, Linearization
from nn_uq_dist.diagnostics import joint_summary, summary, to_datatree
from nn_uq_dist.diagnostics.output_functions import OutputFunctions, Tails
from nn_uq_dist.distributions import as_output_distribution

pytestmark = pytest.mark.viz


# Two outputs each, and the same in SciPy's words.
LAWS = {
    "exponential": (
        lambda: dist.Exponential(jnp.array([2.0, 1 / 3])),
        [scipy.stats.expon(0, 0.5), scipy.stats.expon(0, 3)],
    ),
    "lognormal": (
        lambda: dist.LogNormal(jnp.array([0.0, 1.0]), jnp.array([0.5, 0.3])),
        [scipy.stats.lognorm(0.5), scipy.stats.lognorm(0.3, scale=np.e)],
    ),
    "gumbel": (
        lambda: dist.Gumbel(jnp.array([0.0, 5.0]), jnp.array([1.0, 0.2])),
        [scipy.stats.gumbel_r(0, 1), scipy.stats.gumbel_r(5, 0.2)],
    ),
}


def draws_of(known, size=5_000, seed=0):
    generator = np.random.default_rng(seed)
    return np.stack(
        [distribution.rvs(size, random_state=generator) for distribution in known], axis=1
    )


@pytest.mark.parametrize(
    ("precision", "name"),
    [("float32", "exponential"), ("float64", "lognormal"), ("float32", "gumbel")],
    indirect=["precision"],
)
def test_summary_of_an_asymmetric_distribution_agrees_with_scipy(precision, name):
    rtol = 1e-9 if precision == "float64" else 3e-5
    make, known = LAWS[name]
    draws = draws_of(known, seed=1)
    draws[:, 1] = 1.1 * draws[:, 1]  # a distribution of its own
    levels = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
    table = summary(make(), draws, quantiles=levels, tails=(0.01, 0.001))
    for j, distribution in enumerate(known):
        row, x = table.iloc[j], draws[:, j]
        mean, variance, skewness = map(float, distribution.stats("mvs"))
        expected = {"mean": mean, "sd": np.sqrt(variance), "skewness": skewness}
        expected |= {f"q{q:g}": distribution.ppf(q) for q in levels}
        for statistic, value in expected.items():
            found = row[statistic, "analytic"]
            np.testing.assert_allclose(found, value, rtol=rtol, atol=rtol)
        for level in (0.01, 0.001):
            below, above = (
                (x < distribution.ppf(level)).mean(),
                (x > distribution.isf(level)).mean(),
            )
            assert row[f"lower_tail_{level}", "monte_carlo"] == pytest.approx(below, abs=2.1e-4)
            assert row[f"upper_tail_{level}", "monte_carlo"] == pytest.approx(above, abs=2.1e-4)
        distance = scipy.stats.kstest(x, distribution.cdf).statistic
        assert row["kolmogorov_smirnov", "monte_carlo"] == pytest.approx(distance, abs=1e-6)
        outside = (x < distribution.support()[0]).mean()
        assert row["draws", "outside_support"] == pytest.approx(outside)
    assert table["verdict", "dominates"].tolist() == ["noise", "linearization"]


def test_verdict_does_not_take_the_skewness_of_a_distribution_for_an_error():
    make, known = LAWS["exponential"]
    draws = draws_of(known, 20_000)
    draws[:, 1] = np.random.default_rng(1).normal(3, 3, 20_000)
    words = summary(make(), draws)["verdict", "words"].tolist()
    assert words[0] == "noise: no difference beyond chance"
    assert "instead of +2)" in words[1]
    assert "beyond the support" in words[1]


@pytest.mark.parametrize(
    ("precision", "name"),
    [("float32", "exponential"), ("float64", "lognormal")],
    indirect=["precision"],
)
def test_both_tails_of_an_asymmetric_distribution_are_resolved(precision, name):
    make, known = LAWS[name]
    levels = np.array([1e-12, 0.01, 0.3])
    x = np.stack(
        [[*distribution.ppf(levels), *distribution.isf(levels)] for distribution in known], axis=1
    )
    tails = Tails(OutputFunctions(as_output_distribution(make())), x)
    p = tails.probabilities()
    rtol = 1e-3
    expected = np.stack([levels, levels], axis=1)
    np.testing.assert_allclose(p[:3], expected, rtol=rtol)
    np.testing.assert_allclose(1 - p[3:], expected, rtol=rtol)
    scores = scipy.stats.norm.ppf(levels)
    expected = np.stack([[*scores, *-scores]] * 2, axis=1)
    np.testing.assert_allclose(tails.normal_scores(), expected, rtol=rtol)


def test_draws_beyond_one_end_are_outside():
    make, known = LAWS["exponential"]
    x = draws_of(known)
    x[:50] = [-0.1, -0.5]
    x[50:60] = [0.0, 0.0]  # at the end itself
    tails = Tails(OutputFunctions(as_output_distribution(make())), x)
    np.testing.assert_array_equal(tails.is_outside.sum(axis=0), [50, 50])
    np.testing.assert_array_equal(tails.scores[:50], -np.inf)
    np.testing.assert_array_equal(tails.normal_scores()[:50], -38)
    table = summary(make(), x)
    np.testing.assert_allclose(table["draws", "outside_support"], 0.01)
    assert (table["kolmogorov_smirnov", "monte_carlo"] > 0.01).all()


def correlated(rows):
    jacobian = np.array(rows)
    return Linearization(np.zeros(len(rows)), jacobian, Input.box(np.zeros(jacobian.shape[1]), 1.0))


def test_draws_beyond_the_support_of_a_joint_distribution_have_bounded_scores():
    lin = correlated([[1.0, 0.0], [0.0, 1.0]])
    draws = np.asarray(lin.sample(jax.random.key(3), (1_000,))).copy()
    draws[:100, 0] = 1.5
    distribution = GaussianCopulaJoint(lin.marginals(), jnp.eye(2))
    found = joint_summary(lin, draws, jax.random.key(0), joint=distribution)
    assert found.outside_support == pytest.approx(0.1)
    assert found.calibration.loc["y[0]", "mean"] == pytest.approx(3.8, abs=0.2)
    assert np.isfinite(found.calibration["ks"]).all()


def test_distributions_that_are_none_are_named():
    draws = np.zeros((200, 2))
    with pytest.raises(TypeError, match="continuous, got the discrete Poisson"):
        summary(dist.Poisson(jnp.ones(2)), draws)
    with pytest.raises(ValueError, match=r"got batch shape \(\) and event shape \(2,\)"):
        summary(dist.Normal(jnp.zeros(2), 1).to_event(1), draws)
    with pytest.raises(TypeError, match="must have cdf and icdf, got VonMises without cdf"):
        summary(dist.VonMises(jnp.zeros(2), 1.0), draws)
    lin = correlated([[1.0, 0.5], [0.8, 0.7]])
    key = jax.random.key(0)
    with pytest.raises(TypeError, match="joint must be a JointDistribution, got LogNormal"):
        joint_summary(lin, draws, key, joint=LAWS["lognormal"][0]())
    with pytest.raises(ValueError, match=r"event shape \(N_y,\) = \(2,\), got \(3,\)"):
        joint_summary(
            lin, draws, key, joint=GaussianCopulaJoint(dist.Normal(jnp.zeros(3), 1), jnp.eye(3))
        )
    copula = GaussianCopulaJoint(dist.Normal(jnp.zeros(3), 1), 0.5 + 0.5 * jnp.eye(3))
    with pytest.raises(ValueError, match="whose marginals have other means"):
        to_datatree(copula.condition(0, 1.0), draws)
    with pytest.raises(ValueError, match=r"shape \(n, ..., N_y\) = \(n, 4, 3\), got \(200, 3\)"):
        summary(copula.expand((4,)), np.zeros((200, 3)))
