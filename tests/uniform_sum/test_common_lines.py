"""Many points of one distribution, or of thousands of weights: accuracy, derivatives, memory."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nn_uq_dist import uniform_sum as lc
from tests.array_sizes import largest_array
from tests.bank.reference import float_log_values
from tests.compiling import jit

# Distinct weights and how many there are of each: few distinct ones keep the reference quick.
WEIGHTS = {
    "a_thousand_equal": ([1.0], [1024]),
    "an_image": ([0.5, 1.0, 1.5], [3000, 3000, 1000]),
    "few_large": ([1.0, 0.01], [6, 3000]),
    "more_large_than_kept": ([1.0, 0.125, 1e-3], [200, 900, 2000]),
    "most_zero": ([1.0, 0.5, 0.0], [20, 60, 2000]),
}


def distribution_of(name, dtype):
    values, numbers = WEIGHTS[name]
    weights = np.repeat(np.asarray(values, dtype), numbers)
    order = np.random.default_rng(0).permutation(len(weights))
    signs = np.where(np.arange(len(weights)) % 2, -1, 1).astype(dtype)
    return weights[order] * signs


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "normal_scale", "precision"),
    [
        ("a_thousand_equal", None, "float64"),
        ("an_image", 0.5, "float64"),
        ("an_image", 0.5, "float32"),
        ("few_large", None, "float64"),
        ("more_large_than_kept", 0.5, "float64"),
        ("most_zero", None, "float32"),
    ],
    indirect=["precision"],
)
def test_values_match_mpmath(name, normal_scale, precision):
    weights = distribution_of(name, precision)
    deviation = np.sqrt(np.sum(weights.astype(float) ** 2) / 3 + (normal_scale or 0) ** 2)
    edge = np.sum(np.abs(weights), dtype=float)
    points = [0.0, 0.3 * deviation, 2 * deviation, 6 * deviation, 0.7 * edge]
    points = np.asarray(points, precision)
    points = points[points < 0.9 * edge]
    scale = () if normal_scale is None else (np.asarray(normal_scale, precision),)
    found = np.array(lc.logpdf_and_logsf(points, weights, *scale))
    # An exact sum for few distinct weights and no normal part.
    expected = float_log_values(points, weights, normal_scale, 25)
    error = np.abs(found - expected) / np.maximum(1, np.abs(expected) / 10)
    # All factors at a node share one rounding of t/z, which adds up over the weights.
    assert error.max() < max(len(weights) * np.finfo(precision).eps, 1e-12)


# Twelve and thirty weights: lines with many nodes, and with few.
FEW = {12: np.repeat([1.0, -0.5, 0.25], 4), 30: np.repeat([1.0, -0.75, 0.5], 10)}
# The least distance is nearer to the edge than the last line.
GAPS = {"float32": [1e-7, 1e-3, 0.1], "float64": [1e-14, 1e-6, 1e-3, 0.1]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "normal_scale", "precision"),
    [(12, None, "float32"), (12, None, "float64"), (12, 0.05, "float64"), (30, 2.0, "float32")],
    indirect=["precision"],
)
def test_both_functions_from_the_center_to_beyond_the_last_line(count, normal_scale, precision):
    weights = FEW[count].astype(precision)
    edge = np.sum(np.abs(weights), dtype=float)
    # Points closer to the edge than the last line, and with a normal part far beyond the edge.
    points = [0.0, 0.3 * edge, 0.8 * edge, *(edge * (1 - np.array(GAPS[precision])))]
    if normal_scale:
        points = [0.0, 0.8 * edge, edge + normal_scale, edge + 200 * normal_scale]
    points = np.unique(np.asarray(points, precision))
    crowd = np.concatenate([points, np.linspace(-0.9, 0.9, 500, dtype=precision) * edge])
    scale = None if normal_scale is None else np.asarray(normal_scale, precision)
    expected = float_log_values(points, weights, normal_scale, 16)
    bar = {"float32": 5e-5, "float64": 2e-13}[precision]
    near = points < edge * (1 - 1e-3)
    # Under `jit` and with concrete numbers; the lower tail mirrors the upper one.
    for function in (jit(lc.logpdf_and_logsf), lc.logpdf_and_logsf)[count == 30 :]:
        found = np.array(function(crowd, weights, scale))[:, : len(points)]
        error = np.abs(found - expected) / np.maximum(1, np.abs(expected) / 10)
        assert error[:, near].max() < bar
        # The log density close to the edge has the rounding of the point, n eps / gap.
        assert np.all(np.isfinite(found))
    below = np.array(lc.logcdf(-crowd, weights, scale))
    np.testing.assert_array_equal(below, np.array(lc.logsf(crowd, weights, scale)))


@pytest.mark.slow
def test_improper_points_and_distributions_leave_others_alone():
    rng = np.random.default_rng(3)
    weights = rng.normal(size=(4, 1, 12)).astype(np.float32)
    edge = float(np.abs(weights[0]).sum())
    y = np.linspace(-0.9, 0.9, 800, dtype=np.float32) * edge  # enough for lines
    expected = np.array(lc.logpdf(y, weights[0]))
    y[[3, 50, 70]] = [np.nan, np.inf, 1.5 * edge]
    weights[1], weights[2, 0, 0], weights[3, 0, 5] = 0.0, np.nan, np.inf
    for function in (lc.logpdf, jit(lc.logpdf)):
        found = np.array(function(y, weights))
        assert np.isnan(found[1:]).all()
        assert np.isnan(found[0, 3])
        assert np.isneginf(found[0, [50, 70]]).all()
        others = np.delete(found[0] - expected, [3, 50, 70])
        assert np.abs(others).max() < 1e-4


@pytest.mark.slow
def test_derivatives_are_those_of_finite_differences_in_mpmath(x64):
    """Of equal weights; the slope in one of them is a thousandth of that in all."""
    weights, y, scale = distribution_of("a_thousand_equal", float), np.array([3.0, 40.0]), 0.5

    def total(y, w, s):
        return jnp.sum(jnp.array([1.0, -2.0]) * lc.logpdf(y, w, s))

    def reference(y, size, s):
        values = float_log_values(y, size * np.abs(weights), s, 30)[0]
        return values @ [1.0, -2.0]

    of_y, of_weights, of_scale = jit(jax.grad(total, (0, 1, 2)))(y, weights, scale)
    sizes = np.abs(of_weights)
    assert np.ptp(sizes) < 1e-9 * sizes.max()
    found = np.array([of_y[0], of_y[1], of_weights @ weights, of_scale])
    arguments = [3.0, 40.0, 1.0, 0.5]
    expected = []
    for k, value in enumerate(arguments):
        step = 1e-5 * value
        ends = [[*arguments[:k], value + e, *arguments[k + 1 :]] for e in (step, -step)]
        above, below = (reference(np.array(end[:2]), *end[2:]) for end in ends)
        expected.append((above - below) / (2 * step))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_no_array_is_much_larger_than_the_weights():
    def total(points, w):
        return jnp.sum(lc.logpdf(np.zeros(points), w))

    image = jax.ShapeDtypeStruct((10, 150_528), np.float32)
    # Four numbers for each weight of the points of a block.
    assert largest_array(jax.grad(partial(total, (100, 10))), image) <= 2**23
    many = jax.ShapeDtypeStruct((1_000_000, 31), np.float32)
    assert largest_array(partial(total, 1_000_000), many) <= 31_000_000
