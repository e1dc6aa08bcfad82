r"""Parts of the standard variables of an input: how many of each, centers, widths, probabilities.

A uniform variable on (-1, 1) is exactly the sum of a variable on ``M`` equidistant points and a
uniform variable on (-1/M, 1/M). A normal variable is nearly such a sum: see `normal_parts`.

Which variables are split depends on how the Jacobian changes along them. In a part where variable
``k`` has variance :math:`v_k`, the mean square error of a linearization of output ``j`` is about

.. math:: e_j = \sum_k \tfrac14 H_{jkk}^2\, c_k v_k^2 + \sum_{k < l} H_{jkl}^2\, v_k v_l

with its second derivatives ``H`` and :math:`c_k = E[u^4]/v^2`, 9/5 for uniform and 3 for normal
variables. The squares of the derivatives are mean squares of differences of Jacobians over half of
the input: at the mean alone, the second derivatives of an odd function are zero.
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.optimize import minimize_scalar
from scipy.special import ndtr

from nn_uq_dist.basics._known_values import FloatArray

MOST_NORMAL_PARTS = 32
# With fewer parts all widths are equal: a pair of wider parts would hold too much of the law.
_FEWEST_WITH_WIDE_PAIR = 6
# Centers are a little farther apart towards the tails; nearly optimal for any number of parts.
_STRETCH = 0.13
_SPACING = 1.72
# Points at which tails are fitted, and the weight of a relative tail error against an error of the
# distribution function.
_TAILS = np.array([2.5, 3.0, 3.5, 4.0, 4.5])[:, None]
_TAIL_WEIGHT = 5e-4
# Offsets at which Jacobians are compared with that at the mean.
UNIFORM_OFFSET = 0.6
NORMAL_OFFSET = 1.2
# Errors below 1e-4 standard deviations are accepted.
_NEGLIGIBLE = 1e-8


class NormalParts(NamedTuple):
    """Centers, probabilities and standard deviations of the parts.

    Attributes
    ----------
    centers, probabilities, scales : numpy.ndarray, shape (M,)
    """

    centers: FloatArray
    probabilities: FloatArray
    scales: FloatArray

    @property
    def mean_square(self) -> float:
        """Root of the mean of the squared variances; errors of second order grow with it."""
        return math.sqrt(float(self.probabilities @ self.scales**4))


def normal_parts(count: int) -> NormalParts:
    r"""Split a standard normal law: :math:`N(0, 1) \approx \sum_i p_i N(a_i, s_i^2)`.

    No mixture of finitely many narrower normal laws is normal. Mean, variance and odd moments are
    exact. A single part is the law itself. With more parts, their standard deviation and the
    largest error of the distribution function are

    =====================  ====  ====  ====  ====  ====  ====  ====
    parts                  2     3     4     6     8     16    32
    =====================  ====  ====  ====  ====  ====  ====  ====
    standard deviation     .85   .81   .65   .53   .41   .21   .11
    distribution function  5e-3  6e-4  8e-4  9e-4  4e-4  2e-4  1e-4
    =====================  ====  ====  ====  ====  ====  ====  ====

    With six parts or more, the outermost two are wider than the others, and tail probabilities are
    within 45% of the exact ones out to 4.5 standard deviations. With fewer parts they are too small
    beyond 3 standard deviations, by a quarter to a half at 3.5. Far enough out they are always too
    small.

    Notes
    -----
    Gauss-Hermite nodes, which match the most moments, are a worse choice: for equal widths their
    errors are ten to forty times as large, since their outermost parts have almost no probability.
    Here the centers are nearly equidistant, and the probabilities fit the distribution function and
    its tails by least squares.
    """
    if count == 1:
        return NormalParts(np.zeros(1), np.ones(1), np.ones(1))
    if count == 2:
        scale = 0.85
        center = math.sqrt(1 - scale**2)
        return NormalParts(np.array([-center, center]), np.full(2, 0.5), np.full(2, scale))
    if count < _FEWEST_WITH_WIDE_PAIR:
        scale = min(0.81, 3.4 / (count + 1.2))
        places = _places(count)
        bounds = (0.8 * scale, 2.8 * scale)
        spacing = _best(lambda h: _fit(h * places, np.full(count, scale))[1], bounds)
        return _fit(spacing * places, np.full(count, scale))[0]
    scale = 3.6 / (count + 0.8)
    inner = _SPACING * scale * _places(count - 2, count)

    def with_pair(outer: float) -> tuple[NormalParts, float]:
        # Matches the slope of the log normal density at 4.
        wide = math.sqrt(1 - outer / 4)
        centers = np.concatenate([[-outer], inner, [outer]])
        scales = np.concatenate([[wide], np.full(count - 2, scale), [wide]])
        return _fit(centers, scales)

    outer = _best(lambda outer: with_pair(outer)[1], (inner[-1], max(3.2, inner[-1] + 0.1)))
    return with_pair(outer)[0]


def _places(count: int, of: int | None = None) -> FloatArray:
    place = np.arange(count) - (count - 1) / 2
    return place + _STRETCH * place**3 / ((of or count) / 2) ** 2


def _best(error: Callable[[float], float], bounds: tuple[float, float]) -> float:
    return float(minimize_scalar(error, bounds=bounds, method="bounded", options={"xatol": 1e-4}).x)


def _fit(centers: FloatArray, scales: FloatArray) -> tuple[NormalParts, float]:
    """Probabilities by least squares, with given sum and variance, and the largest errors."""
    count = len(centers)
    half, widths = centers[count // 2 :], scales[count // 2 :]

    def below(points: FloatArray) -> FloatArray:
        """Distribution function of each pair of parts."""
        pair = ndtr((points - half) / widths) + ndtr((points + half) / widths)
        return np.asarray(pair / 2)

    points = np.linspace(0, 6, 301)[:, None]
    bulk, tails = below(points), below(-_TAILS) / ndtr(-_TAILS)
    weight = _TAIL_WEIGHT * math.sqrt(len(points) / len(_TAILS))
    columns = np.concatenate([bulk, weight * tails])
    wanted = np.concatenate([ndtr(points[:, 0]), np.full(len(_TAILS), weight)])
    exact = np.stack([np.ones(len(half)), half**2 + widths**2])
    size = len(half)
    system = np.zeros((size + 2, size + 2))
    system[:size, :size] = columns.T @ columns + 1e-12 * np.eye(size)
    system[:size, size:], system[size:, :size] = exact.T, exact
    pairs = np.linalg.lstsq(system, np.concatenate([columns.T @ wanted, [1, 1]]))[0][:size]
    error = np.abs(bulk @ pairs - ndtr(points[:, 0])).max()
    error = error + _TAIL_WEIGHT * np.abs(np.log(np.maximum(tails @ pairs, 1e-9))).max()
    error = error + 10 * max(0.0, -float(pairs.min()))
    # A pair shares its probability; a center at zero has no partner.
    upper = pairs / 2 if count % 2 == 0 else np.concatenate([pairs[:1], pairs[1:] / 2])
    lower = upper[::-1] if count % 2 == 0 else upper[:0:-1]
    return NormalParts(centers, np.concatenate([lower, upper]), scales), float(error)


class Parts(NamedTuple):
    """Parts in standard variables: uniform ones on (-1, 1) first, then normal ones.

    Attributes
    ----------
    centers : Array, shape (M, K)
    scales : Array, shape (M, K)
        Width of the part in each variable, in units of the width of the whole.
    probabilities : Array, shape (M,)
    """

    centers: Array
    scales: Array
    probabilities: Array


def grid_parts(splits: tuple[int, ...], num_uniform: int, dtype: jnp.dtype) -> Parts:
    """All combinations of the parts of each variable."""
    axes = [_parts_of(count, k < num_uniform) for k, count in enumerate(splits)]
    places = np.indices(splits).reshape(len(splits), -1)
    centers, probabilities, scales = (
        np.stack([axis[i][place] for axis, place in zip(axes, places, strict=True)], axis=-1)
        for i in range(3)
    )
    product = np.prod(probabilities, axis=-1)
    return Parts(*(jnp.asarray(part, dtype) for part in (centers, scales, product)))


def _parts_of(count: int, is_uniform: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if not is_uniform:
        return normal_parts(count)
    centers = (2 * np.arange(count) + 1 - count) / count
    return centers, np.full(count, 1 / count), np.full(count, 1 / count)


class Curvature(NamedTuple):
    """The properties of a network on which the choice depends.

    Attributes
    ----------
    slopes : numpy.ndarray, shape (N_y, K)
        Derivatives in the standard variables.
    squares : numpy.ndarray, shape (N_y, K, K)
        Squares of second derivatives.
    num_uniform : int
        How many of the variables are uniform; they come first.
    """

    slopes: FloatArray
    squares: FloatArray
    num_uniform: int

    @property
    def whole(self) -> FloatArray:
        """Variances of the variables."""
        count = self.slopes.shape[-1]
        return np.where(np.arange(count) < self.num_uniform, 1 / 3, 1.0)

    def error(self, variances: FloatArray) -> float:
        """Mean square error of linearizations over the variance, averaged over the outputs."""
        left = self._left_out(variances)
        total = self.slopes**2 @ self.whole + self._left_out(self.whole)
        return float(np.mean(np.where(total > 0, left / np.where(total > 0, total, 1), 0)))

    def _left_out(self, variances: FloatArray) -> FloatArray:
        kurtosis = np.where(np.arange(len(variances)) < self.num_uniform, 9 / 5, 3.0)
        # Half of the sum over pairs in both orders.
        factors = np.outer(variances, variances) / 2
        np.fill_diagonal(factors, kurtosis * variances**2 / 4)
        return np.einsum("jkl,kl->j", self.squares, factors)


def choose_splits(curvature: Curvature, num_parts: int) -> tuple[int, ...]:
    """Parts along each variable, at most ``num_parts`` in total.

    In each step, one more part goes to the variable that lowers the error most for its cost.
    """
    splits = np.ones(len(curvature.whole), int)

    @functools.cache  # of this call
    def of_normal(count: int) -> float:
        return normal_parts(count).mean_square

    def relative(k: int, count: int) -> float:
        return 1 / count**2 if k < curvature.num_uniform else of_normal(count)

    while True:
        shares = np.array([relative(k, int(count)) for k, count in enumerate(splits)])
        variances = curvature.whole * shares
        error = curvature.error(variances)
        product = np.prod(splits.astype(float))
        gains = np.full(len(splits), -np.inf)
        for k, count in enumerate(splits):
            most = num_parts if k < curvature.num_uniform else min(num_parts, MOST_NORMAL_PARTS)
            if count >= most or product / count * (count + 1) > num_parts:
                continue
            changed = variances.copy()
            changed[k] = curvature.whole[k] * relative(k, int(count) + 1)
            gains[k] = (error - curvature.error(changed)) / np.log1p(1 / count)
        if error <= _NEGLIGIBLE or not (gains.max() > 0):
            return tuple(int(count) for count in splits)
        splits[np.argmax(gains)] += 1
