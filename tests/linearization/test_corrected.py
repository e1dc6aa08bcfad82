"""Corrected linearizations: closer to the network, exact if it is linear, valid if it is not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import nn_uq_dist as nuq

KEY = jax.random.key(0)
BOX = nuq.Input.box(np.array([0.1, 0.2, -0.1], np.float32), half_width=1.5)
NORMAL = nuq.Input.normal(np.array([0.1, 0.2, -0.1], np.float32), 0.7)


def smooth(x):
    return jnp.stack([jnp.tanh(x[0]) + x[1] ** 2, x[0] * x[1] + x[2], jnp.exp(0.5 * x[2]) + x[0]])


def kinked(x):
    hidden = jax.nn.leaky_relu(
        jnp.array([[1.0, 0.5, 0.2], [-0.5, 1.0, 0.3], [0.4, -1.0, 1.0], [1.0, 1.0, -1.0]]) @ x
    )
    return jnp.array([[1.0, -0.5, 0.3, 0.2], [0.1, 1.0, -1.0, 0.4]]) @ hidden


def pairs_of(net, f, count, key=KEY, **options):
    lin = nuq.linearize(net, f)
    return lin, nuq.paired_draws(net, lin, key, count, progress=False, **options)


def draws_of(net, f, count=400_000):
    return nuq.monte_carlo(net, f, jax.random.key(9), count, progress=False)


def distance(distribution, ordered):
    """Kolmogorov-Smirnov distances at 400 quantiles of the draws."""
    levels = (np.arange(400) + 0.5) / 400
    at = ordered[(levels * len(ordered)).astype(int)]
    return np.abs(np.asarray(distribution.cdf(jnp.asarray(at))) - levels[:, None]).max(axis=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("net", "f", "points"), [(smooth, BOX, "random"), (kinked, NORMAL, "sobol")]
)
def test_is_nearer_than_draws_and_than_the_tangent(net, f, points):
    lin, pairs = pairs_of(net, f, 960, points=points)
    ordered = np.sort(draws_of(net, f), axis=0)
    distribution = lin.corrected(pairs).marginals()
    found, tangent = distance(distribution, ordered), distance(lin.marginals(), ordered)
    # As many draws are 0.87/sqrt(960) = 0.028 away on average. The density of the kinked network
    # has peaks that are narrower than what a thousand draws resolve.
    assert (found < (0.5 if net is smooth else 1.0) * 0.87 / np.sqrt(960)).all()
    assert (found < 0.5 * tangent).all()
    np.testing.assert_allclose(distribution.mean, ordered.mean(axis=0), atol=0.03)
    np.testing.assert_allclose(jnp.sqrt(distribution.variance), ordered.std(axis=0), rtol=0.04)


@pytest.mark.slow
def test_outputs_that_saturate():
    # Near their bounds a step of a thousandth of a standard deviation is a tenth in probability:
    # an estimate with one noise level for all quantiles was 0.3 off.
    def net(x):
        s = jnp.sin(x[0]) + jnp.tanh(x[1]) * x[2]
        return jnp.stack([jnp.tanh(2 * s), jax.nn.softplus(3 * s)])

    ordered = np.sort(draws_of(net, BOX), axis=0)
    found = []
    for number in range(4):
        lin, pairs = pairs_of(net, BOX, 1000, jax.random.key(number))
        found.append(distance(lin.corrected(pairs).marginals(), ordered))
    # The mean distance of as many draws.
    assert (np.mean(found, axis=0) < 0.87 / 1000**0.5).all()


@pytest.mark.slow
def test_noise_is_that_of_the_outputs():
    lin, pairs = pairs_of(kinked, BOX, 1000)
    corrected = lin.corrected(pairs)
    noise = np.array([0.5, 0.2])
    rng = np.random.default_rng(0)
    clean = draws_of(kinked, BOX)
    noisy = np.sort(clean + noise * rng.permuted(rng.normal(size=clean.shape), axis=0), axis=0)
    assert (distance(corrected.marginals(noise), noisy) < 0.02).all()


@pytest.mark.slow
def test_joint_is_nearer_to_the_network_than_the_uncorrected_one():
    """By the mean log density of new draws, which the network's own has the largest of."""
    f = nuq.Input.box(BOX.mean, half_width=1.0)
    linear, pairs = pairs_of(smooth, f, 300)
    draws = draws_of(smooth, f, 4000)
    noise = np.array([0.1, 0.1, 0.1])
    draws = draws + noise * np.random.default_rng(0).normal(size=draws.shape)
    corrected = linear.corrected(pairs).joint(noise).log_prob(draws).mean()
    assert corrected > linear.joint(noise).log_prob(draws).mean() + 0.05
    normal = scipy.stats.multivariate_normal(draws.mean(axis=0), np.cov(draws.T))
    assert corrected > normal.logpdf(draws).mean()


