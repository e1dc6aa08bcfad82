"""Supports of outputs: their ends, bijections onto them, where NUTS starts, bounds that move."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.diagnostics import effective_sample_size
from numpyro.distributions.transforms import biject_to
from numpyro.infer import MCMC, NUTS
from numpyro.infer.util import initialize_model

import nn_uq_dist as nuq

KEY = jax.random.key(0)
# Each with the ends of its support.
FAMILIES = {
    "gamma": (lambda: dist.Gamma(2.0, 1.0), 0, np.inf),
    "beta": (lambda: dist.Beta(2.0, 3.0), 0, 1),
    "truncated on the right": (lambda: dist.TruncatedNormal(0.0, 1.0, high=2.0), -np.inf, 2),
    "normal": (lambda: dist.Normal(0.0, 1.0), -np.inf, np.inf),
}


def moved(base):
    """By the map 2 x + 1."""
    knots = jnp.array([0.2, 0.5, 0.8])
    return nuq.distributions.CorrectedMarginal(base, knots, 2 * knots + 1, [2.0, 2.0, 2.0])


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_support_of_an_adapted_family(name):
    make, low, high = FAMILIES[name]
    distribution = moved(make())
    low, high = 2 * low + 1, 2 * high + 1
    support = distribution.support
    assert getattr(support, "lower_bound", -np.inf) == pytest.approx(low, abs=1e-6)
    assert getattr(support, "upper_bound", np.inf) == pytest.approx(high, abs=1e-6)
    assert support(distribution.sample(KEY, (100,))).all()
    reached = np.sort(biject_to(support)(jnp.array([-15.0, 0.0, 15.0])))
    assert reached[0] == pytest.approx(low, abs=1e-4) or (low == -np.inf and reached[0] < -10)
    assert reached[2] == pytest.approx(high, abs=1e-4) or (high == np.inf and reached[2] > 10)
    assert low < reached[1] < high

    def model():
        numpyro.sample("y", distribution)

    start = initialize_model(KEY, model).param_info
    assert np.isfinite(start.potential_energy)
    assert np.isfinite(start.z_grad["y"])


INPUT = nuq.Input.box(jnp.zeros(2), half_width=1.0)
LINEAR = nuq.Linearization([0.0, 1.0], [[1.0, 0.5], [0.3, -1.0]], INPUT)


def half_lines(scale):
    return dist.TruncatedNormal(jnp.zeros(2), 1.0, high=scale * jnp.array([1.0, 2.0]))


def scaled(scale):
    distribution = nuq.Input.box(jnp.zeros(2), half_width=scale * jnp.ones(2))
    return nuq.Linearization([0.0, 1.0], LINEAR.jacobian, distribution)


# Distributions of two outputs with bounds that depend on a scale.
MOVING = {
    "marginals as an event": lambda scale: scaled(scale).marginals().to_event(1),
    "joint": lambda scale: scaled(scale).joint(),
    "copula of half-lines below": lambda scale: nuq.GaussianCopulaJoint(
        half_lines(scale), jnp.eye(2)
    ),
    "half-lines as an event": lambda scale: nuq.distributions.as_output_distribution(
        half_lines(scale)
    ).to_event(1),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MOVING)
def test_bounds_of_a_latent_site_follow_other_sites(name):
    make = MOVING[name]

    def model():
        numpyro.sample("y", make(numpyro.sample("scale", dist.LogNormal(0.0, 0.5))))

    constrain = initialize_model(KEY, model).postprocess_fn
    for scale in (0.1, 10.0):
        for z in (-20.0, 0.3, 5.0):
            at = constrain({"scale": jnp.log(scale), "y": jnp.full(2, z)})["y"]
            expected = biject_to(make(scale).support)(jnp.full(2, z))
            np.testing.assert_allclose(at, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "distribution", [dist.Uniform(jnp.zeros(2), 2.0), dist.Pareto(np.full(2, 0.5), 3.0)]
)
def test_bijections_to_vector_supports(distribution):
    support = nuq.GaussianCopulaJoint(distribution, jnp.eye(2)).support
    transform = biject_to(support)
    assert transform.codomain.event_dim == 1
    z = jnp.array([[-2.0, 0.3], [1.0, 2.0]])
    y = transform(z)
    assert support(y).shape == (2,)
    assert support(y).all()
    np.testing.assert_array_equal(support(y.at[0, 1].set(-9.0)), [False, True])
    np.testing.assert_allclose(transform.inv(y), z, rtol=1e-4)
    slopes = jax.vmap(lambda z: jnp.linalg.slogdet(jax.jacobian(transform)(z))[1])(z)
    np.testing.assert_allclose(transform.log_abs_det_jacobian(z, y), slopes, rtol=1e-5)
    assert support(support.feasible_like(z)).all()


def test_a_parameter_with_an_axis_makes_no_outputs_without_a_word():
    # As when a latent site with three values is enumerated.
    scales, value = jnp.array([0.8, 1.0, 1.2]), jnp.array([0.9])
    box = nuq.Input.box([1.0], 0.5)
    inside = nuq.linearize(lambda x: jnp.array([scales * x[0]]), box)
    with pytest.raises(ValueError, match=r"got \(1,\); .* pass it as an input, such as dist.Delta"):
        inside.marginals().to_event(1).log_prob(value)
    parts = {"s": dist.Delta(scales[:, None]).to_event(1), "x": box}
    as_input = nuq.linearize(lambda part: part["s"] * part["x"], parts)
    found = as_input.marginals().to_event(1).log_prob(value)
    # Uniform on half a scale to one and a half.
    np.testing.assert_allclose(found, -np.log(scales), atol=1e-6)


@pytest.mark.slow
def test_nuts_agrees_with_importance_sampling_where_bounds_move():
    make, y = MOVING["marginals as an event"], jnp.array([0.8, 1.4])

    def model():
        distribution = make(numpyro.sample("scale", dist.LogNormal(0.0, 0.5)))
        numpyro.sample("y", dist.Normal(numpyro.sample("z", distribution), 0.3).to_event(1), obs=y)

    mcmc = MCMC(NUTS(model), num_warmup=300, num_samples=1000, progress_bar=False)
    mcmc.run(KEY)
    found = np.column_stack([mcmc.get_samples()[site] for site in ("scale", "z")])

    @jax.vmap
    def draw(key):
        keys = jax.random.split(key)
        scale = dist.LogNormal(0.0, 0.5).sample(keys[0])
        z = make(scale).sample(keys[1])
        return jnp.append(scale, z), dist.Normal(z, 0.3).log_prob(y).sum()

    draws, logs = map(np.asarray, draw(jax.random.split(jax.random.key(1), 100_000)))
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    mean = weights @ draws
    effective = np.array([effective_sample_size(column[None]) for column in found.T])
    error = np.sqrt(found.var(axis=0) / effective + weights**2 @ (draws - mean) ** 2)
    # Three numbers beyond four errors: once in 5,000.
    np.testing.assert_array_less(abs(found.mean(axis=0) - mean), 4 * error)
