"""Guaranteed bounds: never violated by draws, by search or by exact results; tight where easy."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import nn_uq_dist as nuq
from tests.benchmarks._certified_cases import (
    Case,
    farthest_outside,
    forward,
    gradient,
    random_case,
    random_network,
)


def require_sound(case, bounds, seed, count=20_000):
    """Empirical distribution function, quantiles and mean inside of the bounds, by 4.5 errors."""
    draws = np.sort(case.draws(count, seed))
    y = draws[:: count // 50]
    low, high = bounds.cdf_bounds(y)
    # The DKW inequality: farther off anywhere than this with probability 2e-9.
    margin = np.sqrt(10.4 / count)
    share = np.searchsorted(draws, y, side="right") / count
    assert np.all((low <= share + margin) & (share <= high + margin) & (low <= high))
    least, most = bounds.mean_bounds
    error = 4.5 * draws.std() / np.sqrt(count)
    assert least - error <= draws.mean() <= most + error
    q = np.array([0.05, 0.5, 0.95])
    a, b = bounds.quantile_bounds(q)
    assert np.all(np.mean(draws[:, None] < a, axis=0) <= q + margin)
    assert np.all(np.mean(draws[:, None] <= b, axis=0) >= q - margin)


@pytest.mark.slow
def test_no_bound_is_violated_by_draws():
    for seed in range(8):
        case = random_case(seed)
        bounds = nuq.certified(case.net, case.distribution)
        require_sound(case, bounds, seed)
        if seed % 4 == 2:
            require_sound(case, bounds.refine(40, progress=False), seed)


def test_ranges_and_affine_bounds_hold_where_search_leads():
    for seed in (0, 12):
        assert farthest_outside(random_case(seed), 30, seed) < 1e-13


def test_a_network_that_cannot_flip_has_the_distribution_of_its_tangent():
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(5, 3))
    net = nuq.LeakyReLUNetwork([weights], [np.full(5, 100.0)], rng.normal(size=(1, 5)))
    box = nuq.Input.box(np.zeros(3), 1.0)
    bounds = nuq.certified(net, box + nuq.Input.normal(np.zeros(3), 0.1))
    assert bounds.gap < 1e-4  # normal variables have no bounded range: neurons could flip
    bounds = nuq.certified(net, box)
    assert bounds.gap < 1e-9
    assert bounds.error_bound < 1e-9
    exact = nuq.linearize(net, box).marginals().icdf(jnp.array([[0.1], [0.9]]))[:, 0]
    for found in bounds.quantile_bounds([0.1, 0.9]):
        np.testing.assert_allclose(found, exact, rtol=1e-5)


def test_parts_close_the_gap_of_an_absolute_value():
    # |x| for x uniform on (-1, 1) is uniform on (0, 1).
    net = nuq.LeakyReLUNetwork([[[1.0], [-1.0]]], [[0.0, 0.0]], [[1.0, 1.0]], 0.0)
    bounds = nuq.certified(net, nuq.Input.box([0.0], half_width=1.0)).refine(2, progress=False)
    low, high = bounds.cdf_bounds([-0.1, 0.25, 0.5, 1.1])
    np.testing.assert_allclose(low, [0, 0.25, 0.5, 1], atol=1e-9)
    np.testing.assert_allclose(high, [0, 0.25, 0.5, 1], atol=1e-9)
    np.testing.assert_allclose(bounds.mean_bounds, 0.5, rtol=1e-12)
    # The tangent of the first of the two slopes at zero.
    assert bounds.error_bound == pytest.approx(1.0)


def test_a_rare_event_is_bounded_on_both_sides():
    rng = np.random.default_rng(3)
    case = Case(random_network(rng, 2, 16, 1, 0.01), nuq.Input.box(np.zeros(2), half_width=1.0))
    limit = np.quantile(case.draws(1_000_000, 1), 1 - 1e-4)
    bounds = nuq.certified(case.net, case.distribution)
    bounds = bounds.refine(400, threshold=float(limit), gap=2e-6, progress=False)
    low, high = bounds.probability_bounds(limit, np.inf)
    assert high - low <= 4e-6
    assert abs(1e-4 - (low + high) / 2) < 5 * 1e-5 + 4e-6
    both = bounds.probability_bounds(-np.inf, limit)
    np.testing.assert_allclose(both, (1 - high, 1 - low), rtol=1e-12)


def test_parts_of_one_kink_end_before_their_centers_are_rounded():
    net = nuq.LeakyReLUNetwork([[[1.0], [-1.0]]], [[0.1, 0.1]], [[1.0, 1.0]], 0.0)
    distribution = nuq.Input.box([0.3], half_width=0.7)
    bounds = nuq.certified(net, distribution).refine(500, threshold=0.3, progress=False)
    center, radius = (part[:, 0] for part in bounds._covers[-1].boxes)
    order = np.argsort(center)
    assert np.array_equal((center - radius)[order], np.r_[-1, (center + radius)[order][:-1]])
    assert radius.min() > 2.0**-53
    # The output exceeds 0.3 where |x| exceeds 0.2.
    np.testing.assert_allclose(bounds.probability_bounds(0.3, np.inf), 5 / 7, rtol=1e-7)


def test_the_error_bound_is_that_of_the_output_and_falls_with_parts():
    output, rng = 7, np.random.default_rng(2)
    net = random_network(rng, 8, 16, 4, 0.1)
    net = nuq.LeakyReLUNetwork(net.hidden_weights, net.biases, rng.normal(size=(8, 16)), 0.1, True)
    distribution = nuq.Input.box(rng.normal(size=8), half_width=0.2)
    x = np.asarray(distribution.sample(jax.random.key(0), (20_000,)), float)
    tangent = gradient(net, np.asarray(distribution.mean, float)[None], output)[0]
    error = forward(net, x) - forward(net, np.asarray(distribution.mean, float)[None])
    largest = np.abs(error[:, output] - (x - distribution.mean) @ tangent).max()
    first = nuq.certified(net, distribution, output=output)
    second = first.refine(200, progress=False)
    assert largest <= second.error_bound <= first.error_bound <= 10 * largest


def test_sums_of_inputs_and_modules_that_can_be_read():
    def network(x):
        return jnp.sum(jax.nn.relu(x - 0.1), keepdims=True)

    distribution = nuq.Input.triangular(jnp.array([-1.0, 0.0]), jnp.array([1.0, 3.0]))
    bounds = nuq.certified(network, distribution).refine(100, progress=False)
    x = np.asarray(distribution.sample(jax.random.key(0), (100_000,)), float)
    share = np.mean(np.maximum(x - 0.1, 0).sum(axis=1)[:, None] <= [0.5, 1.5, 2.5], axis=0)
    low, high = bounds.cdf_bounds([0.5, 1.5, 2.5])
    assert np.all((low <= share + 0.01) & (share <= high + 0.01))
    assert bounds.gap < 0.2


def test_refining_keeps_what_is_known_and_repr_says_how_tight_it_is(bars):
    case = random_case(8)
    first = nuq.certified(case.net, case.distribution)
    second = first.refine(30)
    assert (bars[-1].n, bars[-1].total) == (30, 30)
    y = np.quantile(case.draws(1000, 0), np.linspace(0, 1, 9))
    (a, b), (c, d) = first.cdf_bounds(y), second.cdf_bounds(y)
    assert np.all((a <= c) & (d <= b))
    assert second.num_parts == 30
    assert "num_parts=30" in repr(second)
    assert second.refine(30, progress=False) is second
    assert y.dtype == second.cdf_bounds(jnp.float32(0.0))[0].dtype == np.float64


# Of the sums here, in float64.
ROUNDING = 1e-13


def with_zeros(x, h):
    """Sorted points x, and the zeros of functions with values h that are linear between them."""
    first, second = h[:-1], h[1:]
    at, which = np.nonzero(first * second < 0)
    share = first[at, which] / (first[at, which] - second[at, which])
    return np.unique(np.concatenate([x, x[at] + share * (x[at + 1] - x[at])]))


def probability(net, distribution, y):
    """The probability that the output is at most y."""
    is_bounded = distribution.dist.name == "uniform"
    x = np.array(distribution.support() if is_bounded else distribution.ppf([1e-20, 1 - 1e-16]))
    for layer in range(net.num_layers):
        signal, layers = x[:, None], zip(net.hidden_weights, net.biases, strict=True)
        for weights, bias in itertools.islice(layers, layer + 1):
            h = signal @ np.asarray(weights, float).T + np.asarray(bias, float)
            signal = np.maximum(h, float(net.negative_slope) * h)
        x = with_zeros(x, h)
    x = with_zeros(x, forward(net, x[:, None]) - y)
    below = forward(net, (x[1:] + x[:-1])[:, None] / 2)[:, 0] <= y
    return np.sum(np.diff(distribution.cdf(x)) * below)


@pytest.mark.parametrize("seed", [0, 2, 4])
def test_exact_distribution_functions_lie_between_the_bounds(seed):
    rng = np.random.default_rng(seed)
    num_layers, slope = int(rng.integers(1, 4)), float(rng.choice([0, 0.01, 0.3]))
    net = random_network(rng, 1, int(rng.integers(2, 17)), num_layers, slope)
    center, size = (float(np.float32(part)) for part in (rng.normal(), np.exp(rng.uniform(-3, 1))))
    if seed % 3 == 2:
        distribution = scipy.stats.norm(center, size)
        bounds = nuq.certified(net, nuq.Input.normal([center], size))
    else:
        distribution = scipy.stats.uniform(center - size, 2 * size)
        box = nuq.Input.box([center], half_width=size)
        bounds = nuq.certified(net, box).refine(300, progress=False)
        assert bounds.gap < 1e-9
    draws = forward(net, distribution.rvs((2000, 1), random_state=seed))[:, 0]
    for y in np.quantile(draws, [0.01, 0.2, 0.37, 0.5, 0.8, 0.99]):
        low, high = bounds.cdf_bounds(y)
        assert low - ROUNDING <= probability(net, distribution, y) <= high + ROUNDING


BOX = nuq.Input.box(np.zeros(3), half_width=0.1)
NET = random_network(np.random.default_rng(0), 3, 4, 1, 0.01)
TWO = nuq.LeakyReLUNetwork([np.ones((2, 3))], [np.zeros(2)], np.eye(2))


def refined(*args, **kwargs):
    return nuq.certified(NET, BOX).refine(*args, **kwargs)


WRONG = (
    (lambda: nuq.certified(jnp.tanh, BOX), ValueError, "got"),
    (lambda: nuq.certified(TWO, BOX), ValueError, "output must be from 0 to 1, got None"),
    (lambda: nuq.certified(NET, BOX.expand((2,))), ValueError, "in a loop"),
    (lambda: nuq.certified(NET, nuq.Input.box(np.zeros(2), half_width=1.0)), ValueError, "N_x"),
    (lambda: nuq.certified(NET, nuq.Input.box(np.zeros(3), 0.0)), ValueError, "rand"),
    (lambda: nuq.certified(jax.tree.map(lambda a: a * np.nan, NET), BOX), ValueError, "finite"),
    (lambda: refined(0), ValueError, "max_parts"),
    (lambda: refined(9, gap=-1.0), ValueError, "gap"),
    (lambda: refined(9, threshold=np.nan), ValueError, "threshold"),
    (lambda: refined(1).cdf_bounds([0.0, np.nan]), ValueError, "NaN"),
    (lambda: refined(1).quantile_bounds(1.5), ValueError, "0, 1"),
    (lambda: refined(1).probability_bounds(1.0, 0.0), ValueError, "exchange"),
    (lambda: jax.jit(refined(1).cdf_bounds)(0.0), TypeError, "traced"),
    (
        lambda: nuq.certified(NET, nuq.Input.normal(np.zeros(3), 1.0)).refine(2),
        ValueError,
        "uniform",
    ),
)


@pytest.mark.parametrize(("call", "error", "message"), WRONG)
def test_bad_input_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.usefixtures("x64")
def test_products_that_underflow():
    # Of exact outputs 1e-400 max(x, 0), half are positive.
    net = nuq.LeakyReLUNetwork([[[1e-200]]], [[0.0]], [[1e-200]], 0.0)
    for f in (nuq.Input.box([0.0], half_width=1.0), nuq.Input.normal([0.0], 1.0)):
        low, high = nuq.certified(net, f).cdf_bounds(np.array([-1e-290, 0.0, 1e-290]))
        assert np.all(low <= [0, 0.5, 1])
        assert np.all(high >= [0, 0.5, 1])


@pytest.mark.usefixtures("x64")
def test_numbers_too_large_are_refused():
    net = nuq.LeakyReLUNetwork(
        [np.full((4, 3), 1e200), np.full((4, 4), 1e200)], [np.ones(4)] * 2, np.ones((1, 4))
    )
    with pytest.raises(ValueError, match="scale the"):
        nuq.certified(net, BOX)
