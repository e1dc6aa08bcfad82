"""Mixtures of normals in standard normal space: draws, densities, fits to weighted draws.

With few draws and many variables a sample covariance is mostly noise. A component therefore has
variances of its own only in directions in which the draws show more or less than chance would; in
all others it has variance one, as the space itself.
"""

import dataclasses
import math
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtri_exp

from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.inference._importance_weights import ess, kmeans_plus_plus, log_sum, systematic

# Variances of a component: narrower ones give weights without bound, wider ones hit nothing.
_LEAST_VARIANCE, _MOST_VARIANCE = 1e-12, 25.0
_PRECISIONS = 0.5, 30.0  # least and most of a fit by slopes
_EM_STEPS = 15
# A component has at least this many effective draws, and at least this share.
_LEAST_DRAWS, _LEAST_SHARE = 8.0, 0.01
# Below this many effective draws one component is fitted.
_FEW_DRAWS = 20.0
# What one variance more or less than chance means: the range of Marchenko and Pastur, widened.
_MARGIN = 0.1
# Log densities of all components at once, and those that shares are balanced by.
_NUMBERS_AT_ONCE, _MOST_BALANCED = 2**18, 2**22
_BALANCE_STEPS = 30  # for the shares of less variance
# How much of the shares stays: most in few variables, where wide components hold what the others
# leave, less for each of them. With one half throughout, the errors of half-spaces in 12 and 31
# variables are 1.3 times as large.
_MOST_FIXED, _LEAST_FIXED = 0.65, 0.35
_LESS_FIXED = 0.03


@dataclasses.dataclass(frozen=True, eq=False)
class Normal:
    """A normal distribution: mean, and variances in orthonormal directions; one elsewhere."""

    mean: FloatArray
    directions: FloatArray  # (d, r)
    variances: FloatArray  # (r,)

    @classmethod
    def around(cls, mean: FloatArray, variance: float = 1.0) -> Self:
        """The same variance in all directions around a point."""
        size = 0 if variance == 1 else mean.size
        return cls(mean, np.eye(mean.size, size), np.full(size, variance))

    @classmethod
    def fit(cls, z: FloatArray, weights: FloatArray) -> Self:
        """Fit draws with weights."""
        weights = weights / weights.sum()
        count, d = z.shape
        mean = weights @ z
        size = ess(weights)
        centered = np.sqrt(weights)[:, None] * (z - mean)
        centered /= math.sqrt(max(1 - 1 / size, 1e-3))
        if count < d:
            _, roots, rows = np.linalg.svd(centered, full_matrices=False)
            values, vectors = roots**2, rows.T
        else:
            values, vectors = np.linalg.eigh(centered.T @ centered)
            # Of fewer effective draws than variables, zeros are rounded to either side.
            values = np.maximum(values, 0)
        edge = math.sqrt(d / size)
        low = (1 - _MARGIN) * max(1 - edge, 0) ** 2
        high = (1 + _MARGIN) * (1 + edge) ** 2
        kept = (values < low) | (values > high)
        directions, variances = vectors[:, kept], values[kept]
        # Beyond a limit the draws are narrow in the direction of their mean: a variance that is
        # asked for, so that it is kept also within the range of chance.
        length = np.linalg.norm(mean)
        if length > 0.3:
            along = mean / length
            rest = along - directions @ (directions.T @ along)
            if (length := np.linalg.norm(rest)) > 0.2:
                rest /= length
                directions = np.column_stack([directions, rest])
                variances = np.append(variances, np.sum((centered @ rest) ** 2))
        return cls(mean, directions, np.clip(variances, _LEAST_VARIANCE, _MOST_VARIANCE))

    @classmethod
    def fit_slopes(cls, z: FloatArray, weights: FloatArray, slopes: FloatArray) -> Self:
        r"""Fit failing draws with weights by the slopes of the output that is too large.

        By Stein's identity the mean of a standard normal distribution beyond a limit is along the
        mean slope
        :math:`s`, and with :math:`m = \lambda s` its precision is near :math:`I - \lambda H`, where
        :math:`H` is the mean Hessian: the slopes regressed on the draws. In many variables both are
        less noisy than moments of the draws.
        """
        weights = weights / weights.sum()
        d = z.shape[1]
        slope, center = weights @ slopes, weights @ z
        size = np.linalg.norm(slope)
        along = slope / size
        length = float(center @ along)
        rows, changes = np.sqrt(weights)[:, None] * np.stack([z - center, slopes - slope])
        # As many units of a ridge as there are variables for each effective draw.
        ridge = d * np.sum(weights**2) * np.eye(d)
        hessian = np.linalg.solve(rows.T @ rows + ridge, rows.T @ changes)
        values, vectors = np.linalg.eigh(np.eye(d) - length / size * (hessian + hessian.T) / 2)
        covariance = (vectors / np.clip(values, *_PRECISIONS)) @ vectors.T
        # Along the slope the limit cuts: there the draws say more.
        across = np.eye(d) - np.outer(along, along)
        variance = np.clip(np.sum((rows @ along) ** 2), 1 / _PRECISIONS[1], 1.0)
        covariance = across @ covariance @ across + variance * np.outer(along, along)
        variances, directions = np.linalg.eigh(covariance)
        return cls(length * along, directions, variances)

    def draw(self, rng: np.random.Generator, count: int) -> FloatArray:
        """Draws, shape ``(count, d)``."""
        standard = rng.standard_normal((count, self.mean.size))
        stretched = (standard @ self.directions) * (np.sqrt(self.variances) - 1)
        return self.mean + standard + stretched @ self.directions.T

    def log_density(self, z: FloatArray, squares: FloatArray) -> FloatArray:
        """Log density at points with known squared lengths, up to a constant.

        The constant is that of the standard normal distribution.
        """
        # One product for the mean and the directions: most of the time is spent here.
        products = np.column_stack([self.mean, self.directions]).T @ z.T
        along = products[1:] - (self.mean @ self.directions)[:, None]
        square = squares - 2 * products[0] + self.mean @ self.mean
        square = square + (1 / self.variances - 1) @ along**2
        return -0.5 * (square + np.sum(np.log(self.variances)))


