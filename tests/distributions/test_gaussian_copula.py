"""`GaussianCopulaJoint` and its conditionals: values and derivatives by other methods, errors."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.special
import scipy.stats
from jax.test_util import check_grads
from numpyro.distributions.transforms import ExpTransform

from nn_uq_dist import GaussianCopulaJoint, LinearizedMarginal
from tests.compiling import evaluate

KEY = jax.random.key(5)
LOC = np.array([0.3, -1.2, 0.7])
WEIGHTS = np.array([[1.0, 0.5, -0.3], [0.2, 0.9, 0.4], [0.6, 0.6, 0.1]])
R3 = np.array([[1.0, 0.7, -0.4], [0.7, 1.0, 0.1], [-0.4, 0.1, 1.0]])


def equicorrelated(size, rho):
    return np.full((size, size), rho) + (1 - rho) * np.eye(size)


def normal(size=3):
    """Normal marginals: the joint is a multivariate normal, which has closed forms."""
    loc, scale = np.linspace(-1, 2, size), np.linspace(0.5, 2, size)
    matrix = R3[:size, :size]
    joint = GaussianCopulaJoint(dist.Normal(jnp.array(loc), jnp.array(scale)), matrix)
    return joint, loc, matrix * np.outer(scale, scale)


def corner(deviation, weights):
    """Scores and log densities of two weights within twice the smaller one of the edge."""
    gap = np.float64(np.abs(weights).sum(-1) - np.abs(deviation))
    product = np.abs(np.prod(weights, axis=-1, dtype=float))
    score = -scipy.special.ndtri_exp(2 * np.log(gap) - np.log(8 * product))
    return np.float64(np.sign(deviation)) * score, np.log(gap / (4 * product))


def test_tails_against_exact_scores(precision):
    loc = np.array([0.25, -1.0, 0.625], precision)
    weights = np.array([[1.0, 0.75], [0.5, -0.5], [0.625, 0.5]], precision)
    scores = np.array([[6, 6, 6], [8, 8, -8], [-8, 5, 3], [6, -6, 2]], precision)
    if precision == "float32":  # which resolves no score of 8 at the edge of two weights
        scores *= 0.85
    rhos = (0.0, 0.5, 0.9, -0.45)
    matrices = np.array([equicorrelated(3, rho) for rho in rhos], precision)
    marginals = LinearizedMarginal(loc, weights)
    # What is stored is what is tested.
    values = np.asarray(marginals.from_normal_score(scores))
    found = GaussianCopulaJoint(marginals, matrices).log_prob(values[:, None])
    assert found.dtype == precision
    z, separate = corner(values.astype(np.longdouble) - loc, weights)
    separate = (separate - scipy.stats.norm.logpdf(z)).sum(axis=-1)
    normals = [scipy.stats.multivariate_normal(cov=np.float64(matrix)) for matrix in matrices]
    expected = np.stack([separate + normal.logpdf(z) for normal in normals], axis=-1)
    tolerance = {"float32": 1e-4, "float64": 1e-9}[precision]
    np.testing.assert_allclose(found, expected, rtol=tolerance)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_normal_marginals_give_the_multivariate_normal():
    joint, mean, covariance = normal()
    distribution = scipy.stats.multivariate_normal(mean, covariance)
    points = np.concatenate([distribution.rvs(20, random_state=1), [mean + 30, mean - 12]])
    np.testing.assert_allclose(
        evaluate(joint, "log_prob", points), distribution.logpdf(points), rtol=1e-12
    )
    np.testing.assert_allclose(evaluate(joint, "entropy"), distribution.entropy(), rtol=1e-12)
    np.testing.assert_allclose(evaluate(joint, "covariance_matrix"), covariance, atol=1e-12)
    np.testing.assert_allclose(joint.mean, mean)
    np.testing.assert_allclose(joint.variance, np.diag(covariance))
    part, kept = joint.marginalize((2, 0)), [2, 0]
    points, covariance = points[:, kept], covariance[np.ix_(kept, kept)]
    distribution = scipy.stats.multivariate_normal(mean[kept], covariance)
    np.testing.assert_allclose(evaluate(part, "log_prob", points), distribution.logpdf(points))
    np.testing.assert_allclose(evaluate(part, "covariance_matrix"), covariance, atol=1e-12)


def gaussian_conditional(mean, covariance, observed, values):
    rest = [i for i in range(len(mean)) if i not in observed]
    gain = covariance[np.ix_(rest, observed)] @ np.linalg.inv(
        covariance[np.ix_(observed, observed)]
    )
    return (
        mean[rest] + gain @ (values - mean[observed]),
        covariance[np.ix_(rest, rest)] - gain @ covariance[np.ix_(observed, rest)],
    )


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_normal_conditional_is_the_textbook_formula():
    joint, mean, covariance = normal()
    observed, values = [2, 0], np.array([0.4, 9.0])
    given_these = joint.condition(observed, values)
    mean, covariance = gaussian_conditional(mean, covariance, observed, values)
    np.testing.assert_allclose(given_these.mean, mean, rtol=1e-10)
    np.testing.assert_allclose(evaluate(given_these, "covariance_matrix"), covariance, atol=1e-10)
    np.testing.assert_allclose(given_these.variance, np.diag(covariance), rtol=1e-10)
    distribution = scipy.stats.multivariate_normal(mean, covariance)
    np.testing.assert_allclose(evaluate(given_these, "entropy"), distribution.entropy(), rtol=1e-10)
    points = mean + np.array([[0.3], [-4.0]])
    np.testing.assert_allclose(
        evaluate(given_these, "log_prob", points), distribution.logpdf(points), rtol=1e-10
    )
    quantiles = evaluate(given_these, "marginal_icdf", jnp.array([[0.01], [0.8]]))
    sd = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose(quantiles, scipy.stats.norm(mean, sd).ppf([[0.01], [0.8]]))


FAMILIES = {
    "gamma": (
        lambda: dist.Gamma(jnp.array([0.7, 4.0]), 2.0),
        [scipy.stats.gamma(a, scale=0.5) for a in (0.7, 4.0)],
    ),
    "truncated": (
        lambda: dist.TruncatedNormal(jnp.zeros(2), jnp.array([1.0, 2.0]), low=-1.0, high=2.0),
        [scipy.stats.truncnorm(-1, 2), scipy.stats.truncnorm(-0.5, 1, scale=2)],
    ),
    # NumPyro has no moments of this, and does not keep its arguments.
    "transformed": (
        lambda: dist.TransformedDistribution(
            dist.Normal(jnp.array([0.1, 0.5]), jnp.array([0.6, 0.4])), ExpTransform()
        ),
        [scipy.stats.lognorm(s, scale=np.exp(m)) for m, s in ((0.1, 0.6), (0.5, 0.4))],
    ),
}
R2 = equicorrelated(2, -0.6)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", FAMILIES)
def test_other_marginals_by_the_copula_formula(name):
    make, known = FAMILIES[name]
    joint = GaussianCopulaJoint(make(), R2)
    below = np.array([[0.5, 0.5], [0.01, 0.3], [0.97, 0.9], [0.2, 1e-6]])
    points = np.stack([part.ppf(p) for part, p in zip(known, below.T, strict=True)], -1)
    scores = scipy.stats.norm.ppf(below)
    rest = joint.condition(0, points[0, 0])
    log_prob = scipy.stats.multivariate_normal(cov=R2).logpdf(scores)
    log_prob += sum(part.logpdf(y) for part, y in zip(known, points.T, strict=True))
    expected = {
        "log_prob": log_prob - scipy.stats.norm.logpdf(scores).sum(axis=-1),
        "entropy": sum(part.entropy() for part in known) + 0.5 * np.log(1 - 0.36),
        "mean": [part.mean() for part in known],
        "variance": [part.var() for part in known],
    }
    for method, value in expected.items():
        arguments = (points,) if method == "log_prob" else ()
        np.testing.assert_allclose(evaluate(joint, method, *arguments), value, rtol=1e-8)
    covariance = np.asarray(evaluate(joint, "covariance_matrix"))
    np.testing.assert_allclose(np.diag(covariance), expected["variance"], rtol=1e-8)
    if name == "transformed":  # log-normal
        between = np.prod(expected["mean"]) * np.expm1(-0.6 * 0.6 * 0.4)
        np.testing.assert_allclose(covariance[0, 1], between, rtol=1e-8)
    # Given the first output, the score of the second is N(rho z, 1 - rho^2).
    conditional = scipy.stats.norm(-0.6 * scores[0, 0], 0.8).cdf(scores[:, 1:])
    found = evaluate(rest, "marginal_cdf", points[:, 1:])
    np.testing.assert_allclose(found, conditional, rtol=1e-8)
    second = evaluate(joint.marginalize(1), "log_prob", points[:, 1:])
    np.testing.assert_allclose(second, known[1].logpdf(points[:, 1]), rtol=1e-8)


@pytest.mark.slow
def test_vmap_over_copulas_with_parts_of_parts():
    loc = jnp.arange(12.0).reshape(4, 3) / 5
    base, r = dist.Normal(loc, jnp.ones((4, 3))), equicorrelated(3, 0.5)
    for marginals in (
        dist.TransformedDistribution(base, ExpTransform()),
        dist.TruncatedDistribution(base, low=loc - 1),
    ):
        joint = GaussianCopulaJoint(marginals, jnp.broadcast_to(r, (4, 3, 3)))
        points = jnp.exp(loc)
        found = jax.vmap(lambda one, x: one.log_prob(x))(joint, points)
        np.testing.assert_allclose(found, joint.log_prob(points), rtol=1e-5)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_marginals_that_are_mixtures():
    share, loc = 0.3, np.array([[0.0, 4.0], [-1.0, 1.0]])
    shares = np.array([share, 1 - share])
    marginals = dist.MixtureSameFamily(dist.Categorical(shares), dist.Normal(loc, 1.0))
    joint = GaussianCopulaJoint(marginals, R2)
    x = np.array([[0.5, -0.5], [3.0, 2.0]])
    parts = x[..., None] - loc
    scores = scipy.stats.norm.ppf(scipy.stats.norm.cdf(parts) @ shares)
    density = scipy.stats.norm.pdf(parts) @ shares
    ratio = np.log(density) - scipy.stats.norm.logpdf(scores)
    expected = scipy.stats.multivariate_normal(cov=R2).logpdf(scores) + ratio.sum(-1)
    np.testing.assert_allclose(joint.log_prob(x), expected, rtol=1e-9)
    mean = loc @ shares
    np.testing.assert_allclose(joint.mean, mean, rtol=1e-9)
    np.testing.assert_allclose(joint.variance, 1 + share * 0.7 * np.diff(loc)[:, 0] ** 2)
    # The other output, given the first.
    rest = joint.condition(0, x[0, 0])
    given = scipy.stats.norm(-0.6 * scores[0, 0], 0.8)
    conditional = given.logpdf(scores[0, 1]) + ratio[0, 1]
    np.testing.assert_allclose(rest.log_prob(x[0, 1:]), conditional, rtol=1e-9)
    alone = joint.marginalize([1])
    np.testing.assert_allclose(alone.log_prob(x[:, 1:]), np.log(density[:, 1]), rtol=1e-9)
    draws = np.asarray(joint.sample(KEY, (2000,)))[:, 0]
    below = scipy.stats.norm.cdf(draws[:, None] - loc[0]) @ shares
    assert scipy.stats.kstest(below, "uniform").pvalue > 1e-3


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_conditioning_in_steps_and_in_any_order():
    joint = GaussianCopulaJoint(
        dist.Normal(jnp.arange(4.0), 1.0 + jnp.arange(4.0)), equicorrelated(4, 0.4)
    )
    at_once = joint.condition((3, 1), (5.0, 0.2))
    for other in (
        joint.condition((1, 3), (0.2, 5.0)),
        joint.condition((-1, -3), (5.0, 0.2)),
        joint.condition(3, 5.0).condition(1, 0.2),
        joint.condition(1, 0.2).condition(2, 5.0),  # output 3 is now the last of three
    ):
        np.testing.assert_allclose(other.score_loc, at_once.score_loc, atol=1e-12)
        np.testing.assert_allclose(other.score_tril, at_once.score_tril, atol=1e-12)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_conditional_moments_against_quadrature():
    joint, value = GaussianCopulaJoint(LinearizedMarginal(LOC, WEIGHTS), R3), 1.6
    score = float(joint.marginals.normal_score(jnp.array([0.0, 0.0, value]))[2])
    given_this = joint.condition(2, value)
    nodes, rule = np.polynomial.legendre.leggauss(2000)
    y, rule = (np.abs(WEIGHTS).sum(-1) * part[:, None] for part in (nodes, rule))
    y = y + LOC
    z = np.asarray(joint.marginals.normal_score(y))
    density = np.exp(np.asarray(joint.marginals.log_prob(y)) - scipy.stats.norm.logpdf(z))
    conditional = scipy.stats.norm(R3[:2, 2] * score, np.sqrt(1 - R3[:2, 2] ** 2))
    weights = (rule * density)[:, :2] * conditional.pdf(z[:, :2])
    mean = (weights * y[:, :2]).sum(axis=0)
    variance = (weights * (y[:, :2] - mean) ** 2).sum(axis=0)
    # Gauss's rule is off by about 1e-6 at the kinks of the density.
    np.testing.assert_allclose(given_this.mean, mean, atol=1e-5)
    np.testing.assert_allclose(given_this.variance, variance, atol=1e-5)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_gradient_of_the_density():
    def value(loc, weights, matrix, at):
        symmetric = 0.5 * (matrix + matrix.T)
        joint = GaussianCopulaJoint(LinearizedMarginal(loc, weights), symmetric)
        return joint.log_prob(at).sum()

    at = LOC + 0.5 * WEIGHTS.sum(-1) * np.random.default_rng(0).uniform(-1, 1, (5, 3))
    arguments = (jnp.asarray(part) for part in (LOC, WEIGHTS, R3, at))
    check_grads(jax.jit(value), tuple(arguments), order=1, modes=["rev"], rtol=2e-5, eps=1e-6)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_pathwise_gradient_of_draws():
    @jax.jit
    def mean_square(loc, weights, rho):
        matrix = jnp.asarray(R3) * rho + (1 - rho) * jnp.eye(3)
        draws = GaussianCopulaJoint(LinearizedMarginal(loc, weights), matrix).sample(KEY, (50,))
        return jnp.mean(jnp.prod(draws, axis=-1))

    parameters = jnp.array(LOC), jnp.array(WEIGHTS), jnp.array(0.8)
    check_grads(mean_square, parameters, order=1, modes=["rev"], rtol=1e-6, eps=1e-6)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_gradient_of_conditional_moments_in_the_known_value():
    @jax.jit
    def summaries(value):
        distribution = GaussianCopulaJoint(dist.Uniform(jnp.zeros(3), 2.0), R3).condition(0, value)
        return distribution.entropy(), distribution.mean, distribution.covariance_matrix

    check_grads(summaries, (jnp.array(0.7),), order=1, modes=["rev"], rtol=1e-6, eps=1e-5)


def with_smallest_eigenvalue(size, smallest):
    """A random correlation matrix of low rank, mixed with the identity."""
    factor = np.random.default_rng(4).normal(size=(size, 2))
    factor /= np.linalg.norm(factor, axis=-1, keepdims=True)
    return (1 - smallest) * factor @ factor.T + smallest * np.eye(size)


@pytest.mark.slow
def test_smallest_eigenvalue_of_1e_4_in_single_precision():
    matrix = with_smallest_eigenvalue(31, 1e-4).astype(np.float32)
    joint = GaussianCopulaJoint(dist.Normal(jnp.zeros(31), jnp.linspace(0.1, 9, 31)), matrix)
    draws = np.asarray(joint.sample(KEY, (200,)), float)
    # The same float32 matrix and draws in double precision.
    scale = np.linspace(0.1, 9, 31, dtype=np.float32).astype(float)
    covariance = matrix.astype(float) * np.outer(scale, scale)
    expected = scipy.stats.multivariate_normal(cov=covariance).logpdf(draws)
    np.testing.assert_allclose(
        evaluate(joint, "log_prob", draws.astype(np.float32)), expected, atol=0.5
    )
    given_this = joint.condition((4, 20), draws[0, [4, 20]])
    mean, covariance = gaussian_conditional(np.zeros(31), covariance, [4, 20], draws[0, [4, 20]])
    sd = np.sqrt(np.diag(covariance))
    # The outputs that are given have smallest eigenvalue of the order of the determinant.
    np.testing.assert_allclose((given_this.mean - mean) / sd, 0, atol=2e-2)
    np.testing.assert_allclose(np.sqrt(given_this.variance) / sd, 1, atol=2e-2)


@pytest.mark.slow
def test_entropy_of_a_folded_distribution_in_single_precision():
    # NumPyro's quantile of a half-normal is infinite for the largest probability below one.
    joint = GaussianCopulaJoint(dist.HalfNormal(jnp.full(2, 1.5)), R2)
    distribution = scipy.stats.halfnorm(scale=1.5)
    expected = 2 * distribution.entropy() + 0.5 * np.log(1 - 0.36)
    np.testing.assert_allclose(evaluate(joint, "entropy"), expected, rtol=1e-5)
    np.testing.assert_allclose(
        np.diag(evaluate(joint, "covariance_matrix")), distribution.var(), rtol=1e-5
    )
