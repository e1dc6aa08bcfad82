"""The table from the distributions alone: closed forms, draws of the linear model, messages."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats

import nn_uq_dist as nuq
from nn_uq_dist.diagnostics import table

pytestmark = pytest.mark.viz

LIN = nuq.Linearization([1.0, 5.0], [[1.0, 0.0], [1.0, 3.0]], nuq.Input.box([0.0, 0.0], 1.0))


def test_a_box_and_a_trapezoid():
    limits = {"y[0]": [1.5, -9.0], "y[1]": 7.0}
    found = table(LIN, limits=limits, quantiles=(0.05, 0.9))
    below = table(LIN, limits=limits, quantiles=(), upper=False)
    columns = ["mean", "sd", "q0.05", "q0.9", "P(> -9)", "P(> 1.5)", "P(> 7)"]
    assert found.columns.tolist() == columns
    assert below.columns.tolist() == ["mean", "sd", "P(< -9)", "P(< 1.5)", "P(< 7)"]
    found = found.join(below.iloc[:, 2:])
    distributions = scipy.stats.uniform(0, 2), scipy.stats.trapezoid(0.25, 0.75, 1, 8)
    limits = [-9.0, 1.5], [7.0]
    for (_, row), distribution, own in zip(found.iterrows(), distributions, limits, strict=True):
        expected = [distribution.mean(), distribution.std(), *distribution.ppf([0.05, 0.9])]
        np.testing.assert_allclose(row.iloc[:4], expected, rtol=2e-6)
        for limit in (-9.0, 1.5, 7.0):
            both = np.array([distribution.sf(limit), distribution.cdf(limit)])
            shown = row[[f"P(> {limit:g})", f"P(< {limit:g})"]].astype(float)
            np.testing.assert_allclose(shown, both if limit in own else both * np.nan, rtol=2e-6)


def test_a_corrected_model_is_that_of_the_network():
    f = nuq.Input.box(jnp.zeros((2, 1)), half_width=jnp.array([[1.0], [2]]))
    lin = nuq.linearize(jnp.exp, f)
    pairs = nuq.paired_draws(jnp.exp, lin, jax.random.key(0), 1000, points="sobol", progress=False)
    found = table(lin.corrected(pairs), limits=2.0, quantiles=(0.5,))
    exact = [(1 - np.log(2)) / 2, (2 - np.log(2)) / 4]
    np.testing.assert_allclose(found["P(> 2)"], exact, atol=0.01)
    assert (np.abs(found["P(> 2)"] - exact) < 4 * found["+- P(> 2)"]).all()
    assert (found["+- P(> 2)"] < 0.01).all()
    np.testing.assert_allclose(found["mean"], np.sinh([1, 2]) / [1, 2], rtol=0.01)
    np.testing.assert_allclose(found["q0.5"], 1, atol=0.03)
    # Fewer than one of the pairs lie beyond, or short of, these limits.
    far = table(lin.corrected(pairs), limits=[1e-9, 7.387], quantiles=(1e-4, 0.9999))
    unseen = [name for name in far if "+-" in name and name not in {"+- mean", "+- sd"}]
    assert np.isnan(far[unseen].to_numpy()).all()
    assert (far[["+- mean", "+- sd"]] < 0.1).to_numpy().all()


def test_distributions_of_any_kind():
    one = table(dist.Gumbel(1.0, 2.0), limits=6, quantiles=(0.95,), output_names=["level"])
    distribution = scipy.stats.gumbel_r(1, 2)
    expected = [distribution.mean(), distribution.std(), distribution.ppf(0.95), distribution.sf(6)]
    np.testing.assert_allclose(one.loc["level"], expected, rtol=1e-4)
    scale = jnp.array([[1.0, 2.0], [3.0, 4.0]])
    many = table(dist.Normal(0.0, scale), limits=3.0, upper=False)
    np.testing.assert_allclose(many["P(< 3)"], scipy.stats.norm.cdf(3 / scale.ravel()), rtol=1e-5)
    assert many.index.tolist() == [(0, "y[0]"), (0, "y[1]"), (1, "y[0]"), (1, "y[1]")]
    of_grid = table(dist.Normal(0.0, scale[:, None]))
    assert of_grid.index.names == ["point_0", "point_1", "output"]
    far = table(dist.Normal(jnp.zeros(1), 1.0), limits=12.0, quantiles=())
    np.testing.assert_allclose(far["P(> 12)"], scipy.stats.norm.sf(12), rtol=1e-4)
    tiny = table(dist.LogNormal(jnp.zeros(1), 0.5), limits=0.03, quantiles=(), upper=False)
    expected = scipy.stats.lognorm(0.5).cdf(0.03)  # 1e-12
    np.testing.assert_allclose(tiny["P(< 0.03)"], expected, rtol=1e-3)
    joint = table(LIN.joint(), quantiles=())
    np.testing.assert_allclose(joint["sd"], np.sqrt(LIN.variance), rtol=1e-5)


def fold(x):
    return x - x**3


def beyond_one(x):
    return jax.nn.relu(x - 1)


def finite_in_part(x):
    return jnp.where(x > 0.9, jnp.nan, x + 0.2 * x**2)


NORMAL, BOX = nuq.Input.normal(jnp.zeros(1), 1.0), nuq.Input.box(jnp.zeros(1), half_width=1.0)
PHI = scipy.stats.norm
HONEST = {
    # Of a fold and of a point mass no increasing map of the linear output has the distribution.
    "fold": (fold, NORMAL, 0.385, PHI.cdf(-1.1547338)),  # the one root of the cubic polynomial
    "point mass": (beyond_one, NORMAL, 0.25, PHI.sf(1.25)),
    # Of the finite outputs.
    "not finite": (finite_in_part, BOX, 0.5, 1 - ((0.35**0.5 - 0.5) / 0.2 + 1) / 1.9),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HONEST)
@pytest.mark.filterwarnings("ignore:.*NaN or infinite")
def test_errors_hold_where_the_correction_is_off(name):
    network, f, limit, exact = HONEST[name]
    lin = nuq.linearize(network, f)
    found = []
    for key in jax.random.split(jax.random.key(0), 12):
        pairs = nuq.paired_draws(network, lin, key, 200, progress=False)
        row = table(lin.corrected(pairs), limits=limit, quantiles=()).iloc[0]
        found.append(row[[f"P(> {limit:g})", f"+- P(> {limit:g})"]].to_list())
    share, error = np.array(found, float).T
    assert np.mean(np.abs(share - exact) < 2 * error) >= 10 / 12
    # Not larger than what is off, and the errors of as many plain draws.
    off = np.mean((share - exact) ** 2)
    assert np.mean(error**2) < 2 * (off + exact * (1 - exact) / 200)