@dataclasses.dataclass(frozen=True, eq=False)
class Wedge:
    r"""The standard normal distribution beyond planes, at ``directions @ z > distances``.

    Exact beyond one plane and beyond planes at right angles. Others are drawn beyond one after the
    other, by which weights are bounded: in orthonormal coordinates :math:`w`, in which plane `i`
    limits :math:`w_i` given those before it, to :math:`w_i > c_i`, the density is that of the
    standard normal distribution over :math:`\prod_i \Phi(-c_i)` (J. Geweke, V. Hajivassiliou and M.
    Keane in A. Genz, J. Comput. Graph. Stat. 1, 1992).
    """

    directions: FloatArray  # (k, d), of length one
    distances: FloatArray  # (k,)

    @cached_property
    def _triangular(self) -> tuple[FloatArray, FloatArray]:
        """Orthonormal coordinates ``(k, d)``, and the planes in them: lower triangular."""
        rows, planes = np.linalg.qr(self.directions.T)
        sign = np.where(np.diagonal(planes) < 0, -1.0, 1.0)
        return (rows * sign).T, (planes * sign[:, None]).T

    def _limits(self, row: int, w: FloatArray) -> FloatArray:
        planes = self._triangular[1][row]
        return (self.distances[row] - w[:, :row] @ planes[:row]) / planes[row]

    def holds(self, z: FloatArray) -> NDArray[np.bool_]:
        """Which points ``(n, d)`` are beyond all planes."""
        return (z @ self.directions.T > self.distances).all(axis=1)

    def draw(self, rng: np.random.Generator, count: int) -> FloatArray:
        """Draws, shape ``(count, d)``."""
        coordinates = self._triangular[0]
        standard = rng.standard_normal((count, self.directions.shape[1]))
        w = np.empty((count, len(coordinates)))
        for row, uniform in enumerate(rng.uniform(size=w.shape[::-1])):
            w[:, row] = -ndtri_exp(np.log(uniform) + log_ndtr(-self._limits(row, w)))
        return standard + (w - standard @ coordinates.T) @ coordinates

    def log_density(self, z: FloatArray, squares: FloatArray) -> FloatArray:
        """Log density as that of `Normal`."""
        w, logs = z @ self._triangular[0].T, -0.5 * squares
        for row in range(w.shape[1]):
            limits = self._limits(row, w)
            logs = np.where(w[:, row] > limits, logs - log_ndtr(-limits), -np.inf)
        return logs