@pytest.mark.slow
def test_joint_with_traced_pairs_is_that_of_known_ones(x64):
    def correction(width):
        lin, pairs = pairs_of(smooth, nuq.Input.box(jnp.array([0.1, 0.2, -0.1]), width), 60)
        return lin.corrected(pairs)

    def of_width(width):
        joint = correction(width).joint(0.2, 0.01 * jnp.eye(3))
        return joint.log_prob(jnp.array([0.7, 0.3, 1.1]))

    with pytest.raises(TypeError, match="pairs must hold numbers for marginals"):
        jax.jit(lambda width: correction(width).marginals().mean)(1.1)
    value, slope = jax.jit(jax.value_and_grad(of_width))(1.1)
    np.testing.assert_allclose(value, of_width(1.1), rtol=1e-8)
    step = 1e-4
    difference = (of_width(1.1 + step) - of_width(1.1 - step)) / (2 * step)
    np.testing.assert_allclose(slope, difference, rtol=1e-5)


@pytest.mark.slow
def test_constant_outputs():
    constants = np.array([3.0, 1e-15], np.float32)

    def net(x):
        return jnp.concatenate([0 * x + constants, x.sum(keepdims=True)])

    lin, pairs = pairs_of(net, nuq.Input.box(np.zeros(2, np.float32), half_width=1.0), 200)
    corrected = lin.corrected(pairs)
    np.testing.assert_allclose(corrected.mean[:2], constants, rtol=1e-3, atol=1e-18)
    assert (corrected.variance[:2] >= 0).all()
    np.testing.assert_allclose(corrected.covariance, np.diag([0, 0, 2 / 3]), rtol=1e-3, atol=1e-12)
    # With noise a constant is independent of all else, without it has no correlation.
    copula = corrected.gaussian_copula([0.05, 0.05, 0.0])
    np.testing.assert_allclose(copula.correlation_matrix, np.eye(3), atol=1e-12)
    with pytest.raises(ValueError, match=r"constant output has no correlation.*noise_scale > 0"):
        corrected.gaussian_copula([0.0, 0.05, 0.05])


def test_an_empty_batch_has_draws_and_distributions_but_no_correction():
    empty = nuq.Input.box(np.zeros((0, 2), np.float32), half_width=1.0)
    lin, pairs = pairs_of(jnp.tanh, empty, 16, points="sobol")
    assert pairs.network.shape == pairs.linear.shape == (16, 0, 2)
    assert lin.marginals().batch_shape == (0, 2)
    assert lin.gaussian_copula().batch_shape == (0,)
    with pytest.raises(ValueError, match="pairs must hold at least 8 draws with finite outputs"):
        lin.corrected(pairs)


