"""Normal scores of NumPyro's univariate laws; choosing outputs of a batch of them."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats
from mpmath import mp

from nn_uq_dist import LinearizedMarginal, NormalScoreTransform
from nn_uq_dist.basics._indices import as_indices
from nn_uq_dist.laws._choose_outputs import take_outputs
from nn_uq_dist.laws._normal_scores import from_normal_score, normal_score

# Laws about 0 of scale 1.75, with their survival functions for x > 0, in mpmath.
TWO_SIDED = {
    "normal": (dist.Normal, lambda x: mp.erfc(x / mp.sqrt(2)) / 2),
    "uniform": (lambda m, s: dist.Uniform(m - s, m + s), lambda x: (1 - x) / 2),
    "laplace": (dist.Laplace, lambda x: mp.exp(-x) / 2),
    "logistic": (dist.Logistic, lambda x: 1 / (1 + mp.exp(x))),
    "cauchy": (dist.Cauchy, lambda x: mp.atan(1 / x) / mp.pi),
    "Student-t": (
        lambda m, s: dist.StudentT(5.0, m, s),
        lambda x: mp.betainc(2.5, 0.5, 0, 5 / (5 + x * x), regularized=True) / 2,
    ),
}
SCALE = 1.75
TAILS = {
    "normal": [0.03, 1.0, 6.0, 12.0],
    "uniform": [0.03, 0.5, 1 - 2**-10, 1 - 2**-20],
    "laplace": [0.03, 1.0, 30.0, 70.0],
    "logistic": [0.03, 1.0, 30.0, 70.0],
    "cauchy": [0.03, 1.0, 1e4, 1e15],
    "Student-t": [0.03, 1.0, 30.0, 1e4],
}


def reference_score(survival):
    def log_survival(z):
        return mp.log(mp.erfc(z / mp.sqrt(2)) / 2)

    start = mp.sqrt(-2 * mp.log(2 * survival))
    return mp.findroot(lambda z: log_survival(z) - mp.log(survival), start)


@pytest.mark.parametrize("name", TWO_SIDED)
def test_scores_in_both_tails(name, precision):
    make, survival = TWO_SIDED[name]
    value = np.array([SCALE * x for x in TAILS[name]], precision)
    with mp.workdps(40):
        exact = [reference_score(survival(mp.mpf(float(y)) / mp.mpf(SCALE))) for y in value]
        expected = np.array([float(z) for z in exact])
    law = make(0.0, SCALE)
    rtol = {"float32": 1e-6, "float64": 1e-12}[precision]
    # NumPyro's `cdf` of a Student-t law has this error near the center.
    atol = {"float32": 1e-7, "float64": 1e-15}[precision] * (200 if name == "Student-t" else 1)
    upper, lower = normal_score(law, value), normal_score(law, -value)
    assert upper.dtype == precision
    np.testing.assert_allclose(upper, expected, rtol=rtol, atol=atol)
    np.testing.assert_allclose(lower, -expected, rtol=rtol, atol=atol)
    if name != "Student-t":  # its `icdf` needs tensorflow_probability
        scores = expected.astype(precision)
        # A rounding of the score moves a far quantile by z times as much.
        rtol = {"float32": 2e-5, "float64": 1e-13}[precision]
        np.testing.assert_allclose(from_normal_score(law, scores), value, rtol=rtol)
        np.testing.assert_allclose(from_normal_score(law, -scores), -value, rtol=rtol)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", TWO_SIDED)
@pytest.mark.parametrize("x", [0.0, 0.7, -0.7])
def test_slopes_of_scores_also_at_the_center(name, x):
    law = TWO_SIDED[name][0](0.4, SCALE)
    y = 0.4 + x
    z = float(normal_score(law, jnp.asarray(y)))
    slope = np.exp(law.log_prob(y) - scipy.stats.norm.logpdf(z))  # p(y) / phi(z)
    atol = 1e-7 if name == "Student-t" else 0.0
    if not (name == "Student-t" and x == 0):  # NumPyro's `cdf` has no slope there
        actual = jax.grad(lambda y: normal_score(law, y))(y)
        np.testing.assert_allclose(actual, slope, rtol=1e-10, atol=atol)
    if name != "Student-t":
        actual = jax.grad(lambda z: from_normal_score(law, z))(z)
        np.testing.assert_allclose(actual, 1 / slope, rtol=1e-10)


ONE_SIDED = {
    "log-normal": (lambda: dist.LogNormal(0.2, 0.5), scipy.stats.lognorm(0.5, scale=np.exp(0.2))),
    "exponential": (lambda: dist.Exponential(2.0), scipy.stats.expon(scale=0.5)),
    "half-normal": (lambda: dist.HalfNormal(1.5), scipy.stats.halfnorm(scale=1.5)),
    "gumbel": (lambda: dist.Gumbel(0.3, 2.0), scipy.stats.gumbel_r(0.3, 2.0)),
    "pareto": (lambda: dist.Pareto(2.0, 3.0), scipy.stats.pareto(3.0, scale=2.0)),
    "truncated": (
        lambda: dist.TruncatedNormal(0.0, 1.0, low=-1.0, high=2.0),
        scipy.stats.truncnorm(-1, 2),
    ),
    "expanded": (lambda: dist.Gumbel(0.3, 2.0).expand((1,)), scipy.stats.gumbel_r(0.3, 2.0)),
}


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("name", ONE_SIDED)
def test_scores_by_the_distribution_function(name):
    make, reference = ONE_SIDED[name]
    law = make()
    scores = np.linspace(-4, 4, 9)
    value = reference.ppf(scipy.stats.norm.cdf(scores))
    np.testing.assert_allclose(normal_score(law, value), scores, atol=1e-8)
    np.testing.assert_allclose(from_normal_score(law, scores), value, rtol=1e-8)


@pytest.mark.parametrize("name", ONE_SIDED)
def test_far_scores_are_finite(name, precision):
    law = ONE_SIDED[name][0]()
    value = from_normal_score(law, jnp.array([-30.0, -10.0, 10.0, 30.0]))
    assert np.isfinite(value).all()
    assert np.isfinite(normal_score(law, value)).all()


@pytest.mark.usefixtures("x64")
def test_transform_inverts_and_has_the_log_determinant():
    transform = NormalScoreTransform(dist.Uniform(jnp.array([-1.0, 2.0]), jnp.array([1.0, 2.5])))
    z = jnp.array([[0.3, -1.0], [5.0, 3.5]])
    y = transform(z)
    np.testing.assert_allclose(transform.inv(y), z, rtol=1e-8)
    jacobian = jax.vmap(jax.jacobian(transform))(z)
    np.testing.assert_allclose(
        transform.log_abs_det_jacobian(z, y), np.linalg.slogdet(jacobian)[1], rtol=1e-7
    )
    assert transform.codomain(y).all()
    assert transform.forward_shape((5, 1)) == transform.inverse_shape((5, 1)) == (5, 2)


# --- choosing outputs --------------------------------------------------------------------------

LAWS = {
    "linearized": lambda: LinearizedMarginal(jnp.arange(3.0), jnp.array([[1.0, 0.5]])),
    "linearized with noise": lambda: LinearizedMarginal(
        0.0, jnp.array([[0.1, 1.0], [0.5, 0.2], [0.4, 0.4]]), jnp.array([0.1, 0.2, 0.3])
    ),
    "normal": lambda: dist.Normal(jnp.arange(3.0), 2.0),
    "uniform": lambda: dist.Uniform(-1.0, jnp.array([1.0, 2.0, 3.0])),
    "expanded": lambda: dist.Normal(0.5, 2.0).expand((3,)),
    "expanded twice": lambda: dist.Normal(jnp.arange(3.0), 1.0).expand((2, 3)),
    "truncated": lambda: dist.TruncatedNormal(jnp.arange(3.0), 1.0, low=-1.0, high=4.0),
    "gamma": lambda: dist.Gamma(jnp.array([1.0, 2.0, 3.0]), 2.0),
    "batch": lambda: dist.Normal(jnp.arange(6.0).reshape(2, 3), jnp.array([[1.0], [2.0]])),
    "square batch": lambda: dist.Normal(jnp.arange(3.0)[:, None], jnp.array([1.0, 2.0, 3.0])),
}


@pytest.mark.parametrize("indices", [(1,), (2, 0)])
@pytest.mark.parametrize("name", LAWS)
def test_chosen_outputs_keep_their_laws(name, indices):
    law = LAWS[name]()
    part = take_outputs(law, indices)
    assert part.batch_shape == (*law.batch_shape[:-1], len(indices))
    value = jnp.broadcast_to(jnp.array([0.1, 0.4, 0.9]), law.batch_shape)
    chosen = value[..., indices]
    expected = law.log_prob(value)[..., indices]
    np.testing.assert_allclose(part.log_prob(chosen), expected, rtol=1e-6)
    expected = normal_score(law, value)[..., indices]
    np.testing.assert_allclose(normal_score(part, chosen), expected, rtol=1e-5, atol=1e-6)


def test_laws_that_hide_their_arguments_are_refused_by_name():
    law = dist.TransformedDistribution(
        dist.Normal(jnp.zeros(3), 1.0), dist.transforms.ExpTransform()
    )
    with pytest.raises(TypeError, match=r"marginals must keep.*got TransformedDistribution"):
        take_outputs(law, (0,))


@pytest.mark.parametrize(
    ("indices", "expected"),
    [
        (1, (1,)),
        (-1, (2,)),
        ((2, -3), (2, 0)),
        ([0], (0,)),
        (range(3), (0, 1, 2)),
        (np.int64(2), (2,)),
        (np.array([1, 0]), (1, 0)),
    ],
)
def test_indices_become_positions(indices, expected):
    positions = as_indices(indices, 3)
    assert positions == expected
    assert all(type(position) is int for position in positions)


def test_jax_indices():
    assert as_indices(jnp.array([1, 0]), 3) == (1, 0)
    assert as_indices(jnp.array(2), 3) == (2,)
