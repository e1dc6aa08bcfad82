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


@pytest.fixture(scope="module")
def references():
    return {
        (net, name): np.sort(draws_of(net, f), axis=0)
        for net in (smooth, kinked)
        for name, f in (("box", BOX), ("normal", NORMAL))
    }


def distance(distribution, ordered):
    """Kolmogorov-Smirnov distances at 400 quantiles of the draws."""
    levels = (np.arange(400) + 0.5) / 400
    at = ordered[(levels * len(ordered)).astype(int)]
    return np.abs(np.asarray(distribution.cdf(jnp.asarray(at))) - levels[:, None]).max(axis=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("net", "name", "points"),
    [
        (smooth, "box", "random"),
        (smooth, "normal", "sobol"),
        (kinked, "box", "sobol"),
        (kinked, "normal", "random"),
    ],
)
def test_is_nearer_than_draws_and_than_the_tangent(net, name, points, references):
    f = {"box": BOX, "normal": NORMAL}[name]
    lin, pairs = pairs_of(net, f, 960, points=points)
    ordered = references[net, name]
    distribution = lin.corrected(pairs).marginals()
    found, tangent = distance(distribution, ordered), distance(lin.marginals(), ordered)
    # As many draws are 0.87/sqrt(960) = 0.028 away on average. The density of the kinked network
    # has peaks that are narrower than what a thousand draws resolve.
    assert (found < (0.5 if net is smooth else 1.0) * 0.87 / np.sqrt(960)).all()
    assert (found < 0.5 * tangent).all()
    np.testing.assert_allclose(distribution.mean, ordered.mean(axis=0), atol=0.03)
    np.testing.assert_allclose(jnp.sqrt(distribution.variance), ordered.std(axis=0), rtol=0.04)