@pytest.mark.slow
def test_dead_and_saturated_outputs_are_named():
    def net(x):
        return jnp.stack([jnp.maximum(x[0], 0.5), x[1] ** 2, jnp.float32(3.0) + 0 * x[0], x[2]])

    lin, pairs = pairs_of(net, nuq.Input.box(np.zeros(3, np.float32), half_width=1.0), 1000)
    corrected = lin.corrected(pairs)
    distribution = corrected.marginals()
    y = jnp.linspace(0.01, 0.99, 50)[:, None]
    assert np.isfinite(distribution.icdf(y)).all()
    assert not np.isnan(distribution.log_prob(distribution.icdf(y))).any()
    words = ("point mass", "sensitivity at the mean zero", "all draws are equal", "")
    assert all(word in remark for word, remark in zip(words, corrected.remarks, strict=True))
    assert corrected.remarks[3] == ""
    # The distribution of a square of a uniform: sqrt(y).
    assert abs(float(distribution.cdf(0.25)[1]) - 0.5) < 0.005
    assert np.isfinite(corrected.joint(0.1).log_prob(distribution.mean))


# A sensitivity of zero, and of less than a rounding.
@pytest.mark.parametrize(("offset", "center"), [(0.0, 0.0), (1e3, 1e-6)])
def test_outputs_whose_sensitivity_is_zero_or_lost_in_rounding(offset, center):
    def net(x):
        return jnp.stack([offset + x[0] ** 2, x[0] + x[1]])

    lin, pairs = pairs_of(net, nuq.Input.normal(np.array([center, 0.0], np.float32), 1.0), 140)
    corrected = lin.corrected(pairs)
    distribution, known = corrected.marginals(), scipy.stats.chi2(1)
    # Near the end of the support a rounding of 1000 is a percent.
    q = np.linspace(0.1, 0.95, 18)
    found = distribution.cdf((offset + known.ppf(q))[:, None])[:, 0]
    np.testing.assert_allclose(found, q, atol=0.004)
    np.testing.assert_allclose(distribution.mean[0] - offset, 1, atol=0.01)
    assert "sensitivity at the mean zero" in corrected.remarks[0]
    assert corrected.remarks[1] == ""


def test_correlation_of_few_pairs_is_the_plain_one():
    lin, pairs = pairs_of(kinked, BOX, 10)
    corrected = lin.corrected(pairs)
    covariance = np.asarray(corrected.covariance)
    sd = np.sqrt(np.diag(covariance))
    plain = np.corrcoef(pairs.network.T)
    np.testing.assert_allclose(covariance / np.outer(sd, sd), plain, rtol=1e-5)
    np.testing.assert_allclose(sd**2, corrected.variance, rtol=1e-5)


def test_outputs_that_saturate_far_from_zero():
    # The standard deviation is 70 roundings of the output; plateaus are one rounding.
    slope, count = 3.0, 3000

    def net(x):
        return jnp.array([1e4 + 0.1 * jnp.tanh(slope * x[0])])

    lin, pairs = pairs_of(net, nuq.Input.normal(np.zeros(2, np.float32), 1.0), count)
    distribution = lin.corrected(pairs).marginals()
    nodes, rule = np.polynomial.hermite_e.hermegauss(200)
    sd = 0.1 * np.sqrt(np.tanh(slope * nodes) ** 2 @ rule / rule.sum())
    # Two standard errors of the mean of the pairs, and the grid of the knots.
    assert abs(float(distribution.mean[0]) - 1e4) < (2 / count**0.5 + 0.05) * sd
    assert float(distribution.variance[0]) ** 0.5 == pytest.approx(sd, rel=0.05)
    assert float(distribution.log_sf(jnp.float32(1e4 + 0.1))[0]) < np.log(0.005)
    assert float(distribution.log_cdf(jnp.float32(1e4 - 0.1))[0]) < np.log(0.005)


