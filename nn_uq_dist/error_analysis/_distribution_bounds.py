r"""Bounds, with proof, on the distribution function of ``sum_k w_k U_k + s N``, in float64.

`nn_uq_dist.uniform_sum` is as accurate, but its accuracy was measured and not proved, and
JAX has no float64 unless it is enabled for the whole program. Here every error has a bound that is
added to the result, so that it is right whatever the numbers are; it is wide where they are hard.
"""

import itertools
import math

import numpy as np

from nn_uq_dist.basics.concrete import FloatArray

# Twice the unit roundoff.
EPS = float(np.finfo(np.float64).eps)
# Standard deviations beyond which Chernoff's bound, 2e-16, is all that is left.
FARTHEST = 8.5
_MOST_KEPT = 6
_NUM_NODES = (8, 16, 32, 64, 128, 512, 4096)
_NUMBERS_AT_ONCE = 2**20

type Bounds = tuple[FloatArray, FloatArray]


def distribution_bounds(
    y: FloatArray, weights: FloatArray, normal_scale: FloatArray, tolerance: float = 1e-12
) -> Bounds:
    r"""Lower and upper bounds on :math:`P(X \le y)` for the distribution of each row.

    Parameters
    ----------
    y
        Finite points, shape ``(M, Y)``.
    weights
        Weights of the uniform variables on (-1, 1), shape ``(M, n)``.
    normal_scale
        Standard deviations of the normal part, shape ``(M,)``.
    tolerance
        Distance of the bounds below which no more work is done for them.

    Notes
    -----
    With :math:`R = \min(\sum_k |w_k| + 8.5 s, 8.5\,\mathrm{sd})` as unit and the nodes
    :math:`t_k = (k + \tfrac12) \pi`,

    .. math::

        F(y) = \frac12 + \frac1\pi \sum_{k=0}^{K-1} \frac{\sin(t_k y)}{k + \frac12}
        e^{-s^2 t_k^2/2} \prod_j \frac{\sin w_j t_k}{w_j t_k} + \text{rest}

    (R. B. Davies, Biometrika 60, 1973). Aliases are at most the probability beyond R, which is at
    most :math:`e^{-8.5^2/2}` since the distribution is sub-Gaussian with its own variance. Later
    terms are at most those with :math:`|\sin x / x| \le \min(1, 1/x)`, whose sum is an integral.
    With few uniform variables they decay slowly; then the piecewise polynomial of the largest
    weights is used, and what is left moves y by its largest size.
    """
    scale = np.sqrt((weights**2).sum(axis=-1) / 3 + normal_scale**2)
    width = np.abs(weights).sum(axis=-1)
    slack = (weights.shape[-1] + 64) * EPS
    unit = np.minimum(width + FARTHEST * normal_scale, FARTHEST * scale) * (1 + slack)
    # Products of smaller numbers would underflow: such a distribution is one point, next to others.
    is_point = unit < 1e-140
    safe = np.where(is_point, 1.0, unit)
    w = -np.sort(-np.abs(weights), axis=-1) / safe[:, None]
    s, sd = normal_scale / safe, scale / safe
    # By symmetry all points are in the lower half.
    x = -np.abs(y) / safe[:, None]
    with np.errstate(under="ignore", over="ignore"):
        bound = np.exp(-(x**2) / (2 * sd[:, None] ** 2 + is_point[:, None]) * (1 - slack))
    bound = np.maximum(bound * (1 + 8 * EPS), 1e-300)
    beyond = np.where((s == 0)[:, None] & (x < -(width / safe)[:, None] * (1 + slack)), 0, bound)
    low, high = _lower_half(np.maximum(x, -1.0), w, s, tolerance)
    # Units and points were rounded; the density of a log-concave distribution is at most 1 / sd.
    rounding = 8 * FARTHEST * slack
    inside = x > -1
    low = np.where(inside, np.maximum(low - rounding, 0), 0)
    high = np.minimum(np.where(inside, np.minimum(high + rounding, 0.5), 2.3e-16), beyond)
    upper = y > 0
    low, high = np.where(upper, 1 - high - EPS, low), np.where(upper, 1 - low, high)
    # Squares of tiny weights are zero, their sum is not.
    largest = (width + FARTHEST * normal_scale)[:, None] * (1 + slack)
    return (
        np.where(is_point[:, None], np.where(y >= largest, 1 - 1e-15, 0.0), low),
        np.where(is_point[:, None], np.where(y >= -largest, 1.0, 1e-15), high),
    )


