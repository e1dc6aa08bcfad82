"""`linearize_parts` against the network itself, closed forms and the plain linearization."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats
from scipy.special import ndtr

import nn_uq_dist as nuq
from nn_uq_dist import InputLaw, linearize, linearize_parts
from nn_uq_dist.linearization._parts import MOST_NORMAL_PARTS, normal_parts

KEY = jax.random.key(6)
RNG = np.random.default_rng(0)
LAYERS = [RNG.normal(size=(8, 2)), RNG.normal(size=(8, 8)) / 3, RNG.normal(size=(2, 8)) / 3]
BIAS = RNG.normal(size=8)
MATRIX = np.array([[1.0, -0.5], [0.3, 0.8], [0.6, 0.0]])

BOX = InputLaw(np.zeros(2), half_width=1.2)
NORMAL = InputLaw(np.zeros(2), scale=0.6)
BOTH = InputLaw(np.zeros(2), half_width=[1.0, 0.0], scale=[0.0, 0.5])
CORRELATED = InputLaw(np.zeros(2), scale_tril=np.array([[0.6, 0.0], [0.4, 0.3]]))
LAWS = {"box": BOX, "normal": NORMAL, "both": BOTH, "correlated": CORRELATED}


def smooth(x):
    hidden = jnp.tanh(LAYERS[1] @ jnp.tanh(LAYERS[0] @ x + BIAS))
    return LAYERS[2] @ hidden


def linear(x):
    return MATRIX @ x


def dead(x):
    """Constant for 60% of the inputs, at the mean as well; saturated on both sides; varying."""
    return jnp.array([jax.nn.relu(x[0] - 0.2), jnp.clip(3 * x[0], -1, 1), x[0] + x[1]])


def distance_to_draws(law, draws):
    """Largest difference of the distribution functions, for each output."""
    draws = np.sort(np.asarray(draws), axis=0)
    step = len(draws) // 400
    below = np.asarray(law.cdf(draws[::step]))
    place = (np.arange(0, len(draws), step) + 0.5) / len(draws)
    return np.abs(below - place[:, None]).max(axis=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["both", "correlated"])
def test_nearer_to_the_network_than_one_linearization(name):
    law = LAWS[name]
    draws = jax.vmap(smooth)(law.sample(KEY, (100_000,)))
    one = distance_to_draws(linearize(smooth, law).marginals(), draws)
    parts = linearize_parts(smooth, law, 100)
    assert parts.num_parts <= 100
    many = distance_to_draws(parts.marginals(), draws)
    # That of as many draws as the parts cost would be 0.05; that of these draws is 0.003.
    assert (many < (0.015 if name == "both" else 0.035)).all()
    assert (many < 0.3 * one).all()
    np.testing.assert_allclose(parts.mean, draws.mean(0), atol=0.02)
    np.testing.assert_allclose(np.sqrt(parts.variance), draws.std(0), rtol=0.06)
    np.testing.assert_allclose(parts.covariance, np.cov(draws.T), atol=0.05 * parts.variance.max())


@pytest.mark.slow
def test_moments_of_a_square(x64):
    """x^2 of a uniform input: mean and variance of the mixture in closed form, error 1/M^2."""
    law = InputLaw(jnp.zeros(1), half_width=1.0)
    for count in (4, 32):
        parts = linearize_parts(lambda x: x**2, law, (count,))
        np.testing.assert_allclose(parts.mean, 1 / 3 - 1 / (3 * count**2), rtol=1e-12)
        np.testing.assert_allclose(parts.variance, 4 / 45, atol=0.5 / count**2)
    np.testing.assert_allclose(parts.marginals().mean, parts.mean, rtol=1e-12)
    np.testing.assert_allclose(parts.marginals().variance, parts.variance, rtol=1e-6)


@pytest.mark.slow
def test_a_linear_network_is_not_cut():
    parts = linearize_parts(linear, BOTH, 64)
    assert set(parts.splits) == {1}
    assert parts.num_parts == 1
    plain, at = linearize(linear, BOTH), np.array([0.1, 0.5, -0.2], np.float32)
    np.testing.assert_allclose(parts.marginals().log_prob(at), plain.marginals().log_prob(at))
    # One entry is zero but for rounding.
    np.testing.assert_allclose(parts.covariance, plain.covariance, rtol=1e-5, atol=1e-8)


@pytest.mark.slow
def test_parts_of_a_box_make_it_up_exactly(x64):
    law = InputLaw(jnp.zeros(2), half_width=jnp.array([1.2, 0.7]))
    parts, plain = linearize_parts(linear, law, (3, 4)), linearize(linear, law)
    assert (parts.num_parts, parts.num_evaluations) == (12, 36)
    at = np.linspace(-0.7, 0.65, 9)[:, None]
    for name in ("log_prob", "log_cdf", "normal_score"):
        found = getattr(parts.marginals(), name)(at)
        np.testing.assert_allclose(
            found, getattr(plain.marginals(), name)(at), rtol=1e-9, atol=1e-9
        )
    np.testing.assert_allclose(parts.covariance, plain.covariance, rtol=1e-12)
    np.testing.assert_allclose(parts.correlation, plain.correlation, rtol=1e-12)


@pytest.mark.slow
def test_parts_of_a_normal_input_make_it_up_to_their_error(x64):
    law = InputLaw(jnp.zeros(2), scale=0.6)
    parts, plain = linearize_parts(linear, law, (6, 4)), linearize(linear, law)
    at = np.linspace(-1.5, 1.5, 31)[:, None]
    assert np.abs(parts.marginals().cdf(at) - plain.marginals().cdf(at)).max() < 1e-3
    np.testing.assert_allclose(parts.covariance, plain.covariance, rtol=1e-12)


@pytest.mark.parametrize("count", [2, 3, 4, 5, 6, 7, 11, MOST_NORMAL_PARTS])
def test_normal_parts(count):
    centers, shares, scales = normal_parts(count)
    assert (shares > 0).all()
    np.testing.assert_allclose(centers, -centers[::-1], atol=1e-12)
    np.testing.assert_allclose(shares, shares[::-1], rtol=1e-9)
    np.testing.assert_allclose(shares.sum(), 1, rtol=1e-12)
    np.testing.assert_allclose(shares @ (centers**2 + scales**2), 1, rtol=1e-12)
    at = np.linspace(-6, 6, 2001)[:, None]
    error = np.abs(ndtr((at - centers) / scales) @ shares - ndtr(at[:, 0])).max()
    documented = {2: 5e-3, 3: 6e-4, 4: 8.5e-4, 5: 8e-4, 6: 9e-4, 7: 5e-4}
    assert error <= documented.get(count, 4e-4 if count < 16 else 2e-4)
    if count >= 6:
        tails = np.array([3.0, 3.5, 4.0, 4.5])[:, None]
        ratio = ndtr((-tails - centers) / scales) @ shares / ndtr(-tails[:, 0])
        assert (ratio > 0.6).all()
        assert (ratio < 1.45).all()


@pytest.mark.slow
def test_units_that_are_dead_in_some_parts(precision):
    law = InputLaw(jnp.zeros(2), half_width=1.0)
    parts = linearize_parts(dead, law, (10, 1))
    output = parts.marginals()
    at = np.linspace(-1.5, 1.5, 61, dtype=precision)[:, None]
    output = nuq.distributions.OutputMixture(
        output.components, output.probabilities, validate_args=False
    )
    for name in ("log_prob", "log_cdf", "log_sf", "normal_score"):
        values = getattr(output, name)(at)
        assert not np.isnan(values).any()
    # Below and above of the atoms.
    np.testing.assert_allclose(
        output.cdf(np.array([-0.01, -0.99, 0.0])), [0, 1 / 3, 0.5], atol=0.02
    )
    np.testing.assert_allclose(output.cdf(np.array([0.01, 0.99, 0.0]))[:2], [0.6, 2 / 3], atol=0.03)
    assert np.isfinite(output.icdf(np.array([[0.1], [0.5], [0.9]]))).all()
    draws = np.asarray(jax.vmap(dead)(law.sample(KEY, (50_000,))))
    np.testing.assert_allclose(np.sqrt(output.variance), draws.std(0), rtol=0.02)
    joint = parts.joint(noise_scale=0.05)
    assert np.isfinite(joint.log_prob(draws[:20])).all()
    gradient = jax.grad(
        lambda w: linearize_parts(dead, InputLaw(jnp.zeros(2), w), (10, 1)).variance.sum()
    )
    assert np.isfinite(gradient(1.0))


@pytest.mark.slow
def test_no_sensitivity_at_the_mean():
    """The plain linearization has no law for the square; the parts do."""
    parts = linearize_parts(lambda x: x**2, BOX, 64)
    draws = np.asarray(BOX.sample(KEY, (100_000,)) ** 2)
    assert (distance_to_draws(parts.marginals(), draws) < 0.09).all()
    with pytest.raises(ValueError, match="zero sensitivity for output 0 and 1 more: a"):
        linearize_parts(lambda x: x**2, BOX, (1, 1)).marginals()
    assert linearize_parts(lambda x: x**2, BOX, (1, 1)).marginals(0.1).batch_shape == (2,)


def test_step_function():
    """No output varies in any part, and yet between them."""
    parts = linearize_parts(jnp.sign, BOX, (4, 4))
    np.testing.assert_allclose(parts.marginals().cdf(0.0), 0.5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["both", "correlated"])
def test_pairs(name):
    law = LAWS[name]
    parts = linearize_parts(smooth, law, 60)
    inputs, outputs = parts.sample_pairs(KEY, (20_000,))
    np.testing.assert_array_equal(outputs, parts.sample(KEY, (20_000,)))
    np.testing.assert_allclose(np.cov(inputs.T), law.covariance, atol=0.015)
    exact = np.asarray(law.sample(KEY, (20_000,)))
    for column, reference in zip(np.asarray(inputs).T, exact.T, strict=True):
        assert scipy.stats.ks_2samp(column, reference).pvalue > 1e-3
    assert (distance_to_draws(parts.marginals(), outputs) < 0.02).all()
    network = jax.vmap(smooth)(inputs)
    assert ((network - outputs).std(0) < 0.25 * network.std(0)).all()


def test_only_what_bends_is_cut():
    def net(x):
        return jnp.array([jnp.sin(3 * x[0]) + 2 * x[1], x[2] - x[1]])

    parts = linearize_parts(net, InputLaw(jnp.zeros(3), half_width=1.0), 30)
    assert parts.splits[1:] == (1, 1)
    assert parts.splits[0] > 10
    assert parts.num_evaluations == (parts.num_parts + 7) * 3


@pytest.mark.slow
def test_sum_of_inputs(x64):
    law = nuq.inputs.InputSum(BOX, NORMAL)
    parts = linearize_parts(smooth, law, 200)
    assert len(parts.splits) == 4
    draws = jax.vmap(smooth)(law.sample(KEY, (100_000,)))
    assert (distance_to_draws(parts.marginals(), draws) < 0.05).all()


@pytest.mark.slow
def test_traced(x64):
    def median(half_width, splits=(5, 4)):
        law = InputLaw(jnp.zeros(2), half_width=half_width)
        return linearize_parts(smooth, law, splits).marginals().icdf(0.3)[0]

    eager, step = median(1.2), 1e-5
    np.testing.assert_allclose(jax.jit(median)(1.2), eager, rtol=1e-9)
    slope = jax.jit(jax.grad(median))(1.2)
    difference = (median(1.2 + step) - median(1.2 - step)) / (2 * step)
    np.testing.assert_allclose(slope, difference, rtol=1e-5)
    widths = jnp.array([1.0, 1.2])
    np.testing.assert_allclose(jax.vmap(median)(widths)[1], eager, rtol=1e-9)
    variance = jax.jit(
        lambda w: linearize_parts(smooth, InputLaw(jnp.zeros(2), w), (5, 4)).variance
    )
    assert variance(1.2).shape == (2,)


@pytest.mark.slow
def test_gradient_of_one_part(x64):
    """One part is the plain linearization: nothing lies between the parts."""

    def density(half_width, make):
        law = InputLaw(jnp.zeros(2), half_width=half_width)
        return make(law).marginals().log_prob(linearize(smooth, BOX).mean + 0.05).sum()

    one = jax.grad(density)(1.2, lambda law: linearize_parts(smooth, law, (1, 1)))
    plain = jax.grad(density)(1.2, lambda law: linearize(smooth, law))
    np.testing.assert_allclose(one, plain, rtol=1e-8)


@pytest.mark.slow
def test_joint_laws():
    parts = linearize_parts(smooth, BOX, 64)
    draws = np.asarray(jax.vmap(smooth)(BOX.sample(KEY, (2000,))))
    copula, mixture = parts.gaussian_copula(noise_scale=0.02), parts.joint(noise_scale=0.02)
    noisy = draws + 0.02 * np.random.default_rng(0).normal(size=draws.shape)
    values = noisy.astype(np.float32)
    assert np.mean(mixture.log_prob(values)) > np.mean(copula.log_prob(values[:200]))
    np.testing.assert_allclose(
        mixture.covariance_matrix, parts.covariance + 0.0004 * np.eye(2), rtol=1e-4
    )
    noise = 0.0004 * np.eye(2)
    both = parts.joint(noise_covariance=noise)
    np.testing.assert_allclose(both.log_prob(values[:5]), mixture.log_prob(values[:5]), rtol=1e-4)
    table = nuq.diagnostics.summary(parts.marginals(), draws)
    assert table.shape[0] == 2


def test_result_is_a_pytree():
    parts = linearize_parts(smooth, BOX, 8)
    back = jax.jit(lambda p: p)(parts)
    assert (back.splits, back.num_evaluations) == (parts.splits, parts.num_evaluations)
    np.testing.assert_array_equal(back.loc, parts.loc)
    assert parts.image(0.1).shape == (parts.num_parts, 2)


@pytest.mark.slow
def test_dtype(precision):
    parts = linearize_parts(smooth, InputLaw(jnp.zeros(2), half_width=1.0), (3, 2))
    output = parts.marginals()
    values = (parts.mean, parts.sample(KEY), output.mean, output.icdf(jnp.asarray(0.5)))
    assert {value.dtype.name for value in values} == {precision}


def test_numpyro_input():
    f = dist.Uniform(-jnp.ones(2), 1.0).to_event(1)
    assert linearize_parts(smooth, f, 6).num_parts <= 6


@pytest.mark.parametrize(
    ("net", "law", "num_parts", "error", "message"),
    [
        (smooth, BOX, 0, ValueError, "num_parts must be a positive integer"),
        (smooth, BOX, 2.5, TypeError, "num_parts must be a positive integer"),
        (smooth, BOX, (2, 2, 2), ValueError, "2 uniform and 0 normal ones, got 3"),
        (smooth, BOX, (2, 0), ValueError, r"num_parts\[1\] must be a positive"),
        (smooth, NORMAL, (2, 40), ValueError, "at most 32 along a normal"),
        (0.5, BOX, 4, TypeError, "network must be a JAX function"),
        (lambda x: x / 0.0, BOX, (2, 2), ValueError, "must be finite"),
    ],
)
def test_mistakes(net, law, num_parts, error, message):
    with pytest.raises(error, match=message):
        linearize_parts(net, law, num_parts)


def test_parts_cannot_be_chosen_for_a_traced_input():
    with pytest.raises(TypeError, match="f must hold known values where the parts are chosen"):
        jax.jit(lambda w: linearize_parts(smooth, InputLaw(jnp.zeros(2), w), 8).mean)(1.0)


def test_noise_of_a_wrong_shape():
    parts = linearize_parts(smooth, BOX, (2, 2))
    with pytest.raises(ValueError, match="noise_covariance must have shape"):
        parts.joint(noise_covariance=np.eye(3))


@pytest.mark.slow
def test_very_many_inputs_of_two_causes():
    # An identity matrix of the inputs would take 90 GB.
    count = 150_528
    factor = np.random.default_rng(0).normal(size=(count, 2)).astype(np.float32) / count**0.5
    law = nuq.inputs.GaussianInput(np.zeros(count, np.float32), factor)
    parts = nuq.linearize_parts(lambda x: jnp.tanh(x[None, :10].sum(axis=1) * 100), law, 12)
    inputs, outputs = parts.sample_pairs(jax.random.key(0), (8,))
    assert inputs.shape == (8, count)
    expected = np.tanh(np.asarray(inputs)[:, :10].sum(axis=1) * 100)
    np.testing.assert_allclose(outputs[:, 0], expected, atol=0.1)


@pytest.mark.slow
def test_known_inputs_alone_have_no_parts():
    with pytest.raises(ValueError, match="f must have a random part, got known values only"):
        nuq.linearize_parts(lambda x: x, nuq.inputs.KnownInput([1.0]), 4)
