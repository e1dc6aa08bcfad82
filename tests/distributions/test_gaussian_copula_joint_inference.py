"""Joint laws in NumPyro models: bounds that are latent, reparametrization, mixtures, handlers."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import handlers
from numpyro.distributions import constraints
from numpyro.distributions.transforms import biject_to
from numpyro.infer import MCMC, NUTS, SVI, Predictive, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal
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


def latent_bound(law):
    def model():
        bound = numpyro.sample("bound", dist.LogNormal(0.0, 0.5))
        numpyro.sample("y", GaussianCopulaJoint(law(bound), MATRIX))

    return model


# Laws that lie above a latent bound, strictly or not.
ABOVE = {
    "pareto": lambda bound: dist.Pareto(bound * np.ones(2, np.float32), 3.0),
    "truncated": lambda bound: dist.TruncatedNormal(ZEROS, 1.0, low=bound),
}


def nuts_samples(model, num_samples=300):
    mcmc = MCMC(NUTS(model), num_warmup=150, num_samples=num_samples, progress_bar=False)
    mcmc.run(KEY)
    return {name: np.asarray(values) for name, values in mcmc.get_samples().items()}


def guide_samples(model, num_steps=200, num_samples=500):
    guide = AutoNormal(model)
    svi = SVI(model, guide, numpyro.optim.Adam(0.05), Trace_ELBO())
    result = svi.run(KEY, num_steps, progress_bar=False)
    # Some losses are infinite, a fifth to a third of them as rounding leads the path, with a single
    # `LinearizedMarginal` too: the guide transforms by the support of its first trace.
    assert np.isfinite(result.losses).mean() > 0.5
    draws = guide.sample_posterior(KEY, result.params, sample_shape=(num_samples,))
    return {name: np.asarray(values) for name, values in draws.items()}


@pytest.mark.parametrize("draw", [nuts_samples, guide_samples])
def test_bounds_that_are_latent(draw):
    samples = draw(latent_width)
    limit = REACH * samples["width"][:, None]
    assert (np.abs(samples["y"]) <= limit * (1 + 1e-6)).all()
    # y / width has the law of the weights alone, whatever the width is.
    scaled = samples["y"] / samples["width"][:, None]
    assert (abs(scaled.mean(axis=0)) < 0.4).all()
    deviation = np.sqrt((WEIGHTS**2).sum(-1) / 3)
    # An automatic guide takes the latents for independent, which makes it too narrow.
    narrowest = 0.6 if draw is nuts_samples else 0.3
    assert (scaled.std(axis=0) > narrowest * deviation).all()
    assert (scaled.std(axis=0) < 1.4 * deviation).all()


@pytest.mark.parametrize(("name", "draw"), [("pareto", nuts_samples), ("truncated", guide_samples)])
def test_lower_bounds_that_are_latent(name, draw):
    samples = draw(latent_bound(ABOVE[name]))
    assert (samples["y"] >= samples["bound"][:, None] * (1 - 1e-6)).all()


def test_reparametrization_to_normal_scores():
    model = handlers.reparam(latent_width, config={"y": TransformReparam()})
    trace = handlers.trace(handlers.seed(model, KEY)).get_trace()
    width, scores, y = (trace[name]["value"] for name in ("width", "y_base", "y"))
    assert isinstance(trace["y_base"]["fn"], dist.MultivariateNormal)
    law = joint_of_width(width)
    np.testing.assert_allclose(y, NormalScoreTransform(law.marginals)(scores), rtol=1e-6)
    # log p(y) = log p(z) - log |dy/dz|
    slope = NormalScoreTransform(law.marginals).log_abs_det_jacobian(scores, y)
    density = trace["y_base"]["fn"].log_prob(scores) - slope
    np.testing.assert_allclose(density, law.log_prob(y), rtol=1e-5, atol=1e-5)

    samples = nuts_samples(model, num_samples=200)
    assert (np.abs(samples["y"]) <= REACH * samples["width"][:, None] * (1 + 1e-6)).all()
    # Independent of the width and standard: five standard errors of 80 independent draws.
    assert (abs(samples["y_base"].mean(axis=0)) < 5 / np.sqrt(80)).all()


def test_learning_from_numpy_observations():
    """Observations are NumPy arrays, the bounds are traced."""
    observed = np.asarray(joint_of_width(0.5).sample(KEY, (50,)))

    def model():
        width = numpyro.sample("width", dist.Uniform(0.1, 3.0))
        with numpyro.plate("data", 50):
            numpyro.sample("y", joint_of_width(width), obs=observed)

    start = numpyro.infer.init_to_value(values={"width": 1.0})
    kernel = NUTS(model, init_strategy=start)
    mcmc = MCMC(kernel, num_warmup=100, num_samples=100, progress_bar=False)
    mcmc.run(KEY)
    width = mcmc.get_samples()["width"]
    assert (width >= (np.abs(observed) / REACH).max() * (1 - 1e-6)).all()
    assert abs(width.mean() - 0.5) < 0.1


def test_predictive_and_condition():
    def model():
        numpyro.sample("y", joint_of_width(numpyro.sample("width", dist.HalfNormal(1.0))))

    predicted = Predictive(model, {"width": jnp.array([0.1, 1.0, 9.0])})(KEY)["y"]
    assert predicted.shape == (3, 2)
    assert (np.abs(predicted) <= REACH * np.array([[0.1], [1.0], [9.0]])).all()
    value = jnp.array([0.2, 0.1])
    conditioned = handlers.condition(model, {"y": value, "width": jnp.array(1.0)})
    density, _ = numpyro.infer.util.log_density(conditioned, (), {}, {})
    expected = joint_of_width(1.0).log_prob(value) + dist.HalfNormal(1.0).log_prob(1.0)
    np.testing.assert_allclose(density, expected, rtol=1e-6)


def test_mixture_same_family_needs_a_fixed_support():
    probs = dist.Categorical(jnp.array([0.3, 0.7]))
    locs = np.array([[0.0, 1.0], [2.0, -1.0]], np.float32)
    mixture = dist.MixtureSameFamily(probs, GaussianCopulaJoint(dist.Normal(locs, 1.0), MATRIX))
    assert (mixture.batch_shape, mixture.event_shape) == ((), (2,))
    x = np.array([0.4, 0.2], np.float32)
    parts = [dist.MultivariateNormal(loc, MATRIX).log_prob(x) for loc in locs]
    density = 0.3 * np.exp(parts[0]) + 0.7 * np.exp(parts[1])
    np.testing.assert_allclose(np.exp(mixture.log_prob(x)), density, rtol=1e-5)
    assert mixture.sample(KEY, (5,)).shape == (5, 2)
    with pytest.raises(AssertionError, match="support that does not depend on"):
        dist.MixtureSameFamily(probs, GaussianCopulaJoint(dist.Uniform(locs, locs + 1.0), MATRIX))


def test_mixture_general_with_bounds_of_each_component():
    # Without validation: each component sees values that only the other can take.
    components = [
        GaussianCopulaJoint(dist.Uniform(low * np.ones(2), low + 2.0), MATRIX, validate_args=False)
        for low in (-1.0, 0.0)
    ]
    mixture = dist.MixtureGeneral(
        dist.Categorical(jnp.array([0.3, 0.7])), components, support=constraints.real_vector
    )
    x = np.array([[-0.5, -0.5], [0.5, 0.5], [1.5, 0.2]])
    densities = [np.exp(component.log_prob(x)) for component in components]
    assert densities[0][2] == densities[1][0] == 0
    expected = 0.3 * densities[0] + 0.7 * densities[1]
    np.testing.assert_allclose(np.exp(mixture.log_prob(x)), expected, rtol=1e-5)
    assert mixture.sample(KEY, (5,)).shape == (5, 2)


@pytest.mark.parametrize("law", [dist.Uniform(ZEROS, 2.0), *[law(0.5) for law in ABOVE.values()]])
def test_bijections_to_vector_supports(law):
    support = GaussianCopulaJoint(law, MATRIX).support
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