def _lower_half(x: FloatArray, w: FloatArray, s: FloatArray, tolerance: float) -> Bounds:
    """Bounds at points in (-1, 0) of distributions on (-1, 1), each by its better method."""
    low, high = np.zeros(x.shape), np.full(x.shape, 0.5)
    kept, polynomial_error = _number_kept(w, s)
    nodes, series_error = _number_of_nodes(w, s, tolerance)
    by_polynomial = (polynomial_error < tolerance) | (polynomial_error < series_error)
    for number in np.unique(kept[by_polynomial]):
        rows = np.flatnonzero(by_polynomial & (kept == number))
        rest = (w[rows, number:].sum(axis=-1) + FARTHEST * s[rows]) * (1 + (w.shape[1] + 8) * EPS)
        # What is left out moves the points by its largest size.
        below, first = _few_weights(x[rows] - rest[:, None], w[rows, :number])
        above, second = _few_weights(x[rows] + rest[:, None], w[rows, :number])
        low[rows], high[rows] = below - first - 1e-16, above + second + 1e-16
    for number in np.unique(nodes[~by_polynomial]):
        rows = np.flatnonzero(~by_polynomial & (nodes == number))
        portion = max(1, _NUMBERS_AT_ONCE // (int(number) * max(x.shape[1], 4)))
        for start in range(0, len(rows), portion):
            some = rows[start : start + portion]
            value = _series(x[some], w[some], s[some], int(number))
            error = series_error[some, None]
            low[some], high[some] = value - error, value + error
    return low, high


def _number_of_nodes(
    w: FloatArray, s: FloatArray, tolerance: float
) -> tuple[np.ndarray, FloatArray]:
    """How many nodes each distribution needs, and a bound on all errors of the series."""
    nodes, error = np.full(len(w), _NUM_NODES[0]), np.full(len(w), np.inf)
    for number in _NUM_NODES:
        t = (number - 0.5) * math.pi
        large = np.maximum(w * t, 1.0)
        power = np.maximum((w * t >= 1).sum(axis=-1), (s * t) ** 2)
        with np.errstate(divide="ignore", under="ignore"):
            rest = np.exp(-np.log(large).sum(axis=-1) - (s * t) ** 2 / 2) / (math.pi * power)
        # Each sine and product is off by a few EPS, each argument by EPS times itself.
        rounding = EPS * (8 * (w.shape[1] + 4) * (math.log(number) + 4) + 8 * number)
        total = rest + rounding + 4e-16
        better = (error > tolerance) & (total < error)
        nodes, error = np.where(better, number, nodes), np.where(better, total, error)
    return nodes, error


def _series(x: FloatArray, w: FloatArray, s: FloatArray, number: int) -> FloatArray:
    t = (np.arange(number) + 0.5) * math.pi
    with np.errstate(under="ignore"):
        transform = np.exp(-((s[:, None] * t) ** 2) / 2) / (np.arange(number) + 0.5)
        for column in w.T:
            if np.any(column):
                transform *= np.sinc(column[:, None] * t / math.pi)
    return 0.5 + (np.sin(x[..., None] * t) @ transform[..., None])[..., 0] / math.pi


def _number_kept(w: FloatArray, s: FloatArray) -> tuple[np.ndarray, FloatArray]:
    """How many of the largest weights the polynomial should keep, and about how far it is off."""
    kept, error = np.ones(len(w), int), np.full(len(w), np.inf)
    volume = np.ones(len(w))
    for number in range(1, min(_MOST_KEPT, w.shape[1]) + 1):
        largest = w[:, number - 1]
        volume = volume * 2 * number * largest
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            rounding = 2.0**number * (number + 2) ** 2 * EPS / volume
            rest = (w[:, number:].sum(axis=-1) + FARTHEST * s) / w[:, 0]
        total = np.where(largest > 0, rounding + rest, np.inf)
        better = total < error
        kept, error = np.where(better, number, kept), np.where(better, total, error)
    return kept, error


def _few_weights(x: FloatArray, w: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Distribution function as a sum over the corners of the box, and a bound on its error."""
    number = w.shape[1]
    value, size = np.zeros(x.shape), np.zeros(x.shape)
    for signs in itertools.product((1.0, -1.0), repeat=number):
        depth = np.maximum(x + (w @ np.array(signs))[:, None], 0)
        power = depth ** (number - 1)
        value += math.prod(signs) * power * depth
        size += power
    volume = np.prod(2 * np.arange(1, number + 1) * w, axis=-1)[:, None]
    operations = 4 * number * (number + 2) + 2**number + 8
    error = 2 * operations * EPS * (size + 2.0**number * EPS) * (1 + np.abs(x)) / volume
    return value / volume, error