@dataclasses.dataclass(frozen=True, eq=False)
class NormalMixture:
    """Normal distributions, and such beyond planes, with their shares."""

    components: tuple[Normal | Wedge, ...]
    shares: FloatArray

    @classmethod
    def even(cls, *components: Normal | Wedge) -> Self:
        """All with the same share."""
        return cls(components, np.full(len(components), 1 / len(components)))

    @classmethod
    def joined(cls, *parts: "tuple[NormalMixture, float]") -> Self:
        """A mixture of mixtures, with their weights."""
        components = tuple(part for mixture, _ in parts for part in mixture.components)
        total = sum(weight for _, weight in parts)
        return cls(components, np.concatenate([m.shares * (weight / total) for m, weight in parts]))

    @property
    def normals(self) -> tuple[Normal, ...]:
        """The components that are normal distributions."""
        return tuple(part for part in self.components if isinstance(part, Normal))

    def draw(self, rng: np.random.Generator, count: int) -> FloatArray:
        """Draws, component by component: each has its share of them, up to one.

        Numbers by share instead of chance have less variance, and no weight changes.
        """
        rows = systematic(self.shares, count, rng)
        numbers = np.bincount(rows, minlength=self.shares.size).tolist()
        components = zip(self.components, numbers, strict=True)
        return np.concatenate([component.draw(rng, n) for component, n in components])

    def log_densities(self, z: FloatArray) -> FloatArray:
        """Log of share times density of each component, shape ``(components, n)``."""
        with np.errstate(divide="ignore"):
            logs = np.log(self.shares / self.shares.sum())
        squares = np.sum(z**2, axis=1)
        densities = np.empty((len(logs), len(z)))
        for row, part, log in zip(densities, self.components, logs, strict=True):
            row[:] = part.log_density(z, squares) + log
        return densities

    def log_density(self, z: FloatArray) -> FloatArray:
        """Log density at points, up to the constant of the standard normal distribution."""
        # At some points at a time: of a hundred thousand runs all densities would be 400 MB.
        size = max(1, _NUMBERS_AT_ONCE // len(self.components))
        parts = [z[start : start + size] for start in range(0, max(len(z), 1), size)]
        return np.concatenate([log_sum(self.log_densities(part)) for part in parts])

    def balanced(self, points: FloatArray, weights: FloatArray) -> "NormalMixture":
        """The mixture with shares for less variance of a mean, as far as weighted draws tell.

        The second moment of the weights is convex in the shares (H. Y. He and A. B. Owen 2014); a
        part of the shares stays, as the draws do not show all that may fail. Of many draws, which
        are in the order of their components, every second or third is used, and so on.
        """
        if not len(points):
            return self
        step = -(-len(points) * len(self.components) // _MOST_BALANCED)
        points, weights = points[::step], weights[::step]
        fixed = self.shares / self.shares.sum()
        logs = self.log_densities(points)
        logs -= np.log(fixed)[:, None]
        logs += 0.5 * np.sum(points**2, axis=1)
        largest = logs.max(axis=0)
        logs -= largest
        densities, shares = np.exp(logs, out=logs), fixed
        weights = np.exp(np.log(weights) - largest - np.max(np.log(weights) - largest))
        for _ in range(_BALANCE_STEPS):
            # The share of the only component near a point may become zero.
            sums = np.maximum(shares @ densities, 1e-100)
            shares = shares * np.sqrt(densities @ (weights / sums**2))
            shares = shares / shares.sum()
        stays = max(_MOST_FIXED - _LESS_FIXED * points.shape[1], _LEAST_FIXED)
        return NormalMixture(self.components, stays * fixed + (1 - stays) * shares)


def fit_normal_mixture(
    z: FloatArray, weights: FloatArray, rng: np.random.Generator, most: int
) -> NormalMixture:
    """Fit a mixture of as many components as pay, by the EM algorithm.

    The number of components is chosen by the Bayesian information criterion, with the effective
    number of draws.
    """
    weights = weights / weights.sum()
    size = ess(weights)
    best, best_score = NormalMixture.even(Normal.fit(z, weights)), -np.inf
    for number in range(1, (most if size >= _FEW_DRAWS else 1) + 1):
        mixture = best if number == 1 else _expectation_maximization(z, weights, rng, number)
        if mixture is None:
            break
        likelihood = size * float(weights @ mixture.log_density(z))
        parameters = sum(p.mean.size + 2 * p.variances.size for p in mixture.normals)
        score = likelihood - 0.5 * parameters * math.log(size)
        if number == 1 or score > best_score + 1:
            best, best_score = mixture, score
    return best


def _expectation_maximization(
    z: FloatArray, weights: FloatArray, rng: np.random.Generator, number: int
) -> NormalMixture | None:
    """Mixture from starts far from each other; None if no component has draws enough.

    A. P. Dempster, N. M. Laird and D. B. Rubin, J. R. Stat. Soc. B 39 (1977).
    """
    from scipy.spatial.distance import cdist

    chosen = kmeans_plus_plus(z, weights, number, rng)
    if len(chosen) < number:
        return None
    nearest = cdist(z[chosen], z, "sqeuclidean").argmin(axis=0)
    belongs = (np.arange(number)[:, None] == nearest).astype(float)
    mixture = None
    for _ in range(_EM_STEPS):
        components, shares = [], []
        for row in belongs * weights:
            share = row.sum()
            if share < _LEAST_SHARE or ess(row) < _LEAST_DRAWS:
                continue
            components.append(Normal.fit(z, row))
            shares.append(share)
        if not components:
            return None
        mixture = NormalMixture(tuple(components), np.array(shares))
        logs = mixture.log_densities(z)
        belongs = np.exp(logs - log_sum(logs))
    return mixture