@pytest.mark.slow
@pytest.mark.parametrize("count", [8, 1000])
def test_linear_network_is_not_corrected(count):
    matrix = np.array([[1.0, 2.0, -1.0], [0.3, 0.0, 1.0]], np.float32)
    lin, pairs = pairs_of(lambda x: matrix @ x + 5, BOX, count)
    corrected = lin.corrected(pairs)
    q = jnp.linspace(0.01, 0.99, 9)[:, None]
    np.testing.assert_allclose(corrected.marginals().icdf(q), lin.marginals().icdf(q), atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("count", [100, 1000])
def test_outputs_that_saturate(count):
    # Near their bounds a step of a thousandth of a standard deviation is a tenth in probability:
    # an estimate with one noise level for all quantiles was 0.3 off.
    def net(x):
        s = jnp.sin(x[0]) + jnp.tanh(x[1]) * x[2]
        return jnp.stack([jnp.tanh(2 * s), jax.nn.softplus(3 * s)])

    ordered = np.sort(draws_of(net, BOX), axis=0)
    found = []
    for number in range(4):
        lin, pairs = pairs_of(net, BOX, count, jax.random.key(number))
        found.append(distance(lin.corrected(pairs).marginals(), ordered))
    # The mean distance of as many draws, and a quarter more where they are few.
    assert (np.mean(found, axis=0) < (1.25 if count < 500 else 1.0) * 0.87 / count**0.5).all()


@pytest.mark.slow
def test_noise_is_that_of_the_outputs(references):
    lin, pairs = pairs_of(kinked, BOX, 1000)
    corrected = lin.corrected(pairs)
    noise = np.array([0.5, 0.2])
    rng = np.random.default_rng(0)
    clean = references[kinked, "box"]
    noisy = np.sort(clean + noise * rng.permuted(rng.normal(size=clean.shape), axis=0), axis=0)
    for distribution in (corrected.marginals(noise), corrected.gaussian_copula(noise).marginals):
        assert (distance(distribution, noisy) < 0.02).all()


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
    def of_width(width):
        f = nuq.Input.box(jnp.array([0.1, 0.2, -0.1]), half_width=width)
        lin, pairs = pairs_of(smooth, f, 60)
        joint = lin.corrected(pairs).joint(0.2, 0.01 * jnp.eye(3))
        return joint.log_prob(jnp.array([0.7, 0.3, 1.1]))

    value, slope = jax.jit(jax.value_and_grad(of_width))(1.1)
    np.testing.assert_allclose(value, of_width(1.1), rtol=1e-8)
    step = 1e-4
    difference = (of_width(1.1 + step) - of_width(1.1 - step)) / (2 * step)
    np.testing.assert_allclose(slope, difference, rtol=1e-5)


@pytest.mark.usefixtures("x64")
def test_draws_of_a_float32_object_are_float32():
    box = nuq.Input.box(jnp.zeros(2, jnp.float32), half_width=jnp.full(2, 0.5, jnp.float32))
    lin, pairs = pairs_of(jnp.tanh, box, 64)
    assert lin.corrected(pairs).sample(KEY, (3,)).dtype == "float32"


@pytest.mark.slow
@pytest.mark.parametrize("constant", [0.0, 3.0, 1e-15])
def test_a_constant_output(precision, constant):
    box = nuq.Input.box(np.zeros(2, precision), half_width=1.0)
    lin, pairs = pairs_of(lambda x: jnp.stack([0 * x[0] + constant, x[0] + x[1]]), box, 200)
    corrected = lin.corrected(pairs)
    np.testing.assert_allclose(corrected.mean[0], constant, rtol=1e-3, atol=1e-18)
    assert 0 <= corrected.variance[0] < 1e-12
    np.testing.assert_allclose(corrected.covariance, [[0, 0], [0, 2 / 3]], rtol=1e-3, atol=1e-12)
    # With noise a constant is independent of all else, without it has no correlation.
    copula = corrected.gaussian_copula([0.05, 0.0])
    np.testing.assert_allclose(copula.correlation_matrix, np.eye(2), atol=1e-12)
    with pytest.raises(ValueError, match=r"constant output has no correlation.*noise_scale > 0"):
        corrected.gaussian_copula([0.0, 0.05])


def test_an_empty_batch_has_draws_but_no_correction():
    empty = nuq.Input.box(np.zeros((0, 2), np.float32), half_width=1.0)
    assert draws_of(jnp.tanh, empty, 10).shape == (10, 0, 2)
    lin, pairs = pairs_of(jnp.tanh, empty, 16, points="sobol")
    assert pairs.network.shape == pairs.linear.shape == (16, 0, 2)
    with pytest.raises(ValueError, match="pairs must hold at least 8 draws with finite outputs"):
        lin.corrected(pairs)


@pytest.mark.slow
def test_dead_and_saturated_outputs_are_named():
    def net(x):
        return jnp.stack([jnp.maximum(x[0], 0.5), x[1] ** 2, jnp.float32(3.0) + 0 * x[0], x[2]])

    f = nuq.Input.box(np.zeros(3, np.float32), half_width=1.0)
    lin, pairs = pairs_of(net, f, 1000)
    with pytest.raises(ValueError, match="zero sensitivity"):
        lin.marginals()
    corrected = lin.corrected(pairs)
    distribution = corrected.marginals()
    y = jnp.linspace(0.01, 0.99, 50)[:, None]
    assert np.isfinite(distribution.icdf(y)).all()
    assert not np.isnan(distribution.log_prob(distribution.icdf(y))).any()
    saturated, dead, constant, linear = corrected.remarks
    assert "point mass: 7" in saturated
    assert "sensitivity at the mean zero" in dead
    assert "all draws are equal" in constant
    assert linear == ""
    # The distribution of a square of a uniform: sqrt(y).
    assert abs(float(distribution.cdf(0.25)[1]) - 0.5) < 0.005
    assert np.isfinite(corrected.joint(0.1).log_prob(distribution.mean))


# A sensitivity of zero, of three roundings, and of less than one.
@pytest.mark.parametrize(("offset", "center"), [(0.0, 0.0), (5.0, 3e-6), (1e3, 1e-6)])
def test_outputs_whose_sensitivity_is_zero_or_lost_in_rounding(offset, center):
    def net(x):
        return jnp.stack([offset + x[0] ** 2, x[0] + x[1]])

    lin, pairs = pairs_of(net, nuq.Input.normal(np.array([center, 0.0], np.float32), 1.0), 140)
    corrected = lin.corrected(pairs)
    distribution, known = corrected.marginals(), scipy.stats.chi2(1)
    # Near the end of the support a rounding of 1000 is a percent.
    q = np.linspace(0.1, 0.95, 18)
    found = distribution.cdf((offset + known.ppf(q))[:, None])[:, 0]
    # The polynomial is exact here.
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


@pytest.mark.parametrize(("slope", "count"), [(1.0, 1000), (3.0, 3000)])
def test_outputs_that_saturate_far_from_zero(slope, count):
    # The standard deviation is 50 and 70 roundings of the output; plateaus are one rounding.
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
        return jnp.stack([x[0] + 0.1 * x[1], jnp.log(x[0] + 1.5), x[0] + 0.1 * x[1] ** 2])

    lin = nuq.linearize(net, nuq.Input.normal(np.zeros(2, np.float32), 1.0))
    with pytest.warns(RuntimeWarning, match="NaN or infinite"):
        pairs = nuq.paired_draws(net, lin, KEY, 1000, progress=False)
    corrected = lin.corrected(pairs)
    distribution = corrected.marginals()
    y = np.linspace(-3, 3, 201)
    found = np.asarray(distribution.cdf(np.stack([y] * 3, axis=1).astype(np.float32)))
    linear = scipy.stats.norm.cdf(y, scale=np.sqrt(1.01))
    np.testing.assert_allclose(found[:, 0], linear, atol=1e-4)
    lowest = scipy.stats.norm.cdf(-1.5)
    finite = (scipy.stats.norm.cdf(np.exp(y) - 1.5) - lowest) / (1 - lowest)
    # As many draws are .028 away on average.
    np.testing.assert_allclose(found[:, 1], finite, atol=0.02)
    missing = np.isnan(pairs.network[:, 1]).mean()
    assert f"{missing:.2g} of the draws are NaN or infinite" in corrected.remarks[1]
    assert corrected.remarks[0] == ""
    alone = nuq.linearize(lambda x: net(x)[2:], lin.input)
    own = nuq.paired_draws(lambda x: net(x)[2:], alone, KEY, 1000, progress=False)
    expected = alone.corrected(own).marginals().cdf(y[:, None].astype(np.float32))
    np.testing.assert_allclose(found[:, 2], expected[:, 0], atol=2e-3)


INCREASING = {
    "tanh": lambda s: jnp.tanh(1.5 * s),
    "logistic": lambda s: jax.nn.sigmoid(2 * s + 1),
    "sinh": jnp.sinh,
    "exp": jnp.exp,
}


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("name", "num_inputs"), [("tanh", 6), ("logistic", 12), ("sinh", 12), ("exp", 6)]
)
def test_increasing_functions_of_a_sum(name, num_inputs):
    """The mean log density at quantiles is that of the exact distribution to a thousandth."""
    weights = np.random.default_rng(num_inputs).normal(size=(1, num_inputs)) / num_inputs**0.5
    function, f = INCREASING[name], nuq.Input.box(np.zeros(num_inputs), half_width=1.5)
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
def test_a_linear_network_keeps_its_support(offset, precision):
    weights = np.random.default_rng(0).normal(size=(3, 6)).astype(precision)

    def net(x):
        return weights @ x + np.asarray(offset, precision)

    lin, pairs = pairs_of(net, nuq.Input.box(np.ones(6, precision), half_width=0.5), 100)
    corrected = lin.corrected(pairs)
    assert corrected.own_scale is None
    expected = lin.marginals().support
    eps = 50 * np.finfo(precision).eps * (1 + offset)
    for end in ("lower_bound", "upper_bound"):
        found = getattr(corrected.marginals().support, end)
        np.testing.assert_allclose(found, getattr(expected, end), atol=1e-5 + eps)


