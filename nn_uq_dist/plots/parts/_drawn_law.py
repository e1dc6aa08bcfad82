"""Joint laws as figures draw them: densities on a grid that resolves them."""

import abc
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple, final

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.distributions import GaussianCopulaJoint
from nn_uq_dist.laws import JointLaw, OutputLaw, as_output_law
from nn_uq_dist.plots.parts._regions import Region, close_border, mass_levels, skewed
from nn_uq_dist.plots.parts._score_grid import (
    GRID_POINTS,
    GRID_REACH,
    SCORE_REACH,
    OutputTable,
    ScoreGrid,
    output_table,
    score_grid,
)

Array = NDArray[np.float64]

POINTS_PER_CALL = 4096
# The grid follows the correlation of the outputs up to this value. It is only a guide: the scores
# of a law other than a Gaussian copula may spread more than their correlation suggests.
MOST_CORRELATION = 0.99
LARGEST_LOSS = 0.03


class Slice(NamedTuple):
    """The law of two outputs given a third.

    Attributes
    ----------
    region
        Their conditional density, with its regions of highest density.
    density
        Density of the third output at the given value.
    """

    region: Region
    density: float


class DrawnLaw(abc.ABC):
    """A joint law of the outputs that a figure shows, as the figure draws it.

    Attributes
    ----------
    kind
        Name of the law in legends and labels.
    """

    kind: str

    @cached_property
    def tables(self) -> list[OutputTable]:
        """The laws of the single outputs, tabulated."""
        laws, origin = self.marginals()
        return [output_table(laws, j, float(x)) for j, x in enumerate(origin)]

    @abc.abstractmethod
    def marginals(self) -> tuple[OutputLaw, Array]:
        """The laws of the shown outputs minus an origin, and that origin, shape ``(d,)``."""

    @abc.abstractmethod
    def correlation(self) -> Array:
        """Correlation of the shown outputs, shape ``(d, d)``, NaN for those that are constant."""

    @abc.abstractmethod
    def region(self, pair: tuple[int, int], masses: Sequence[float]) -> Region:
        """Density of two of the shown outputs, and its regions that hold the masses."""

    @abc.abstractmethod
    def slices(self, values: Sequence[float], masses: Sequence[float]) -> list[Slice | None]:
        """The law of the first two of three outputs given values of the third.

        None for a value beyond the support.
        """


