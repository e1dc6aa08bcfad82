"""`LinearImage`: against sums over the independent variables, in NumPy."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nn_uq_dist import Input, Linearization
from nn_uq_dist.basics.concrete import in_float64
from nn_uq_dist.distributions import LinearImage

RNG = np.random.default_rng(0)
JACOBIAN = RNG.normal(size=(4, 3))
WIDTH = np.array([0.5, 0.0, 2.0])
SCALE = np.array([1.0, 0.3, 0.0])
TRIL = np.array([[1.0, 0.0, 0.0], [0.5, 0.2, 0.0], [-0.3, 0.2, 2.0]])
NOISE = np.array([0.1, 0.0, 2.0, 0.5])

BOX = np.diag(WIDTH) / np.sqrt(3)
# Factors of the covariance of the inputs: of the uniforms, and of the normal part.
FACTORS = {
    "box": (BOX, np.zeros((3, 0))),
    "diagonal": (np.zeros((3, 0)), np.diag(SCALE)),
    "dense": (np.zeros((3, 0)), TRIL),
    "box and dense": (BOX, TRIL),
}


def input_of(name, units=1.0):
    units = np.asarray(units)[..., None]
    box = Input.box(0 * units + np.zeros(3), units * WIDTH)
    if name == "box":
        return box
    if name == "diagonal":
        return Input.normal(np.zeros(3), SCALE)
    normal = Input.normal(0 * units + np.zeros(3), scale_tril=units[..., None] * TRIL)
    return normal if name == "dense" else box + normal


def image_of(distribution, jacobian):
    return LinearImage(*distribution.columns(jnp.asarray(jacobian)))


def covariance_of(*effects):
    """Sum over independent variables of variance one of the outer products of their effects."""
    return sum(part @ part.T for part in effects)


def assert_has_covariance(image, covariance, rtol, at=()):
    sd = np.sqrt(np.diag(covariance))
    atol = rtol * np.outer(sd, sd).max()
    np.testing.assert_allclose(image.covariance[at], covariance, rtol=rtol, atol=atol)
    np.testing.assert_allclose(image.root[at] @ image.root[at].T, covariance, rtol=rtol, atol=atol)
    np.testing.assert_allclose(image.variance[at], sd**2, rtol=rtol)
    np.testing.assert_allclose(image.standard_deviation[at], sd, rtol=rtol)
    correlation = covariance / np.outer(sd, sd)
    np.testing.assert_allclose(image.correlation[at], correlation, rtol=rtol, atol=10 * rtol)
    assert (np.diagonal(image.correlation[at]) == 1).all()


@pytest.mark.parametrize(
    ("name", "noise", "precision"),
    [
        ("diagonal", NOISE, "float64"),
        ("dense", None, "float32"),
        ("box and dense", NOISE, "float64"),
        ("box", NOISE, "float32"),
    ],
    indirect=["precision"],
)
def test_moments_are_sums_over_the_independent_variables(name, noise, precision):
    uniform, normal = FACTORS[name]
    image = image_of(input_of(name), JACOBIAN).with_noise(noise)
    normal = covariance_of(JACOBIAN @ normal, np.diag(np.zeros(4) if noise is None else noise))
    expected = covariance_of(JACOBIAN @ uniform) + normal
    assert image.covariance.dtype == image.correlation.dtype == precision
    assert_has_covariance(image, expected, 1e-12 if precision == "float64" else 2e-6)
    assert image.shape == (4,)
    assert not np.asarray(image.is_constant).any()
    np.testing.assert_allclose(image.normal_scale, np.sqrt(np.diag(normal)), rtol=2e-6)
    found = np.asarray(image.normal_weights)
    np.testing.assert_allclose(found @ found.T, normal, rtol=1e-5, atol=2e-6)


def test_image_of_numpy_leaves_is_numpy_in_float64_whatever_jax_has():
    distribution = in_float64(input_of("box and dense"))
    image = LinearImage(*distribution.columns(JACOBIAN)).with_noise(NOISE)
    for part in (image.weights, image.normal_scale, image.covariance, image.correlation):
        assert isinstance(part, np.ndarray)
        assert part.dtype == np.float64
    # The parameters were rounded to float32 where JAX has no float64.
    rounded = np.diag(np.float64(np.float32(WIDTH))) / np.sqrt(3), np.float64(np.float32(TRIL))
    expected = covariance_of(*(JACOBIAN @ part for part in rounded), np.diag(NOISE))
    assert_has_covariance(image, expected, 1e-13)


@pytest.mark.usefixtures("x64")
def test_a_batch_is_the_stack_of_single_images():
    units = np.array([1.0, 3.0])
    jacobian = np.stack([JACOBIAN, -JACOBIAN[::-1]])
    noise = np.abs(np.random.default_rng(1).normal(size=(5, 1, 4)))
    image = image_of(input_of("box and dense", units), jacobian).with_noise(noise)
    shape = np.broadcast_shapes((2, 4), noise.shape)
    assert image.shape == image.variance.shape == image.standard_deviation.shape == shape
    full = np.broadcast_to(noise, shape)
    for index in itertools.product(*map(range, shape[:-1])):
        effects = units[index[-1]] * jacobian[index[-1]]
        expected = covariance_of(effects @ BOX, effects @ TRIL, np.diag(full[index]))
        assert_has_covariance(image, expected, 1e-11, index)


def test_moments_that_would_underflow():
    jacobian = np.array([[1e-30, 2e-30], [-1e-25, 1e-25], [0.0, 0.0]], np.float32)
    image = image_of(Input.box(np.zeros(2), 1.0), jacobian)
    with pytest.warns(RuntimeWarning, match="float32 has no numbers as small"):
        variance = image.variance
    np.testing.assert_array_equal(variance, [np.nan, np.nan, 0.0])
    expected = np.float64(jacobian[:2]) * 1e25
    expected = np.sqrt(np.sum(expected**2, axis=1) / 3)
    np.testing.assert_allclose(np.float64(image.standard_deviation[:2]) * 1e25, expected, rtol=1e-6)
    np.testing.assert_array_equal(image.is_constant, [False, False, True])
    np.testing.assert_allclose(image.correlation[0, 1], 0.1**0.5, rtol=1e-6)
    assert np.isnan(image.correlation[2]).all()
    assert np.isnan(image.correlation[:, 2]).all()


@pytest.mark.usefixtures("x64")
def test_both_kinds_of_noise_add_up():
    covariance = [[1.0, 0.5], [0.5, 2.0]]
    image = image_of(Input.box(np.zeros(3), [0.5, 0.0, 2.0]), JACOBIAN[:2])
    noisy = image.with_noise([0.1, 0.0], covariance).with_noise(2.0)
    expected = np.array(covariance) + np.diag([0.01, 0.0]) + 4 * np.eye(2)
    np.testing.assert_allclose(noisy.covariance - image.covariance, expected, rtol=1e-12)
    np.testing.assert_allclose(noisy.variance, np.diag(noisy.covariance), rtol=1e-13)
    np.testing.assert_allclose(noisy.root @ noisy.root.T, noisy.covariance, rtol=1e-12)
    normal = np.asarray(noisy.normal_weights)
    np.testing.assert_allclose(normal @ normal.T, expected, rtol=1e-13)
    np.testing.assert_allclose(noisy.normal_scale**2, np.diag(expected), rtol=1e-13)
    singular = image.with_noise(None, np.ones((2, 2)))
    np.testing.assert_allclose(singular.covariance, image.covariance + 1, rtol=1e-13)
    np.testing.assert_allclose(singular.root @ singular.root.T, singular.covariance, rtol=1e-12)


def test_noise_that_is_none_is_refused():
    image, one = (image_of(Input.box(np.zeros((2, 3)), 1.0), J) for J in (JACOBIAN, JACOBIAN[:1]))
    shape = r"noise_covariance must have shape \(\.\.\., 4, 4\), got"
    for noisy, noise, message in (
        (image, (np.ones(3),), r"noise_scale must have last axis 4 .* got shape \(3,\)"),
        (one, (np.ones(3),), r"noise_scale .* axis 1 \(as the outputs\).* got shape \(3,\)"),
        (image, ([0.0, 0.0, -1.0, 0.0],), r"noise_scale .* not .*, got -1.0 at index \(2,\)"),
        (image, (None, np.eye(3)), shape + r" \(3, 3\); for independent noise"),
        (image, (None, np.zeros((3, 4, 4))), r"noise_covariance \(3,\), batch_shape \(2,\)"),
        (image, (None, -np.eye(4)), "noise_covariance must be positive semi.*, got the eigenvalue"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            noisy.with_noise(*noise)


@pytest.mark.slow
def test_a_traced_covariance_that_is_none_gives_nan():
    model = Linearization(np.zeros(2), np.eye(2), Input.box(np.zeros(2), 1.0))

    @jax.jit
    @jax.vmap
    def numbers(covariance):
        y, noise = np.array([0.3, 0.2]), {"noise_covariance": covariance}
        made = model.marginals(**noise), model.joint(**noise), model.gaussian_copula(**noise)
        return *(of.log_prob(y) for of in made), model.input_posterior(y, **noise).mean

    good = [[1, 0.5, 0.5, 2], [1, 1, 1, 1], [0, 0, 0, 0], [1e-20, 0, 0, 1]]
    bad = [[1, 0.5, 0.4, 2], [1, 2, 2, 1], [0.1, 0.101, 0.101, 0.1], [-1, 0, 0, 1]]
    for matrices, expected in ((good, True), (bad, False)):
        covariances = np.reshape(np.float32(matrices), (-1, 2, 2))
        for part in numbers(covariances):
            assert (np.isfinite(part) == expected).all()
            assert (np.isnan(part) != expected).all()
