"""Moments of the inputs of a linear model, given its outputs, without the package.

The inputs are ``A u + B v`` with `u` in a box and normal `v`, and the outputs are
``r = J (A u + B v) + e``. Given `u`, all is normal; what is left is an integral over the box.
"""

import functools
import math
from typing import NamedTuple

import mpmath
import numpy as np
from numpy.typing import NDArray
from scipy import linalg, stats

from tests.box_gaussian.references import sequential_draws

Array = NDArray[np.float64]

REPLICATES = 16  # of Sobol points, each scrambled by itself: their spread is the standard error
LARGEST_ERROR = 0.002  # in standard deviations, where the number of points allows
LARGEST_LOG2 = 17
EXTRA_PRECISIONS = (0.03, 0.3, 1.0, 3.0, 6.0, 12.0)


class Observed(NamedTuple):
    """Outputs minus their means, standard deviations of their noise, and the linear model."""

    box: Array  # A, (N_x, n)
    normal: Array  # B, (N_x, m)
    jacobian: Array  # (N_y, N_x)
    deviation: Array  # (N_y,)
    noise: Array  # (N_y,)
    triangular: bool  # density of `u` is 1 - |u| in place of 1/2


class Reference(NamedTuple):
    """Moments of the inputs, log evidence, and standard errors of all of them."""

    mean: Array
    sd: Array
    log_evidence: float
    mean_error: float  # the largest, in standard deviations
    sd_error: float  # the largest, relative
    effective: float


def by_mpmath(seen):
    """Normal inputs, by the normal equations in 40 digits."""
    with mpmath.workdps(40):
        root, jacobian = mpmath.matrix(seen.normal), mpmath.matrix(seen.jacobian)
        prior, deviation = root * root.T, mpmath.matrix(seen.deviation)
        cross = prior * jacobian.T
        covariance = jacobian * cross + mpmath.diag([mpmath.mpf(s) ** 2 for s in seen.noise])
        inverse = covariance**-1
        mean = cross * inverse * deviation
        spread = prior - cross * inverse * cross.T
        misfit = (deviation.T * inverse * deviation)[0]
        volume = mpmath.log(mpmath.det(covariance)) + len(deviation) * mpmath.log(2 * mpmath.pi)
        sd = [mpmath.sqrt(spread[i, i]) for i in range(spread.rows)]
        evidence = float(-(misfit + volume) / 2)
        return Reference(np.array(mean, float).ravel(), np.array(sd, float), evidence, 0, 0, np.inf)


class Reduced:
    """The outputs have the log density ``constant + slope u - u^T precision u / 2`` given `u`."""

    def __init__(self, seen):
        weights, normal = seen.jacobian @ seen.box, seen.jacobian @ seen.normal
        factor = linalg.cho_factor(normal @ normal.T + np.diag(seen.noise**2), lower=True)
        solved = linalg.cho_solve(factor, weights)
        gain = linalg.cho_solve(factor, normal @ seen.normal.T).T
        whitened = linalg.solve_triangular(factor[0], seen.deviation, lower=True)
        volume = 2 * np.log(np.diag(factor[0])).sum() + len(whitened) * math.log(2 * math.pi)
        left = np.eye(seen.normal.shape[1]) - normal.T @ linalg.cho_solve(factor, normal)
        self.precision, self.slope = weights.T @ solved, solved.T @ seen.deviation
        self.constant = -0.5 * (whitened @ whitened + volume)
        # Inputs given `u` have the mean ``map u + shift`` and the variance.
        self.map, self.shift = seen.box - gain @ weights, gain @ seen.deviation
        self.variance = np.einsum("ij,jk,ik->i", seen.normal, left, seen.normal)
        self.triangular = seen.triangular

    def log_prior(self, points):
        """Of points (..., n, number)."""
        if not self.triangular:
            return np.full(np.delete(points.shape, -2), -len(self.slope) * math.log(2))
        with np.errstate(divide="ignore"):
            return np.log1p(-np.abs(points)).sum(axis=-2)

    def reference(self, points, logs):
        """From points (replicates, n, number) with the logarithms of their weights."""
        largest = logs.max()
        weight = np.exp(logs - largest)
        inputs = self.map @ points  # (replicates, N_x, number)
        center = (inputs * weight[:, None]).sum(axis=(0, 2)) / weight.sum()
        gap = inputs - center[:, None]
        sums = np.stack([(weight[:, None] * gap**power).sum(axis=2) for power in (1, 2)])
        mass = weight.sum(axis=1)

        def moments(kept):
            first, second = sums[:, kept].sum(axis=1) / mass[kept].sum()
            return first, np.sqrt(np.maximum(second - first**2, 0) + self.variance)

        replicates = np.arange(len(mass))
        mean, sd = moments(replicates)
        errors = [0.0, 0.0]
        if len(mass) > 1:  # by the jackknife
            left_out = [moments(np.delete(replicates, k)) for k in replicates]
            spread = np.std(left_out, axis=0) / np.where(sd > 0, sd, 1)
            errors = (spread * math.sqrt(len(mass) - 1)).max(axis=1).tolist()
        evidence = math.log(mass.sum()) + largest + self.constant
        effective = weight.sum() ** 2 / (weight**2).sum()
        return Reference(center + mean + self.shift, sd, evidence, *errors, effective)


def by_weighted_draws(seen):
    """Sequential truncated normal draws and their weights, until errors are small (GHK).

    A. Genz, J. Comput. Graph. Stat. 1 (1992). The normal distribution is that of the data times a
    normal prior; its precision, which the weights take out again, is chosen by a few draws.
    """
    reduced = Reduced(seen)
    few = {extra: _sequential(reduced, extra, 7) for extra in EXTRA_PRECISIONS}
    extra = max(few, key=lambda extra: few[extra].effective)
    for log2 in range(13, LARGEST_LOG2 + 1, 2):
        found = _sequential(reduced, extra, log2)
        if max(found.mean_error, found.sd_error) < LARGEST_ERROR:
            break
    return found


@functools.cache
def _sobol(size, log2):
    rng = np.random.default_rng(size)
    sets = [stats.qmc.Sobol(size, rng=rng).random_base2(log2).T for _ in range(REPLICATES)]
    return np.clip(np.stack(sets), 1e-15, 1 - 1e-15)


def _sequential(reduced, extra, log2):
    size = len(reduced.slope)
    columns = np.linalg.cholesky(reduced.precision + extra * np.eye(size)).T
    mean = np.linalg.solve(columns.T @ columns, reduced.slope)
    uniforms = _sobol(size, log2)
    points, logs = sequential_draws(columns, mean, uniforms)
    logs += 0.5 * (reduced.slope @ mean + extra * (points**2).sum(axis=1)) - math.log(logs.size)
    return reduced.reference(points, logs + reduced.log_prior(points))