@final
class DrawnJoint(DrawnLaw):
    """A joint law of the shown outputs, used only through the contract `JointLaw`.

    The density of a Gaussian copula has a closed form in the scores of a grid, for which no program
    is compiled.

    Parameters
    ----------
    joint
        The law of the shown outputs.
    origin
        Offset added to the outputs of `joint`, shape ``(d,)``.
    """

    def __init__(self, joint: JointLaw, origin: Array) -> None:
        self.kind = joint.kind
        self._joint = joint
        self._origin = origin
        if isinstance(joint, GaussianCopulaJoint):
            self._scores = np.asarray(joint.correlation_matrix, np.float64)
        else:
            guide = MOST_CORRELATION * self.correlation()
            self._scores = np.where(np.eye(len(guide), dtype=bool), 1, guide)

    def marginals(self) -> tuple[OutputLaw, Array]:
        """Marginal laws of the joint law."""
        return as_output_law(self._joint.marginals), self._origin

    def correlation(self) -> Array:
        """Correlation of the outputs, not of their scores."""
        matrix = np.asarray(self._joint.covariance_matrix, np.float64)
        sd = np.sqrt(np.diag(matrix))
        return matrix / np.outer(sd, sd)

    def region(self, pair: tuple[int, int], masses: Sequence[float]) -> Region:
        """Density of the marginal law of the pair."""
        x, y = (self.tables[j] for j in pair)
        factor = np.linalg.cholesky(self._scores[np.ix_(pair, pair)])
        grid = score_grid(x, y, np.zeros(2), factor)
        if isinstance(self._joint, GaussianCopulaJoint):
            density = _copula_density(grid, np.zeros(2), factor)
        else:
            points = np.stack([grid.x, grid.y], axis=-1) - self._origin[list(pair)]
            density = _density(self._joint.marginalize(pair), points)
        return _region(grid.x, grid.y, density, masses)

    def slices(self, values: Sequence[float], masses: Sequence[float]) -> list[Slice | None]:
        """Joint density of the three outputs over the density of the third."""
        return [self._slice(value, masses) for value in values]

    def _slice(self, value: float, masses: Sequence[float]) -> Slice | None:
        x, y, given = self.tables
        (score,), (log_density,) = given.at(np.array([value]))
        if not abs(score) <= SCORE_REACH:
            return None
        third = float(np.exp(log_density))
        # Of the first two scores given the third.
        slope = self._scores[:2, 2]
        loc, factor = (
            slope * score,
            np.linalg.cholesky(self._scores[:2, :2] - np.outer(slope, slope)),
        )
        grid = score_grid(x, y, loc, factor)
        if isinstance(self._joint, GaussianCopulaJoint):
            density = _copula_density(grid, loc, factor)
            return Slice(_region(grid.x, grid.y, density, masses), third)
        # A slice may follow the scores, as for a copula, or the values, as for a linear law: try
        # both.
        found = []
        for u, v in ((grid.x, grid.y), self._regression_grid(value)):
            points = np.stack([u, v, np.full_like(u, value)], axis=-1) - self._origin
            density = _density(self._joint, points) / third
            found.append((np.sum(density * _areas(u, v)), u, v, density))
        mass, u, v, density = max(found, key=lambda each: each[0])
        # The mass is 1 up to rounding and the approximation of the density.
        scale = mass if abs(mass - 1.0) < LARGEST_LOSS else 1.0
        return Slice(_region(u, v, density / scale, masses), third)

    def _regression_grid(self, value: float) -> tuple[Array, Array]:
        """Points about the regression of the first two outputs on the third."""
        covariance = np.asarray(self._joint.covariance_matrix, np.float64)
        mean = np.asarray(self._joint.mean, np.float64) + self._origin
        slope = covariance[:2, 2] / covariance[2, 2]
        spread = covariance[:2, :2] - np.outer(slope, covariance[2, :2])
        # If outputs are functions of others, only rounding errors are left.
        nudge = 1e-9 * np.diag(np.diag(covariance)[:2])
        factor = np.linalg.cholesky(spread + nudge)
        w = np.linspace(-GRID_REACH, GRID_REACH, GRID_POINTS)
        u, v = np.meshgrid(w, w, indexing="ij")
        return skewed(u, v, mean[:2] + slope * (value - mean[2]), factor)


def _copula_density(grid: ScoreGrid, loc: Array, factor: Array) -> Array:
    r"""Density of two outputs whose normal scores are normal, :math:`N(z; m, L L^T)`.

    .. math:: p(x, y) = p_x p_y\, N(z; m, L L^T) / (\phi(z_x) \phi(z_y))
    """
    first, second = grid.scores
    # Residuals of the scores, whitened; the factors 2 pi of both normal laws cancel.
    u = (first - loc[0]) / factor[0, 0]
    v = (second - loc[1] - factor[1, 0] * u) / factor[1, 1]
    log_normal = -(u**2 + v**2) / 2 - np.log(np.prod(np.diag(factor)))
    return np.exp(log_normal + sum(grid.log_densities) + (first**2 + second**2) / 2)


def _density(joint: JointLaw, points: Array) -> Array:
    """Density at points of shape ``(..., d)``, in portions of one shape."""
    flat = points.reshape(-1, points.shape[-1])
    padded = np.pad(flat, [(0, -len(flat) % POINTS_PER_CALL), (0, 0)], mode="edge")
    portions = np.split(padded, len(padded) // POINTS_PER_CALL)
    values = [np.asarray(joint.log_prob(jnp.asarray(part)), np.float64) for part in portions]
    return np.exp(np.concatenate(values)[: len(flat)].reshape(points.shape[:-1]))


def _region(x: Array, y: Array, density: Array, masses: Sequence[float]) -> Region:
    weights = density * _areas(x, y)
    close_border(density)
    return Region(x, y, density, mass_levels(density, weights, masses))


def _areas(x: Array, y: Array) -> Array:
    """Areas of the cells around the points of a skewed grid."""
    # `x` is constant along a row, so that the area is a product.
    return np.gradient(x, axis=0) * np.gradient(y, axis=1)
