"""Paired statistics: exact where the truth is known, with correct coverage and correct worth.

Repetitions are columns: a linear model with many equal rows, whose outputs are drawn each for
itself. Truths are sums over dense grids of the inputs, which nothing else here uses.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from nn_uq_dist import Input, Linearization, linearize, paired_draws, paired_statistics
from nn_uq_dist.sampling import PairedDraws

KEY = jax.random.key(0)
LEVELS = np.array([0.05, 0.5, 0.95])


def tanh_net(f):
    return np.tanh(1.3 * f[..., 0] + 0.2) / 1.3 + np.tanh(f[..., 1] - 0.4 * f[..., 0])


def leaky_net(f):
    hidden = f @ np.array([[1.0, 0.3, -0.7], [0.5, -1.0, 0.6]]) + np.array([0.3, 0.1, -0.2])
    return np.where(hidden > 0, hidden, 0.4 * hidden) @ np.array([1.0, -0.5, -0.6])


def slopes_at_zero(net):
    step = 1e-6 * np.eye(2)
    return (net(step) - net(-step)) / 2e-6


def grid_of_inputs(distribution, half_width, size=1500):
    """Equally likely points that fill the distribution of two inputs."""
    middle = (np.arange(size) + 0.5) / size
    one = 2 * middle - 1 if distribution == "box" else stats.norm.ppf(middle) / np.sqrt(3)
    return half_width * np.stack(np.meshgrid(one, one), axis=-1).reshape(-1, 2)


def drawn_inputs(distribution, half_width, shape, sequences, seed):
    """Inputs of shape ``shape + (2,)``: random ones, or Sobol sequences along the first axis."""
    generator = np.random.default_rng(seed)
    if not sequences:
        points = generator.uniform(size=(*shape, 2))
    else:
        length = shape[0] // sequences
        power = (length - 1).bit_length()
        engines = [
            stats.qmc.Sobol(2, rng=generator).random_base2(power)[:length]
            for _ in range(sequences * shape[1])
        ]
        points = np.reshape(engines, (shape[1], shape[0], 2)).swapaxes(0, 1)
        points = np.clip(points, 1e-12, 1 - 1e-12)
    values = 2 * points - 1 if distribution == "box" else stats.norm.ppf(points) / np.sqrt(3)
    return half_width * values


def input_distribution(distribution, half_width, size=2):
    if distribution == "box":
        return Input.box(np.zeros(size), half_width)
    return Input.normal(np.zeros(size), half_width / np.sqrt(3))


def repetitions(net, distribution, half_width, count, number, sequences=0, seed=0):
    """Pairs whose outputs are `number` independent repetitions of one."""
    inputs = drawn_inputs(distribution, half_width, (count, number), sequences, seed)
    slopes, center = slopes_at_zero(net), net(np.zeros(2))
    jacobian = np.broadcast_to(slopes, (number, 2))
    lin = Linearization(
        np.full(number, center), jacobian, input_distribution(distribution, half_width)
    )
    linear = center + inputs @ slopes
    return PairedDraws(inputs, net(inputs), linear, lin, KEY, sequences)


def truth(net, distribution, half_width):
    y = np.sort(net(grid_of_inputs(distribution, half_width)))
    upper = np.quantile(y, [0.95, 0.99])
    return {
        "mean": y.mean(),
        "sd": y.std(),
        "skewness": stats.skew(y),
        "excess_kurtosis": stats.kurtosis(y),
        "quantile": np.quantile(y, LEVELS)[:, None],
        "points": upper[:, None],
        "exceedance": np.array([[0.05], [0.01]]),
    }


def estimates(pairs, exact):
    found = paired_statistics(pairs)
    names = ("mean", "sd", "skewness", "excess_kurtosis")
    points = np.broadcast_to(exact["points"], (2, found.num_outputs))
    return {name: getattr(found, name) for name in names} | {
        "quantile": found.quantile(LEVELS),
        "exceedance": found.exceedance(points),
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("net", "distribution", "count", "sequences"),
    [(tanh_net, "box", 104, 0), (leaky_net, "normal", 104, 8)],
)
def test_intervals_hold(net, distribution, count, sequences):
    # 200 repetitions: a coverage of 95% is known to 1.5%, one of 92% to 1.9%; with fixed keys the
    # limits fail for one key in a thousand. Nothing is held against wide intervals of quantiles and
    # probabilities: rare events are counted in whole numbers. Skewness and kurtosis of 104 draws
    # lack the rare ones, as the plain estimates do.
    half_width, number = 0.8, 200
    exact = truth(net, distribution, half_width)
    pairs = repetitions(net, distribution, half_width, count, number, sequences)
    for statistic, (value, error, worth) in estimates(pairs, exact).items():
        inside = np.mean(np.abs(value - exact[statistic]) <= 1.96 * error, axis=-1)
        least = 0.82 if statistic in {"skewness", "excess_kurtosis"} else 0.88
        assert np.all(inside >= least), (statistic, inside)
        if statistic in {"mean", "sd"} and not sequences:
            assert np.all(inside <= 0.99), (statistic, inside)
            # The spread of the estimates is known to 5%.
            scale = np.std(value) / np.sqrt(np.mean(error**2))
            assert abs(scale - 1) < 0.2, (statistic, scale)
            assert np.median(worth) > count, statistic


@pytest.mark.slow
def test_intervals_of_the_correlation_hold():
    # 200 repetitions as above.
    number = 200
    inputs = drawn_inputs("box", 0.8, (104, number), 0, 3)
    grid = grid_of_inputs("box", 0.8)
    nets = (tanh_net, leaky_net)
    jacobian = np.stack([slopes_at_zero(net) for net in nets])
    center = np.array([net(np.zeros(2)) for net in nets])
    lin = Linearization(center, jacobian, Input.box(np.zeros(2), 0.8))
    exact = np.corrcoef([net(grid) for net in nets])[0, 1]
    covariance = np.cov([net(grid) for net in nets])[0, 1]
    inside = np.zeros(2)
    for f in inputs.swapaxes(0, 1):
        network = np.stack([net(f) for net in nets], axis=1)
        found = paired_statistics(PairedDraws(f, network, center + f @ jacobian.T, lin, KEY))
        both = (found.correlation, exact), (found.covariance, covariance)
        for k, (part, right) in enumerate(both):
            inside[k] += abs(part.value[0, 1] - right) <= 1.96 * part.standard_error[0, 1]
    assert np.all((inside / number >= 0.88) & (inside / number <= 0.99)), inside / number


def test_an_exactly_linear_network_has_the_moments_of_its_distribution(precision):
    # f uniform on (-1, 1) twice: y[0] = f0 + f1 is triangular, y[1] = 2 f0 uniform.
    matrix = np.array([[1.0, 1.0], [2.0, 0.0]], precision)
    lin = linearize(lambda f: matrix @ f + 1, Input.box(np.zeros(2, precision), 1.0))
    pairs = paired_draws(lambda f: matrix @ f + 1, lin, KEY, 200, progress=False)
    found = paired_statistics(pairs)
    rounding = 3e-6 if precision == "float32" else 1e-12
    triangular = stats.triang(0.5, -1, 4)
    expected = {
        "mean": [1, 1],
        "variance": [2 / 3, 4 / 3],
        "sd": np.sqrt([2 / 3, 4 / 3]),
        "skewness": [0, 0],
        "excess_kurtosis": [-0.6, -1.2],
        "covariance": [[2 / 3, 2 / 3], [2 / 3, 4 / 3]],
        "correlation": [[1, np.sqrt(0.5)], [np.sqrt(0.5), 1]],
    }
    for name, value in expected.items():
        estimate = getattr(found, name)
        np.testing.assert_allclose(estimate.value, value, atol=rounding)
        assert (estimate.standard_error <= rounding).all()
        assert (estimate.worth > 1e9).all()
    quantile = found.quantile([0.1, 0.5])
    uniform = stats.uniform(-1, 4)
    np.testing.assert_allclose(
        quantile.value,
        np.stack([triangular.ppf([0.1, 0.5]), uniform.ppf([0.1, 0.5])], axis=1),
        atol=rounding,
    )
    beyond = found.exceedance([[2.0, 2.0], [9.0, 2.9]])
    np.testing.assert_allclose(
        beyond.value, [[triangular.sf(2), uniform.sf(2)], [0, uniform.sf(2.9)]], atol=rounding
    )
    for estimate in (quantile, beyond):
        assert (estimate.standard_error == 0).all()
        assert np.isinf(estimate.worth).all()


def test_a_network_linear_but_for_a_rare_kink_is_not_certain():
    lin = Linearization(np.zeros(1), np.ones((1, 1)), Input.box(np.zeros(1), 1.0))
    inputs = np.random.default_rng(0).uniform(-1, 1, (1000, 1))
    network = np.where(inputs > 0.99, inputs + 5, inputs)
    found = paired_statistics(PairedDraws(inputs, network, inputs, lin, KEY))
    # P(Y > 1) is 0.005; intervals elsewhere may be narrow, but none is a point.
    points = np.array([-0.9, 0.0, 0.9, 1.0, 3.0, 7.0])[:, None]
    value, error, _ = found.exceedance(points)
    assert (error > 0).all()
    right = np.array([0.95, 0.5, 0.05, 0.005, 0.005, 0])[:, None]
    assert (np.abs(value - right) < 3 * error).all()


def test_pairs_that_are_not_finite_are_left_out():
    # y = log f with f uniform on (-1, 1): given f > 0, -y is exponential with mean 1.
    lin = Linearization(np.zeros(2), np.ones((2, 1)), Input.box(np.zeros(1), 1.0))
    inputs = np.random.default_rng(0).uniform(-1, 1, (4000, 1))
    with np.errstate(invalid="ignore"):
        network = np.hstack([np.log(inputs), inputs])
    linear = np.hstack([inputs, inputs])
    found = paired_statistics(PairedDraws(inputs, network, linear, lin, KEY))
    distribution = stats.expon()
    checks = [
        (found.mean, [-1, 0]),
        (found.sd, [1, np.sqrt(1 / 3)]),
        (found.quantile(0.25), [-distribution.ppf(0.75), -0.5]),
        (found.exceedance([-2.0, 0.5]), [distribution.cdf(2), 0.25]),
    ]
    for estimate, right in checks:
        assert (np.abs(estimate.value - right) <= 4 * estimate.standard_error + 1e-6).all()
        assert estimate.standard_error[0] > 2e-4  # f says all about it
    # Given f > 0: Cov(log f, f) = 1/4, Var(f) = 1/12.
    correlation = found.correlation
    right = 0.25 / np.sqrt(1 / 12)
    assert abs(correlation.value[0, 1] - right) < 4 * correlation.standard_error[0, 1]


def test_too_few_pairs_say_nothing():
    pairs = repetitions(tanh_net, "box", 0.8, 40, 2)
    network = pairs.network.copy()
    network[5:, 0] = np.nan
    found = paired_statistics(dataclasses.replace(pairs, network=network))
    for estimate in (found.mean, found.skewness, found.quantile(0.5), found.exceedance(0.0)):
        assert np.isnan([part[0] for part in estimate]).all()
        assert np.isfinite([part[1] for part in estimate]).all()
    assert np.isnan(found.correlation.value[0]).all()


def test_a_constant_linear_model_says_nothing():
    inputs = np.random.default_rng(0).uniform(-1, 1, (200, 1))
    lin = Linearization(np.zeros(1), [[0.0]], Input.box(np.zeros(1), 1.0))
    network = inputs**2
    found = paired_statistics(PairedDraws(inputs, network, 0 * inputs, lin, KEY))
    np.testing.assert_allclose(found.mean.value, network.mean())
    np.testing.assert_allclose(found.variance.value, network.var(ddof=1), rtol=1e-3)
    np.testing.assert_allclose(found.mean.worth, 200, rtol=0.02)
    share = (network > 0.5).mean()
    np.testing.assert_allclose(found.exceedance(0.5).value, share, rtol=1e-12)
    error = np.sqrt(share * (1 - share) / 200 + 2 / 200**2)  # two draws are added
    np.testing.assert_allclose(found.exceedance(0.5).standard_error, error, rtol=0.02)


def test_draws_at_the_ends_of_the_support_have_statistics():
    # Rounding puts draws of a box there, whose normal scores are infinite.
    inputs = np.random.default_rng(0).uniform(-1, 1, (200, 1))
    inputs[:3] = [[1.0], [-1.0], [1.0 + 1e-7]]
    lin = Linearization(np.zeros(1), [[1.0]], Input.box(np.zeros(1), 1.0))
    found = paired_statistics(PairedDraws(inputs, inputs**3, inputs, lin, KEY))
    for estimate, right in ((found.quantile(0.9), 0.8**3), (found.exceedance(0.8**3), 0.1)):
        assert abs(estimate.value - right) < 4 * estimate.standard_error
        assert estimate.worth > 200


def test_wrong_arguments_are_named():
    statistics = paired_statistics(repetitions(tanh_net, "box", 0.8, 100, 3))
    for call, value, error, message in (
        (paired_statistics, np.zeros((100, 2)), TypeError, "pairs must be PairedDraws"),
        (statistics.quantile, "median", TypeError, "q must be an array of real numbers"),
        (statistics.quantile, 50, ValueError, r"q must be in \(0, 1\), got 50"),
        (statistics.exceedance, np.ones(2), ValueError, r"\(N_y,\) = \(3,\)"),
    ):
        with pytest.raises(error, match=message):
            call(value)
    with pytest.raises(TypeError, match="pairs must hold numbers, got traced values"):
        jax.jit(lambda y: paired_statistics(PairedDraws(y, y, y, None, KEY)).mean.value)(
            jnp.zeros((100, 1))
        )


def test_one_sobol_sequence_has_no_standard_error():
    found = paired_statistics(repetitions(tanh_net, "box", 0.8, 128, 2, sequences=1))
    for value, error, _ in (found.mean, found.quantile(0.5), found.exceedance(0.0)):
        assert np.isfinite(value).all()
        assert np.isnan(error).all()


@pytest.mark.slow
def test_a_batch_has_the_statistics_of_its_points():
    points = jnp.array([[0.2, -0.4], [1.0, 0.3], [-0.5, 0.1]])

    def network(x):
        return jnp.array([jnp.tanh(x[0] + x[1]), x[0] * x[1]])

    lin = linearize(network, Input.box(points, half_width=0.4))
    pairs = paired_draws(network, lin, KEY, 400, progress=False)
    found = paired_statistics(pairs)
    assert found.batch_shape == (3,)
    calls = {
        "sd": lambda s: s.sd,
        "correlation": lambda s: s.correlation,
        "quantile": lambda s: s.quantile([0.1, 0.5]),
        "exceedance": lambda s: s.exceedance(0.2),
    }
    for name, call in calls.items():
        for batch, alone in zip(call(found), call(paired_statistics(pairs[1])), strict=True):
            at = batch[:, 1] if name == "quantile" else batch[1]
            np.testing.assert_allclose(at, alone, rtol=1e-3, atol=1e-6, err_msg=name)
    with pytest.raises(ValueError, match=r"batch_shape \+ \(N_y,\) = \(3, 2\)"):
        found.exceedance(np.zeros(4))


def test_outputs_far_from_zero_are_not_taken_for_linear():
    """Single precision: all that the output varies by is less than a hundred roundings."""

    def net(x):
        return 101_325 + 0.7 * (x + x**2)

    lin = linearize(net, Input.box([0.0], half_width=1.0))
    found = paired_statistics(paired_draws(net, lin, KEY, 1000, progress=False))
    beyond = found.exceedance(np.array([101_325 + 0.7 * 1.1]))
    # x + x^2 > 1.1 beyond .6619.
    assert abs(beyond.value[0] - 0.169) < 4 * beyond.standard_error[0] < 0.02
    quantile = found.quantile(0.95)
    assert abs(quantile.value[0] - 101_326.196) < 4 * quantile.standard_error[0] < 0.1


@pytest.mark.slow
def test_intervals_where_a_branch_has_few_pairs():
    """A branch that the line does not predict has two pairs on average, and in 13% of keys none.

    Of 8,000 intervals 87.4% hold; fewer than 161 of 200 would with a probability of .002.
    """
    lin = linearize(lambda x: jnp.abs(x[:1] + 0.2), Input.normal(jnp.zeros(1), 1.0))
    truth = stats.norm.sf(1.85) + stats.norm.sf(2.25)
    held = 0
    for key in jax.random.split(jax.random.key(3), 200):
        pairs = paired_draws(lambda x: jnp.abs(x[:1] + 0.2), lin, key, 165, progress=False)
        found = paired_statistics(pairs).exceedance(np.array([2.05]))
        held += abs(found.value[0] - truth) <= 1.96 * found.standard_error[0]
    assert held >= 161


def test_a_plateau_is_not_exceeded_where_single_precision_rounds_it_up():
    def network(x):
        return jnp.clip(x[:1] + 0.3 * x[1:], -1.0, 0.1)

    linear = linearize(network, Input.normal(np.zeros(2, np.float32), 1.0))
    pairs = paired_draws(network, linear, jax.random.key(0), 1000, progress=False)
    assert abs(float(paired_statistics(pairs).exceedance(0.1).value[0])) < 0.01
