"""Uses in NumPyro models beyond latent and observed sites: loops, chains, samplers, plates, guides.

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
from numpyro.distributions import constraints
from numpyro.infer.inspect import get_dependencies
from numpyro.infer.reparam import TransformReparam
from numpyro.infer.util import log_density
from scipy import stats

import nn_uq_dist as nuq
from nn_uq_dist import Input, Linearization, LinearizedMarginal

KEY = jax.random.key(0)
WEIGHTS = np.array([1.0, 0.5], np.float32)
JACOBIAN = np.array([[1.0, 0.5], [0.7, -0.2]], np.float32)
ROWS = np.array([[0.2, 0.1], [-0.9, 0.3], [0.5, -0.4], [1.1, 0.6]], np.float32)


def trapezoid(loc=0.0, weights=WEIGHTS):
    """SciPy's distribution of ``loc + w_1 U_1 + w_2 U_2``."""
    reach, flat = np.abs(weights).sum(), abs(abs(weights[0]) - abs(weights[1]))
    rise = (reach - flat) / (2 * reach)
    return stats.trapezoid(rise, 1 - rise, loc=loc - reach, scale=2 * reach)


def joint_distribution(width=1.0, noise_scale=None):
    linear = Linearization(np.zeros(2), JACOBIAN, Input.box(np.zeros(2), half_width=width))
    return linear.gaussian_copula(noise_scale, min_eigenvalue=None)


def run_mcmc(kernel, num_warmup, num_samples, *args, **kwargs):
    lengths = {"num_warmup": num_warmup, "num_samples": num_samples}
    mcmc = mc.MCMC(kernel, **lengths, progress_bar=False, **kwargs)
    mcmc.run(KEY, *args)
    return mcmc.get_samples()


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


def noisy_reading():
    x = numpyro.sample("x", LinearizedMarginal(0.0, WEIGHTS))
    numpyro.sample("y", dist.Normal(x, 0.5), obs=1.2)


def reading_in_a_plate(size=4):
    x = numpyro.sample("x", dist.Normal(0.0, 1.0))
    with numpyro.plate("data", 4, subsample_size=size):
        y = numpyro.subsample(ROWS[:, 0], event_dim=0)
        numpyro.sample("y", LinearizedMarginal(x, 2 * WEIGHTS), obs=y)


def unknown_component():
    k = numpyro.sample("x", dist.Categorical(jnp.array([0.3, 0.7])))
    numpyro.sample("u", dist.Normal(0.0, 1.0))  # the inner kernel wants a continuous site
    numpyro.sample("y", LinearizedMarginal(jnp.array([-1.0, 2.0])[k], 2 * WEIGHTS), obs=0.4)


