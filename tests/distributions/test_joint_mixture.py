"""`JointMixture` against mixtures of multivariate normals, quadrature and draws."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats
from numpyro.distributions import constraints
from numpyro.distributions.batch_util import promote_batch_shape

import nn_uq_dist as nuq
from nn_uq_dist import LinearizedJoint
from nn_uq_dist.distributions import JointMixture
from tests.box_gaussian.references import by_quadrature
from tests.compiling import evaluate

KEY = jax.random.key(4)
SHARES = np.array([0.2, 0.5, 0.3])
LOC = np.array([[-1.0, 0.0], [0.5, 1.0], [2.0, -1.0]])
WEIGHTS = np.random.default_rng(1).uniform(-0.8, 0.8, (3, 2, 3))
COVARIANCE = np.array([[0.3, 0.1], [0.1, 0.2]]) * np.array([1.0, 0.5, 2.0])[:, None, None]


def make(**kwargs):
    return JointMixture(LinearizedJoint(LOC, WEIGHTS, COVARIANCE), SHARES, **kwargs)


def normals():
    """Components without a uniform part: everything has a closed form."""
    return JointMixture(LinearizedJoint(LOC, np.zeros((3, 2, 1)), COVARIANCE), SHARES)


def bounded(**kwargs):
    return JointMixture(LinearizedJoint(LOC, WEIGHTS), SHARES, **kwargs)


def reference_density(value):
    laws = [scipy.stats.multivariate_normal(m, c) for m, c in zip(LOC, COVARIANCE, strict=True)]
    return sum(p * law.pdf(value) for p, law in zip(SHARES, laws, strict=True))


@pytest.mark.slow
def test_normals_against_scipy(precision):
    values = np.random.default_rng(0).normal(size=(40, 2)).astype(precision)
    found = normals().log_prob(values)
    assert found.dtype == precision
    expected = np.log(reference_density(values.astype(float)))
    np.testing.assert_allclose(found, expected, rtol=1e-9 if precision == "float64" else 2e-4)


@pytest.mark.slow
def test_density_against_quadrature(x64):
    law = make()
    values = np.asarray(law.sample(KEY, (6,)))
    for value, found in zip(values, law.log_prob(values), strict=True):
        parts = [
            np.exp(by_quadrature(value - m, w, c, 60))
            for m, w, c in zip(LOC, WEIGHTS, COVARIANCE, strict=True)
        ]
        np.testing.assert_allclose(found, np.log(SHARES @ parts), atol=0.02)


@pytest.mark.slow
def test_density_integrates_to_one(x64):
    """On a grid of a smooth law: its error is that of the density, expectation propagation."""
    axis = np.linspace(-7, 8, 241)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1)
    cell = (axis[1] - axis[0]) ** 2
    assert abs(np.exp(normals().log_prob(grid)).sum() * cell - 1) < 1e-6
    assert abs(np.exp(make().log_prob(grid)).sum() * cell - 1) < 5e-3


@pytest.mark.slow
def test_moments_and_draws_agree():
    for law in (make(), bounded()):
        draws = np.asarray(law.sample(KEY, (60_000,)))
        error = 5 * np.sqrt(np.asarray(law.variance) / len(draws))
        assert (np.abs(draws.mean(0) - law.mean) < error).all()
        scale = np.sqrt(np.asarray(law.variance))
        difference = np.cov(draws.T) - law.covariance_matrix
        assert (np.abs(difference / scale / scale[:, None]) < 0.02).all()
        np.testing.assert_allclose(np.diagonal(law.covariance_matrix), law.variance, rtol=1e-5)


@pytest.mark.slow
def test_marginals_are_exact(x64):
    law, values = make(), np.linspace(-2, 3, 6)
    nodes, rule = np.polynomial.legendre.leggauss(200)
    for output in (0, 1):
        for value in values:
            pairs = np.insert((7 * nodes)[:, None], output, value, axis=1)
            integral = 7 * rule @ np.exp(law.log_prob(pairs))
            found = np.exp(law.marginals[..., [output]].log_prob(value))
            np.testing.assert_allclose(found, integral, rtol=0.02)
    assert law.marginals.batch_shape == (2,)
    assert isinstance(law.marginals, nuq.distributions.OutputMixture)


@pytest.mark.slow
def test_marginalize(x64):
    law, value = make(), np.array([0.3, -0.2])
    np.testing.assert_allclose(
        law.marginalize((1, 0)).log_prob(value[::-1]), law.log_prob(value), rtol=1e-9
    )
    assert law.marginalize(1).event_shape == (1,)


@pytest.mark.slow
def test_rosenblatt_against_closed_forms(x64):
    law = normals()
    values = np.random.default_rng(2).normal(size=(20, 2)) * 1.5
    scores = np.asarray(law.rosenblatt(values))
    first = [scipy.stats.norm(m[0], c[0, 0] ** 0.5) for m, c in zip(LOC, COVARIANCE, strict=True)]
    expected = SHARES @ [part.cdf(values[:, 0]) for part in first]
    np.testing.assert_allclose(scipy.stats.norm.cdf(scores[:, 0]), expected, rtol=1e-9)
    shares = SHARES[:, None] * np.array([part.pdf(values[:, 0]) for part in first])
    below = np.zeros(len(values))
    for share, m, c in zip(shares, LOC, COVARIANCE, strict=True):
        mean = m[1] + c[0, 1] / c[0, 0] * (values[:, 0] - m[0])
        scale = np.sqrt(c[1, 1] - c[0, 1] ** 2 / c[0, 0])
        below += share * scipy.stats.norm.cdf((values[:, 1] - mean) / scale)
    np.testing.assert_allclose(
        scipy.stats.norm.cdf(scores[:, 1]), below / shares.sum(0), rtol=1e-4, atol=1e-6
    )


@pytest.mark.slow
def test_rosenblatt_of_draws_is_standard_normal():
    for law in (make(), bounded()):
        scores = np.asarray(law.rosenblatt(law.sample(KEY, (400,))))
        assert np.isfinite(scores).all()
        for column in scores.T:
            assert scipy.stats.kstest(column, "norm").pvalue > 1e-3
        assert abs(np.corrcoef(scores.T)[0, 1]) < 0.2


@pytest.mark.slow
def test_bounded_support():
    law = bounded(validate_args=False)
    low, high = law.marginals.bounds
    assert law.log_prob(jnp.stack([low - 1, high + 1])).tolist() == [-np.inf, -np.inf]
    assert law.support(law.mean)
    assert not law.support(high + 1)
    assert make().support is constraints.real_vector
    assert law.kind == "mixture"


@pytest.mark.slow
def test_gradients_against_differences(x64):
    value = np.array([0.2, 0.1])

    @jax.jit
    def log_prob(parameters):
        loc, shares, value = parameters
        return JointMixture(LinearizedJoint(loc, WEIGHTS, COVARIANCE), shares).log_prob(value)

    parameters = (LOC, SHARES, value)
    found = jax.jit(jax.grad(log_prob))(parameters)
    for i, part in enumerate(parameters):
        for place in np.ndindex(part.shape):
            ends = []
            for step in (1e-5, -1e-5):
                moved = part.copy()
                moved[place] += step
                ends.append(log_prob((*parameters[:i], moved, *parameters[i + 1 :])))
            np.testing.assert_allclose(
                found[i][place], (ends[0] - ends[1]) / 2e-5, rtol=1e-3, atol=1e-5
            )


@pytest.mark.slow
def test_one_component_and_their_order(x64):
    value = np.array([[0.2, 0.1], [-1.0, 0.5]])
    base = LinearizedJoint(LOC[0], WEIGHTS[0], COVARIANCE[0])
    one = JointMixture(base.expand((1,)), [1.0])
    np.testing.assert_allclose(one.log_prob(value), base.log_prob(value), rtol=1e-10)
    np.testing.assert_allclose(one.rosenblatt(value), base.rosenblatt(value), rtol=1e-8)
    order = np.array([2, 0, 1])
    parts = LinearizedJoint(LOC[order], WEIGHTS[order], COVARIANCE[order])
    other = JointMixture(parts, SHARES[order])
    np.testing.assert_allclose(other.log_prob(value), make().log_prob(value), rtol=1e-10)


@pytest.mark.slow
def test_batches_pytree_and_trace():
    parts = LinearizedJoint(np.stack([LOC, -LOC]), WEIGHTS, COVARIANCE)
    law = JointMixture(parts, SHARES)
    assert (law.batch_shape, law.event_shape) == ((2,), (2,))
    draws = law.sample(KEY, (4,))
    assert draws.shape == (4, 2, 2)
    assert law.log_prob(draws).shape == (4, 2)
    assert law.covariance_matrix.shape == (2, 2, 2)
    assert law.rosenblatt(draws).shape == (4, 2, 2)
    assert law.expand((3, 2)).log_prob(draws[0]).shape == (3, 2)
    want = law.log_prob(draws)
    np.testing.assert_allclose(evaluate(law, "log_prob", draws), want, rtol=1e-5)
    for back in (
        pickle.loads(pickle.dumps(law)),  # noqa: S301 (our own)
        promote_batch_shape(law),
    ):
        np.testing.assert_allclose(back.log_prob(draws), want, rtol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((dist.Normal(LOC, 1.0), SHARES), TypeError, "must be a LinearizedJoint"),
        ((LinearizedJoint(LOC[0], WEIGHTS[0]), [1.0]), ValueError, "same last batch axis"),
        ((LinearizedJoint(LOC, WEIGHTS), [0.5, 0.5]), ValueError, "same last batch axis"),
        ((LinearizedJoint(LOC, WEIGHTS), [0.5, 0.6, 0.5]), ValueError, "probabilities"),
    ],
)
def test_mistakes(arguments, error, message):
    with pytest.raises(error, match=message):
        JointMixture(*arguments, validate_args=True)


@pytest.mark.slow
def test_component_that_fails_at_its_edge_hides_no_other():
    weights = np.array([[0.8, -0.5, 0.3, 0.4], [0.2, 0.7, -0.6, 0.3]])
    loc = np.array([[-0.5, 0.2], [0.8, -0.4]])
    parts = LinearizedJoint(loc, np.stack([weights[:, :3], weights[:, 1:]]))
    law = JointMixture(parts, [0.3, 0.7])
    value = np.array([0.6661434769630432, -0.03246891498565674])
    with jax.enable_x64(True):
        known = law.log_prob(value)
    np.testing.assert_allclose(law.log_prob(value.astype(np.float32)), known, atol=0.02)
    slope = jax.grad(law.log_prob)(jnp.asarray(value, jnp.float32))
    assert jnp.isfinite(slope).all()
