"""Densities of two outputs on a grid, and the levels of their regions of highest density."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from nn_uq_dist.basics.chunks import in_padded_chunks
from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.diagnostics.output_functions import joint_correlation
from nn_uq_dist.distributions import GaussianCopulaJoint, JointDistribution

# Grid of the normal scores of a distribution.
GRID = np.linspace(-4.7, 4.7, 161)
POINTS_PER_CALL = 4096
# The grid follows the correlation of the outputs up to this value. It is only a guide: the scores
# of a distribution other than a Gaussian copula may spread more than their correlation suggests.
MOST_CORRELATION = 0.99
# A grid that loses no more than this of the mass is normalized.
LARGEST_LOSS = 0.03
# Cells of the histogram under the kernel, per standard deviation of the kernel.
CELLS_PER_BANDWIDTH = 3
MAXIMUM_CELLS = 400
# Share of the draws that the grid of the kernel density may leave out on either side.
TAIL = 1e-4
# Relative amount by which a level is lowered: on a plateau rounding would decide the lines.
ROUNDING = 1e-5


class Region(NamedTuple):
    """A density on a grid that may be skewed, zero along the border: contour lines are closed.

    The levels bound the regions of the requested masses; 0 for one that the grid does not cover.
    """

    x: FloatArray
    y: FloatArray
    density: FloatArray
    levels: FloatArray

    @property
    def visible_levels(self) -> list[float]:
        """The levels that can be drawn, ascending and distinct."""
        highest = self.density.max()
        return sorted({float(level) for level in self.levels if 0 < level < highest})


def mass_levels(density: FloatArray, weights: FloatArray, masses: Sequence[float]) -> FloatArray:
    """Return the levels above which the density holds the masses, by the `weights` of cells.

    R. J. Hyndman, Computing and graphing highest density regions, Am. Stat. 50 (1996).
    """
    order = np.argsort(-density, axis=None)
    mass = weights.ravel()[order]
    # Half of its own mass lies above the density of a point.
    held = np.cumsum(mass) - mass / 2
    levels = np.interp(masses, held, density.ravel()[order], right=0.0)
    return np.asarray(levels * (1 - ROUNDING))


def distribution_region(
    joint: JointDistribution, scores: FloatArray, values: FloatArray, masses: Sequence[float]
) -> Region:
    """Density of a joint distribution of two outputs, on a grid that resolves any correlation.

    The values are the quantiles of both outputs at ascending normal scores.
    """
    if isinstance(joint, GaussianCopulaJoint):
        correlation = np.asarray(joint.correlation_matrix, np.float64)
    else:
        correlation = MOST_CORRELATION * joint_correlation(joint)
        np.fill_diagonal(correlation, 1.0)
    grid = skewed((GRID, GRID), np.zeros(2), np.linalg.cholesky(correlation))
    x, y = (np.interp(z, scores, value) for z, value in zip(grid, values, strict=True))
    points = np.stack([x.ravel(), y.ravel()], axis=-1)
    logs = in_padded_chunks(joint.log_prob, points, size=POINTS_PER_CALL)
    # Next to an edge of the support expectation propagation may fail at single points.
    density = np.nan_to_num(np.exp(logs), nan=0.0).reshape(x.shape)
    # `x` is constant along a row, so that the area of a cell is a product.
    areas = np.gradient(x, axis=0) * np.gradient(y, axis=1)
    mass = np.sum(density * areas)
    # It is 1 up to rounding and the approximation of the density, unless the grid loses some.
    if mass > 1.0 - LARGEST_LOSS:
        density = density / mass
    levels = mass_levels(density, density * areas, masses)
    return Region(x, y, _bordered(density), levels)


def kernel_region(points: FloatArray, masses: Sequence[float], names: Sequence[str]) -> Region:
    r"""Estimate the density of draws, shape ``(n, 2)``, and its regions.

    The kernel is normal with covariance :math:`n^{-1/3}` times that of the draws (Scott's rule,
    :math:`n^{-1/6}` standard deviations), applied to a histogram in whitened coordinates, where
    strong correlation needs no finer grid. A level is a quantile of the densities at the draws, by
    cells, so that its region holds that fraction of the draws for any width of the kernel.
    (D. W. Scott, Multivariate Density Estimation (1992).)
    """
    from scipy.ndimage import gaussian_filter

    center, covariance = points.mean(axis=0), np.cov(points.T)
    sd = np.sqrt(np.diag(covariance))
    is_resolved = sd > 1e-12 * np.abs(points).max(axis=0)
    if not is_resolved.all() or 1 - abs(covariance[0, 1] / sd.prod()) < 1e-12:
        raise ValueError(
            f"draws must have a density, got draws of outputs {' and '.join(names)} that lie on a "
            "line, or whose squares float64 cannot hold; pass other outputs, or scale these"
        )
    factor = np.linalg.cholesky(covariance)
    white = np.linalg.solve(factor, (points - center).T)
    bandwidth = len(points) ** (-1 / 6)
    low, high = np.quantile(white, [TAIL, 1 - TAIL], axis=1)
    low, high = low - 5 * bandwidth, high + 5 * bandwidth
    cells = np.ceil((high - low) / bandwidth * CELLS_PER_BANDWIDTH)
    cells = np.minimum(cells, MAXIMUM_CELLS).astype(int)
    ends = np.stack([low, high], axis=1)
    counts, *edges = np.histogram2d(white[0], white[1], cells.tolist(), ends)
    width = (high - low) / cells
    smooth = gaussian_filter(counts, bandwidth / width, mode="constant")
    smooth /= len(points) * np.prod(width) * np.prod(np.diag(factor))
    smooth = _bordered(smooth)
    levels = mass_levels(smooth, counts / len(points), masses)
    x, y = skewed([(e[1:] + e[:-1]) / 2 for e in edges], center, factor)
    return Region(x, y, smooth, levels)


def _bordered(density: FloatArray) -> FloatArray:
    """The density with a border of zeros."""
    return np.pad(density[1:-1, 1:-1], 1)


def skewed(
    axes: Sequence[FloatArray], center: Any, factor: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Grid of the outputs from the axes of a regular one in whitened coordinates."""
    u, v = np.meshgrid(*axes, indexing="ij")
    return center[0] + factor[0, 0] * u, center[1] + factor[1, 0] * u + factor[1, 1] * v