def test_errors():
    lin, pairs = pairs_of(smooth, BOX, 50)
    with pytest.raises(TypeError, match="pairs must be PairedDraws, got ndarray"):
        lin.corrected(pairs.network)
    other = nuq.linearize(smooth, nuq.Input.box(BOX.mean, half_width=1.0))
    with pytest.raises(ValueError, match="pairs must be those of this linearization"):
        other.corrected(pairs)
    with pytest.raises(ValueError, match="at least 8 draws with finite outputs, got 5"):
        lin.corrected(nuq.paired_draws(smooth, lin, KEY, 5, progress=False))


@pytest.mark.slow
def test_is_a_pytree_that_passes_through_jit():
    lin, pairs = pairs_of(smooth, BOX, 100)
    corrected = lin.corrected(pairs)
    value = corrected.mean
    calls = {
        "marginals": lambda model: model.marginals().log_prob(value),
        "moments": lambda model: (model.mean, model.variance),
        "joint": lambda model: model.joint(0.2).log_prob(value),
        "draws": lambda model: model.sample(KEY, (2000,)),
        "copula": lambda model: model.gaussian_copula().marginals.mean,
    }
    expected = {name: call(corrected) for name, call in calls.items() if name != "copula"}
    found = jax.jit(lambda model: {name: call(model) for name, call in calls.items()})(corrected)
    np.testing.assert_allclose(found.pop("copula"), value, rtol=1e-5, atol=1e-6)
    # The noise of traced pairs has a column for each pair: other draws of the same distribution.
    draws, others = (np.asarray(part.pop("draws"), float) for part in (found, expected))
    error = np.hypot(draws.std(axis=0), others.std(axis=0)) / 2000**0.5
    assert np.all(abs(draws.mean(axis=0) - others.mean(axis=0)) < 5 * error)
    np.testing.assert_allclose(np.cov(draws.T), np.cov(others.T), rtol=0.2, atol=0.05)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def of_traced_pairs(call):
    """A function under ``jit`` of the correction by pairs that depend on the half-width."""

    def function(width):
        lin, pairs = pairs_of(smooth, nuq.Input.box(BOX.mean, half_width=width), 20)
        return call(lin.corrected(pairs))

    return jax.jit(function)


