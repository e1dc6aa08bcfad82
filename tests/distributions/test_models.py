"""Uses in NumPyro models beyond latent and observed sites: loops, chains, plates, guides.

The references are SciPy's: two weights make a trapezoid, one weight and a normal part a difference
of normal distribution functions, and posteriors of few dimensions are sums over grids.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro import infer as mc
from numpyro.contrib.control_flow import scan
from numpyro.infer.reparam import TransformReparam
from numpyro.infer.util import log_density
from scipy import stats

from nn_uq_dist import Input, Linearization, LinearizedMarginal

KEY = jax.random.key(0)
WEIGHTS = np.array([1.0, 0.5], np.float32)
JACOBIAN = np.array([[1.0, 0.5], [0.7, -0.2]], np.float32)


def trapezoid(loc=0.0, weights=WEIGHTS):
    """SciPy's distribution of ``loc + w_1 U_1 + w_2 U_2``."""
    reach, flat = np.abs(weights).sum(), abs(abs(weights[0]) - abs(weights[1]))
    rise = (reach - flat) / (2 * reach)
    return stats.trapezoid(rise, 1 - rise, loc=loc - reach, scale=2 * reach)


def joint_distribution(width=1.0, noise_scale=None):
    linear = Linearization(np.zeros(2), JACOBIAN, Input.box(np.zeros(2), half_width=width))
    return linear.gaussian_copula(noise_scale, min_eigenvalue=None)


# A state-space model: its prior is a distribution whose bounds depend on the state before.
OBSERVED = np.array([0.4, 1.6, -0.3], np.float32)


def state_space(y=None):
    def step(state, y):
        state = numpyro.sample("x", LinearizedMarginal(0.8 * state, WEIGHTS))
        numpyro.sample("y", dist.Normal(state, 0.5), obs=y)
        return state, None

    scan(step, 0.0, y, length=3)


def test_scan_prior_and_density():
    states = np.asarray(mc.Predictive(state_space, num_samples=50)(KEY)["x"])
    before = 0.8 * np.pad(states, ((0, 0), (1, 0)))[:, :-1]
    assert (np.abs(states - before) <= 1.5 + 1e-6).all()
    assert np.abs(states[:, 2]).max() > 1.5
    path = np.array([0.9, -0.4, 1.0], np.float32)
    value, _ = log_density(state_space, (OBSERVED,), {}, {"x": jnp.asarray(path)})
    steps = path - 0.8 * np.array([0.0, 0.9, -0.4])
    expected = trapezoid().logpdf(steps) + stats.norm(path, 0.5).logpdf(OBSERVED)
    np.testing.assert_allclose(value, expected.sum(), rtol=1e-5)


def test_reparametrized_joint_in_a_plate():
    def model():
        width = numpyro.sample("width", dist.HalfNormal(1.0))
        with numpyro.plate("rows", 3):
            numpyro.sample("y", joint_distribution(width))

    reparametrized = handlers.reparam(model, config={"y": TransformReparam()})
    scores = np.array([[0.3, -1.0], [2.0, 0.5], [-0.4, 0.1]], np.float32)
    values = {"width": jnp.array(0.5), "y_base": scores}
    density, trace = log_density(reparametrized, (), {}, values)
    below = stats.norm.cdf(scores)
    expected = [trapezoid(weights=0.5 * JACOBIAN[j]).ppf(below[:, j]) for j in range(2)]
    expected = np.transpose(expected)
    np.testing.assert_allclose(trace["y"]["value"], expected, rtol=1e-4)
    matrix = np.asarray(joint_distribution(0.5).correlation_matrix, float)
    base = stats.multivariate_normal(cov=matrix).logpdf(scores).sum()
    np.testing.assert_allclose(density, base + stats.halfnorm.logpdf(0.5), rtol=1e-5)


def chain_of_distributions(width):
    x = numpyro.sample("x", joint_distribution(width))
    y = numpyro.sample("y", LinearizedMarginal(x[0], WEIGHTS))
    numpyro.sample("z", dist.Normal(y, 0.1), obs=0.3)


@pytest.mark.slow
def test_initial_values():
    def start(key, width):
        seeded = handlers.seed(chain_of_distributions, key)
        model = handlers.substitute(seeded, substitute_fn=mc.init_to_uniform)
        trace = handlers.trace(model).get_trace(width)
        values = {name: trace[name]["value"] for name in ("x", "y")}
        return values["x"], log_density(chain_of_distributions, (width,), {}, values)[0]

    widths = jnp.repeat(jnp.array([1e-4, 0.1, 1.0, 30.0]), 8)
    x, densities = jax.vmap(start)(jax.random.split(KEY, 32), widths)
    assert np.isfinite(densities).all()
    assert (np.abs(x) <= widths[:, None] * np.abs(JACOBIAN).sum(-1) * (1 + 1e-6)).all()


@pytest.mark.slow
def test_scan_under_nuts():
    mcmc = mc.MCMC(mc.NUTS(state_space), num_warmup=100, num_samples=200, progress_bar=False)
    mcmc.run(KEY, OBSERVED)
    samples = np.asarray(mcmc.get_samples()["x"])
    # The posterior on a grid of the steps, which are independent before there are data.
    grid = (np.arange(60) + 0.5) / 20 - 1.5
    steps = np.stack(np.meshgrid(grid, grid, grid, indexing="ij"), axis=-1).reshape(-1, 3)
    states = steps @ np.array([[1.0, 0.8, 0.64], [0.0, 1.0, 0.8], [0.0, 0.0, 1.0]])
    weights = trapezoid().pdf(steps).prod(-1) * stats.norm(states, 0.5).pdf(OBSERVED).prod(-1)
    mean = np.average(states, axis=0, weights=weights)
    deviation = np.sqrt(np.average((states - mean) ** 2, axis=0, weights=weights))
    # 200 draws hold at least 80 independent ones here: five standard errors of those.
    assert (np.abs(samples.mean(0) - mean) < 5 * deviation / np.sqrt(80)).all()
    np.testing.assert_allclose(samples.std(0), deviation, rtol=0.4)
