"""Joint distributions in NumPyro models: bounds that are latent, reparametrization, bijections."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.distributions.transforms import biject_to
from numpyro.infer import MCMC, NUTS
from numpyro.infer.reparam import TransformReparam

from nn_uq_dist import GaussianCopulaJoint, LinearizedMarginal
from nn_uq_dist.distributions import NormalScoreTransform

pytestmark = pytest.mark.slow

KEY = jax.random.key(0)
WEIGHTS = np.array([[1.0, 0.5], [0.7, 0.4]], np.float32)
REACH = np.abs(WEIGHTS).sum(-1)
MATRIX = np.array([[1.0, 0.6], [0.6, 1.0]], np.float32)
ZEROS = np.zeros(2, np.float32)


def joint_of_width(width):
    return GaussianCopulaJoint(LinearizedMarginal(ZEROS, width * WEIGHTS), MATRIX)


def latent_width():
    width = numpyro.sample("width", dist.HalfNormal(1.0))
    numpyro.sample("y", joint_of_width(width))


def nuts_samples(model, num_samples=300):
    mcmc = MCMC(NUTS(model), num_warmup=150, num_samples=num_samples, progress_bar=False)
    mcmc.run(KEY)
    return {name: np.asarray(values) for name, values in mcmc.get_samples().items()}


def test_bounds_that_are_latent():
    samples = nuts_samples(latent_width)
    limit = REACH * samples["width"][:, None]
    assert (np.abs(samples["y"]) <= limit * (1 + 1e-6)).all()
    # y / width has the distribution of the weights alone, whatever the width is.
    scaled = samples["y"] / samples["width"][:, None]
    assert (abs(scaled.mean(axis=0)) < 0.4).all()
    deviation = np.sqrt((WEIGHTS**2).sum(-1) / 3)
    assert (scaled.std(axis=0) > 0.6 * deviation).all()
    assert (scaled.std(axis=0) < 1.4 * deviation).all()


def test_reparametrization_to_normal_scores():
    model = handlers.reparam(latent_width, config={"y": TransformReparam()})
    trace = handlers.trace(handlers.seed(model, KEY)).get_trace()
    width, scores, y = (trace[name]["value"] for name in ("width", "y_base", "y"))
    assert isinstance(trace["y_base"]["fn"], dist.MultivariateNormal)
    distribution = joint_of_width(width)
    np.testing.assert_allclose(y, NormalScoreTransform(distribution.marginals)(scores), rtol=1e-6)
    # log p(y) = log p(z) - log |dy/dz|
    slope = NormalScoreTransform(distribution.marginals).log_abs_det_jacobian(scores, y)
    density = trace["y_base"]["fn"].log_prob(scores) - slope
    np.testing.assert_allclose(density, distribution.log_prob(y), rtol=1e-5, atol=1e-5)

    samples = nuts_samples(model, num_samples=200)
    assert (np.abs(samples["y"]) <= REACH * samples["width"][:, None] * (1 + 1e-6)).all()
    # Independent of the width and standard: five standard errors of 80 independent draws.
    assert (abs(samples["y_base"].mean(axis=0)) < 5 / np.sqrt(80)).all()


@pytest.mark.parametrize(
    "distribution", [dist.Uniform(ZEROS, 2.0), dist.Pareto(np.full(2, 0.5), 3.0)]
)
def test_bijections_to_vector_supports(distribution):
    support = GaussianCopulaJoint(distribution, MATRIX).support
    assert repr(support).startswith("MovingSupport")
    assert support.event_dim == 1
    transform = biject_to(support)
    z = jnp.array([[-2.0, 0.3], [1.0, 2.0]])
    y = transform(z)
    assert support(y).shape == (2,)
    assert support(y).all()
    np.testing.assert_array_equal(support(y.at[0, 1].set(-9.0)), [False, True])
    np.testing.assert_allclose(transform.inv(y), z, rtol=1e-4)
    slopes = jax.vmap(lambda z: jnp.linalg.slogdet(jax.jacobian(transform)(z))[1])(z)
    np.testing.assert_allclose(transform.log_abs_det_jacobian(z, y), slopes, rtol=1e-5)
    assert support(support.feasible_like(z)).all()
    shifted = jax.jit(lambda s: jax.tree.map(lambda bound: bound + 1.0, s))(support)
    assert type(shifted) is type(support)
    np.testing.assert_allclose(shifted.lower_bound, np.add(support.lower_bound, 1.0))


def test_transform():
    marginals = LinearizedMarginal(ZEROS, WEIGHTS)
    transform = NormalScoreTransform(marginals)
    assert (transform.domain.event_dim, transform.codomain.event_dim) == (1, 1)
    assert transform.forward_shape((5, 2)) == transform.inverse_shape((5, 2)) == (5, 2)
    assert transform.forward_shape((5, 1)) == (5, 2)
    z = jnp.array([[-2.0, 0.3], [1.0, 2.0]])
    y = transform(z)
    np.testing.assert_allclose(transform.inv(y), z, rtol=1e-4)
    slopes = jax.vmap(lambda z: jnp.linalg.slogdet(jax.jacobian(transform)(z))[1])(z)
    np.testing.assert_allclose(transform.log_abs_det_jacobian(z, y), slopes, rtol=1e-4)
    np.testing.assert_allclose(jax.jit(lambda t, z: t(z))(transform, z), y, rtol=1e-5)
    assert transform == NormalScoreTransform(LinearizedMarginal(ZEROS, WEIGHTS))
    assert transform != NormalScoreTransform(LinearizedMarginal(ZEROS, 2 * WEIGHTS))
    assert transform != NormalScoreTransform(dist.Normal(ZEROS, 1.0))