def test_traced_pairs_make_no_map():
    for call in (
        lambda model: model.marginals().mean,
        lambda model: model.covariance,
        lambda model: model.gaussian_copula().mean,
        lambda model: model.remarks,
    ):
        with pytest.raises(TypeError, match=r"pairs must hold numbers for marginals.*got traced"):
            of_traced_pairs(call)(1.1)


def twisted(x):
    """Outputs whose correlation is negative at the mean and positive over the range."""
    return jnp.stack([x[0], x[1] + x[0] - 2 * jnp.tanh(5 * x[0])])


BENT = {
    "twisted": twisted,
    "folded": lambda x: jnp.stack([x[0] ** 2 + 0.1 * x[1], jnp.exp(x[0]) + x[1]]),
    "saturated": lambda x: jnp.tanh(3 * jnp.stack([x[0] + x[1], x[0] - 0.2 * x[1], x[1]])),
    "flat": lambda x: jnp.stack([jax.nn.relu(x[0] - 0.5) + 0.01 * x[1], x[0] - x[1]]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BENT)
def test_one_dependence(name):
    """Draws, joint distribution, copula and covariance have the correlation of the network."""
    lin, pairs = pairs_of(BENT[name], nuq.Input.box(jnp.zeros(2), 1.0), 1000)
    model = lin.corrected(pairs)
    plain = nuq.monte_carlo(BENT[name], lin.input, jax.random.key(1), 100_000, progress=False)
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


@pytest.mark.slow
def test_traced_pairs_have_an_input_posterior():
    y = jnp.array([0.7, 0.3, 1.1])
    found = of_traced_pairs(lambda model: model.input_posterior(y, 0.3).mean)(1.1)
    lin, pairs = pairs_of(smooth, nuq.Input.box(BOX.mean, half_width=1.1), 20)
    expected = lin.corrected(pairs).input_posterior(y, 0.3).mean
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("count", [200, 5000])
def test_the_lower_tail_of_a_skewed_output(count):
    """Single precision tells values near zero apart much better than those at the other end."""
    distribution = nuq.Input.normal([0.1], 1.0)
    lin, pairs = pairs_of(lambda x: jnp.exp(3 * x), distribution, count, jax.random.key(3))
    z = np.linspace(-3, 3, 61)
    found = lin.corrected(pairs).marginals().cdf(jnp.exp(3 * (0.1 + jnp.asarray(z)))[:, None])
    assert np.abs(np.asarray(found)[:, 0] - scipy.stats.norm.cdf(z)).max() < 0.006


@pytest.mark.parametrize(
    "net", [lambda x: jnp.clip(2 * x, -1, 0.8), lambda x: jax.nn.relu(x + 0.3)]
)
def test_clipped_outputs_are_corrected(net, precision):
    """Log slopes of a plateau are so low that rises are lost in rounding."""
    distribution = nuq.Input.box(np.zeros(1, precision), half_width=1.0)
    for number in range(2):
        lin, pairs = pairs_of(net, distribution, 1000, jax.random.key(number))
        high = lin.corrected(pairs).marginals().icdf(jnp.asarray(0.99, precision))
        assert abs(high[0] - net(jnp.array([0.98]))[0]) < 0.02


@pytest.mark.parametrize("size", [2, 4])
def test_remainders_of_a_linear_network_are_rounding_and_no_noise(size, precision):
    matrix = jnp.asarray(np.random.default_rng(size).normal(size=(size, size)), precision)
    mean = jnp.ones(size, precision)

    def network(x):
        return matrix @ x + 3.0

    lin = nuq.linearize(network, nuq.Input.box(mean, jnp.full_like(mean, 0.5)))
    pairs = nuq.paired_draws(network, lin, jax.random.key(0), 200, progress=False)
    joint = lin.corrected(pairs).joint()
    assert joint.normal_weights is None
    values = jax.vmap(network)(lin.input.sample(jax.random.key(1), (500,)))
    exact = -np.linalg.slogdet(np.float64(matrix))[1]
    # A draw within rounding of an edge may be beyond it.
    assert np.mean(~(np.abs(joint.log_prob(values) - exact) < 1e-3)) < 0.01