def test_outputs_with_nan_do_not_touch_the_others():
    """Outputs with NaN have the distribution of their finite values, the others have theirs."""

    def net(x):
        return jnp.stack([x[0] + 0.1 * x[1], jnp.log(x[0] + 1.5)])

    lin = nuq.linearize(net, nuq.Input.normal(np.zeros(2, np.float32), 1.0))
    with pytest.warns(RuntimeWarning, match="NaN or infinite"):
        pairs = nuq.paired_draws(net, lin, KEY, 1000, progress=False)
    corrected = lin.corrected(pairs)
    distribution = corrected.marginals()
    y = np.linspace(-3, 3, 201)
    found = np.asarray(distribution.cdf(np.stack([y] * 2, axis=1).astype(np.float32)))
    linear = scipy.stats.norm.cdf(y, scale=np.sqrt(1.01))
    np.testing.assert_allclose(found[:, 0], linear, atol=1e-4)
    lowest = scipy.stats.norm.cdf(-1.5)
    finite = (scipy.stats.norm.cdf(np.exp(y) - 1.5) - lowest) / (1 - lowest)
    # As many draws are .028 away on average.
    np.testing.assert_allclose(found[:, 1], finite, atol=0.02)
    missing = np.isnan(pairs.network[:, 1]).mean()
    assert f"{missing:.2g} of the draws are NaN or infinite" in corrected.remarks[1]
    assert corrected.remarks[0] == ""


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("function", [lambda s: jax.nn.sigmoid(2 * s + 1), jnp.sinh])
def test_increasing_functions_of_a_sum(function):
    """The mean log density at quantiles is that of the exact distribution to a thousandth."""
    weights = np.random.default_rng(12).normal(size=(1, 12)) / 12**0.5
    f = nuq.Input.box(np.zeros(12), half_width=1.5)
    levels = (np.arange(4000)[:, None] + 0.5) / 4000
    of_sum = nuq.linearize(lambda x: weights @ x, f).marginals()
    at = of_sum.icdf(levels)
    slopes = jax.vmap(jax.grad(lambda s: function(s[0])))(at)
    exact = of_sum.log_prob(at) - jnp.log(slopes)
    losses = []
    for key in range(3):
        lin, pairs = pairs_of(lambda x: function(weights @ x), f, 1000, jax.random.key(key))
        losses.append(jnp.mean(exact - lin.corrected(pairs).marginals().log_prob(function(at))))
    assert 1000 * np.mean(losses) < 1.5
    assert 1000 * np.max(losses) < 4


def test_no_output_of_the_network_has_density_zero():
    """Beyond the pairs, and beyond what they would let the linear output's support become."""
    rng = np.random.default_rng(0)
    first, second = 1.5 * rng.normal(size=(16, 3)) / 3**0.5, rng.normal(size=(1, 16)) / 4

    def net(x):
        return second @ jnp.tanh(first @ x + 0.5)

    lin, pairs = pairs_of(net, nuq.Input.box(np.zeros(3, np.float32), half_width=1.5), 100)
    corrected = lin.corrected(pairs)
    assert 0 < corrected.own_scale[0] < 0.3 * lin.variance[0] ** 0.5
    fresh = draws_of(net, lin.input, 20_000)
    logs = np.asarray(corrected.marginals().log_prob(fresh))
    assert np.isfinite(logs).all()
    assert logs.min() > -100


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_a_linear_network_keeps_its_distribution(offset):
    weights = np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32)

    def net(x):
        return weights @ x + np.float32(offset)

    lin, pairs = pairs_of(net, nuq.Input.box(np.ones(4, np.float32), half_width=0.5), 200)
    corrected = lin.corrected(pairs)
    assert corrected.own_scale is None
    expected, found = lin.marginals(), corrected.marginals()
    eps = 50 * np.finfo(np.float32).eps * (1 + offset)
    for end in ("lower_bound", "upper_bound"):
        bounds = (getattr(one.support, end) for one in (found, expected))
        np.testing.assert_allclose(*bounds, atol=1e-5 + eps)
    if not offset:
        q = jnp.linspace(0.01, 0.99, 9)[:, None]
        np.testing.assert_allclose(found.icdf(q), expected.icdf(q), atol=1e-4)
        # Remainders are rounding and no noise: the density of the image of a box.
        values = jax.vmap(net)(lin.input.sample(jax.random.key(1), (500,)))
        off = corrected.joint().log_prob(values) + np.linalg.slogdet(np.float64(weights))[1]
        # A draw within rounding of an edge may be beyond it.
        assert np.mean(~(np.abs(off) < 1e-3)) < 0.01