X_GRID = np.linspace(-4, 4, 4001)
X_PRIOR, Y_LAW = trapezoid(), trapezoid(weights=2 * WEIGHTS)
POSTERIORS = {
    noisy_reading: (X_GRID, X_PRIOR.pdf(X_GRID) * stats.norm(X_GRID, 0.5).pdf(1.2)),
    reading_in_a_plate: (
        X_GRID,
        stats.norm.pdf(X_GRID) * Y_LAW.pdf(ROWS[:, 0] - X_GRID[:, None]).prod(-1),
    ),
    unknown_component: (np.arange(2), np.array([0.3, 0.7]) * Y_LAW.pdf([1.4, -1.6])),
}
SIDE_BY_SIDE = {"num_chains": 20, "chain_method": "vectorized"}
SAMPLERS = {
    "AIES": (noisy_reading, mc.AIES, (200, 200), SIDE_BY_SIDE),
    "SA": (noisy_reading, mc.SA, (2000, 4000), {}),
    "HMCECS": (reading_in_a_plate, lambda m: mc.HMCECS(mc.NUTS(lambda: m(2))), (100, 600), {}),
    "Gibbs": (unknown_component, lambda m: mc.DiscreteHMCGibbs(mc.NUTS(m)), (50, 500), {}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLERS)
def test_other_samplers(name):
    model, kernel, lengths, chains = SAMPLERS[name]
    samples = np.asarray(run_mcmc(kernel(model), *lengths, **chains)["x"])
    values, weights = POSTERIORS[model]
    mean = np.average(values, weights=weights)
    deviation = np.sqrt(np.average((values - mean) ** 2, weights=weights))
    # Each run holds at least 100 independent draws: five standard errors of those.
    assert abs(samples.mean() - mean) < 5 * deviation / np.sqrt(100)
    assert 0.7 < samples.std() / deviation < 1.3


@pytest.mark.slow
def test_as_an_svi_guide():
    # The family holds the posterior, Normal(0.8, sqrt(0.2)), as the distribution with no weights.
    def model():
        x = numpyro.sample("x", dist.Normal(0.0, 1.0))
        numpyro.sample("y", dist.Normal(x, 0.5), obs=1.0)

    def guide():
        loc = numpyro.param("loc", 0.0)
        weights = numpyro.param("weights", jnp.array([0.8]))
        scale = numpyro.param("scale", 1.0, constraint=constraints.positive)
        numpyro.sample("x", LinearizedMarginal(loc, weights, scale))

    svi = mc.SVI(
        model, guide, numpyro.optim.Adam(lambda i: 0.05 * 0.99**i), mc.Trace_ELBO(num_particles=8)
    )
    result = svi.run(KEY, 300, progress_bar=False)
    evidence = stats.norm(0.0, np.sqrt(1.25)).logpdf(1.0)
    np.testing.assert_allclose(-result.losses[-50:].mean(), evidence, atol=0.02)
    found = result.params
    found = LinearizedMarginal(found["loc"], found["weights"], found["scale"])
    np.testing.assert_allclose(found.mean, 0.8, atol=0.05)
    np.testing.assert_allclose(found.variance, 0.2, rtol=0.2)


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
def test_parallel_prediction_likelihood_and_dependencies():
    widths = jnp.array([0.5, 1.0, 2.0])

    def model(y=None):
        width = numpyro.sample("width", dist.HalfNormal(1.0))
        x = numpyro.sample("x", joint_distribution(width))
        numpyro.sample("y", LinearizedMarginal(x, 2 * WEIGHTS).to_event(1), obs=y)

    draws = mc.Predictive(model, {"width": widths}, parallel=True)(KEY)
    assert (np.abs(draws["x"]) <= widths[:, None] * np.abs(JACOBIAN).sum(-1)).all()
    assert draws["y"].shape == (3, 2)
    posterior = {"width": widths, "x": draws["x"]}
    for parallel in (False, True):
        found = mc.log_likelihood(model, posterior, ROWS[0], parallel=parallel)["y"]
        expected = Y_LAW.logpdf(ROWS[0] - np.asarray(draws["x"])).sum(-1)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert set(get_dependencies(model, (ROWS[0],))["prior_dependencies"]["y"]) == {"x", "y"}


def test_states_of_a_network_in_front_of_the_observations():
    # As enumeration puts them: an axis to the left of the plate.
    gains, y = jnp.array([0.7, 1.6]), jnp.array([0.2, -0.4, 0.9])
    measured = jnp.array([[0.1], [-0.3], [0.5]])

    def outputs(gain, x):
        f = {"gain": dist.Delta(gain[..., None]).to_event(1), "x": Input.box(x, half_width=0.2)}
        linear = nuq.linearize(lambda v: v["gain"] * jnp.sinh(v["x"]), f)
        return linear.marginals(noise_scale=0.1)[..., 0]

    all_states = outputs(gains[:, None] + jnp.zeros(3), jnp.stack([measured, measured]))
    each = [outputs(jnp.full(3, gain), measured).log_prob(y) for gain in gains]
    np.testing.assert_allclose(all_states.log_prob(y), each, rtol=1e-5)


def test_missing_values_of_single_outputs():
    m, seen = LinearizedMarginal(jnp.zeros(3), WEIGHTS, 0.1), np.array([True, False, True])
    values = jnp.array([0.1, 9.0, 0.3])

    def model():
        with numpyro.plate("observations", 3):
            numpyro.sample("y", m, obs=values, obs_mask=seen)

    density, trace = log_density(handlers.seed(model, 0), (), {}, {"y_unobserved": jnp.zeros(3)})
    assert set(trace) >= {"y_observed", "y_unobserved"}
    expected = m.log_prob(values)[seen].sum() + m.log_prob(jnp.zeros(3))[~seen].sum()
    np.testing.assert_allclose(density, expected, rtol=1e-5)


@pytest.mark.slow
def test_scan_under_nuts():
    samples = np.asarray(run_mcmc(mc.NUTS(state_space), 100, 200, OBSERVED)["x"])
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
