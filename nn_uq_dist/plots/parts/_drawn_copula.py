"""Gaussian copulas as figures draw them: closed-form densities on a grid."""

from collections.abc import Sequence
from typing import final

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.distributions import GaussianCopulaJoint
from nn_uq_dist.laws import OutputLaw, as_output_law
from nn_uq_dist.plots.parts._drawn_law import DrawnLaw, Slice
from nn_uq_dist.plots.parts._output_table import SCORE_REACH, OutputTable
from nn_uq_dist.plots.parts._regions import Region, close_border, mass_levels
from nn_uq_dist.plots.parts._score_grid import ScoreGrid, score_grid

Array = NDArray[np.float64]


@final
class DrawnCopula(DrawnLaw):
    """A Gaussian copula.

    Parameters
    ----------
    joint
        The law of the shown outputs.
    origin
        Offset added to the outputs of `joint`, shape ``(d,)``.
    """

    def __init__(self, joint: GaussianCopulaJoint, origin: Array) -> None:
        self.kind = joint.kind
        self._joint = joint
        self._origin = origin
        self._matrix = np.asarray(joint.correlation_matrix, np.float64)

    def marginals(self) -> tuple[OutputLaw, Array]:
        """Marginal laws of the copula."""
        return as_output_law(self._joint.marginals), self._origin

    def correlation(self) -> Array:
        """Correlation of the outputs, not of their scores."""
        return correlation_of(self._joint.covariance_matrix)

    def region(self, pair: tuple[int, int], masses: Sequence[float]) -> Region:
        """Density by `copula_region`, the scores centered."""
        x, y = (self.tables[j] for j in pair)
        factor = np.linalg.cholesky(self._matrix[np.ix_(pair, pair)])
        return copula_region(x, y, np.zeros(2), factor, masses)

    def slices(self, values: Sequence[float], masses: Sequence[float]) -> list[Slice | None]:
        """Conditional densities by `copula_slice`."""
        return [copula_slice(self.tables, self._matrix, value, masses) for value in values]


def correlation_of(covariance: object) -> Array:
    """Scale a covariance matrix to unit variances."""
    matrix = np.asarray(covariance, np.float64)
    sd = np.sqrt(np.diag(matrix))
    return matrix / np.outer(sd, sd)


def copula_region(
    x: OutputTable, y: OutputTable, loc: Array, factor: Array, masses: Sequence[float]
) -> Region:
    r"""Density of two outputs whose normal scores are normal with these parameters.

    .. math:: p(x, y) = p_x p_y\, N(z; m, L L^T) / (\phi(z_x) \phi(z_y))

    Parameters
    ----------
    x, y
        The laws of the outputs.
    loc, factor
        Mean `m`, ``(2,)``, and lower Cholesky factor `L`, ``(2, 2)``, of the scores `z`.
    masses
        Of the regions.
    """
    grid = score_grid(x, y, loc, factor)
    density = np.exp(_log_density(grid, loc, factor))
    close_border(density)
    return Region(grid.x, grid.y, density, mass_levels(density, grid.weights, masses))


def _log_density(grid: ScoreGrid, loc: Array, factor: Array) -> Array:
    first, second = grid.scores
    # Residuals of the scores, whitened; the factors 2 pi of both normal laws cancel.
    u = (first - loc[0]) / factor[0, 0]
    v = (second - loc[1] - factor[1, 0] * u) / factor[1, 1]
    log_normal = -(u**2 + v**2) / 2 - np.log(np.prod(np.diag(factor)))
    return log_normal + sum(grid.log_densities) + (first**2 + second**2) / 2


def copula_slice(
    tables: Sequence[OutputTable], correlation: Array, value: float, masses: Sequence[float]
) -> Slice | None:
    """Density of the first two of three outputs given the third, and the third's own density.

    Parameters
    ----------
    tables
        The laws of the three outputs.
    correlation
        Of their normal scores, ``(3, 3)``.
    value
        Of the third output.
    masses
        Of the regions, given the third output.

    Returns
    -------
    Slice or None
        None if `value` is beyond the support, or has a normal score beyond 8.
    """
    x, y, given = tables
    (score,), (log_density,) = given.at(np.array([value]))
    if not abs(score) <= SCORE_REACH:
        return None
    loc, factor = conditional_scores(correlation, score)
    return Slice(copula_region(x, y, loc, factor, masses), float(np.exp(log_density)))


def conditional_scores(correlation: Array, score: float) -> tuple[Array, Array]:
    """Mean and Cholesky factor of the first two of three normal scores given the third."""
    slope = correlation[:2, 2]
    factor = np.linalg.cholesky(correlation[:2, :2] - np.outer(slope, slope))
    return slope * score, factor