def test_errors():
    lin, pairs = pairs_of(smooth, BOX, 50)
    with pytest.raises(TypeError, match="pairs must be PairedDraws"):
        lin.corrected(pairs.network)
    other = nuq.linearize(smooth, nuq.Input.box(BOX.mean, half_width=1.0))
    with pytest.raises(ValueError, match="pairs must be those of this linearization"):
        other.corrected(pairs)


@pytest.mark.slow
def test_is_a_pytree_that_passes_through_jit():
    lin, pairs = pairs_of(smooth, BOX, 100)
    corrected = lin.corrected(pairs)
    value = corrected.mean

    def call(model):
        return model.marginals().log_prob(value), model.mean, model.variance

    for found, expected in zip(jax.jit(call)(corrected), call(corrected), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def twisted(x):
    """Outputs whose correlation is negative at the mean and positive over the range."""
    return jnp.stack([x[0], x[1] + x[0] - 2 * jnp.tanh(5 * x[0])])


def folded(x):
    return jnp.stack([x[0] ** 2 + 0.1 * x[1], jnp.exp(x[0]) + x[1]])


@pytest.mark.slow
@pytest.mark.parametrize("net", [twisted, folded])
def test_one_dependence(net):
    """Draws, joint distribution, copula and covariance have the correlation of the network."""
    lin, pairs = pairs_of(net, nuq.Input.box(jnp.zeros(2), 1.0), 1000)
    model = lin.corrected(pairs)
    plain = draws_of(net, lin.input, 100_000)
    expected = np.corrcoef(np.asarray(plain, np.float64).T)
    joint, copula = model.joint(), model.gaussian_copula()
    found = [
        model.correlation,
        *(np.corrcoef(of.sample(KEY, (20_000,)).T) for of in (joint, copula)),
    ]
    inputs, draws = model.sample_pairs(KEY, (20_000,))
    found.append(np.corrcoef(draws.T))
    np.testing.assert_allclose(np.stack(found), expected[None] + np.zeros((4, 1, 1)), atol=0.05)
    error = draws.std(axis=0) / 20_000**0.5
    assert np.all(np.abs(draws.mean(axis=0) - joint.mean) < 5 * error)
    # The inputs are those of the outputs.
    slopes = model.joint().weights @ inputs.T
    assert np.corrcoef(slopes[1], draws[:, 1])[0, 1] > 0.5


def test_the_lower_tail_of_a_skewed_output():
    """Single precision tells values near zero apart much better than those at the other end."""
    distribution = nuq.Input.normal([0.1], 1.0)
    lin, pairs = pairs_of(lambda x: jnp.exp(3 * x), distribution, 5000, jax.random.key(3))
    z = np.linspace(-3, 3, 61)
    found = lin.corrected(pairs).marginals().cdf(jnp.exp(3 * (0.1 + jnp.asarray(z)))[:, None])
    assert np.abs(np.asarray(found)[:, 0] - scipy.stats.norm.cdf(z)).max() < 0.006


def test_clipped_outputs_are_corrected(precision):
    """Log slopes of a plateau are so low that rises are lost in rounding."""

    def net(x):
        return jnp.concatenate([jnp.clip(2 * x, -1, 0.8), jax.nn.relu(x + 0.3)])

    lin, pairs = pairs_of(net, nuq.Input.box(np.zeros(1, precision), half_width=1.0), 1000)
    high = lin.corrected(pairs).marginals().icdf(jnp.asarray(0.99, precision))
    np.testing.assert_allclose(high, net(jnp.array([0.98])), atol=0.02)
