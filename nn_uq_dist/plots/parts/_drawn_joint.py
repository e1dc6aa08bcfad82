"""Any joint law as figures draw it: its density on a grid."""

from collections.abc import Sequence
from typing import final

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.laws import JointLaw, OutputLaw, as_output_law
from nn_uq_dist.plots.parts._drawn_copula import conditional_scores, correlation_of
from nn_uq_dist.plots.parts._drawn_law import DrawnLaw, Slice
from nn_uq_dist.plots.parts._output_table import SCORE_REACH
from nn_uq_dist.plots.parts._regions import (
    Region,
    close_border,
    mass_levels,
    skewed,
)
from nn_uq_dist.plots.parts._score_grid import (
    GRID_POINTS,
    GRID_REACH,
    score_grid,
)

Array = NDArray[np.float64]

POINTS_PER_CALL = 4096
# The grid follows the correlation of the outputs up to this value. It is only a guide: the scores
# of a law other than a Gaussian copula may spread more than their correlation suggests.
MOST_CORRELATION = 0.99
LARGEST_LOSS = 0.03


@final
class DrawnJoint(DrawnLaw):
    """A joint law of the shown outputs, used only through the contract `JointLaw`."""

    def __init__(self, joint: JointLaw) -> None:
        self.kind = joint.kind
        self._joint = joint

    def marginals(self) -> tuple[OutputLaw, Array]:
        """Marginal laws of the joint law."""
        return as_output_law(self._joint.marginals), np.zeros(self._joint.event_shape)

    def correlation(self) -> Array:
        """Correlation of the outputs."""
        return correlation_of(self._joint.covariance_matrix)

    def region(self, pair: tuple[int, int], masses: Sequence[float]) -> Region:
        """Density of the marginal law of the pair."""
        x, y = (self.tables[j] for j in pair)
        factor = np.linalg.cholesky(self._guide()[np.ix_(pair, pair)])
        grid = score_grid(x, y, np.zeros(2), factor)
        joint = self._joint.marginalize(pair)
        density = _density(joint, np.stack([grid.x, grid.y], axis=-1))
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
        grid = score_grid(x, y, *conditional_scores(self._guide(), score))
        # A slice may follow the scores, as for a copula, or the values, as for a linear law: try
        # both.
        found = []
        for u, v in ((grid.x, grid.y), self._regression_grid(value)):
            points = np.stack([u, v, np.full_like(u, value)], axis=-1)
            density = _density(self._joint, points) / third
            found.append((np.sum(density * _areas(u, v)), u, v, density))
        mass, u, v, density = max(found, key=lambda each: each[0])
        # The mass is 1 up to rounding and the approximation of the density.
        scale = mass if abs(mass - 1.0) < LARGEST_LOSS else 1.0
        return Slice(_region(u, v, density / scale, masses), third)

    def _regression_grid(self, value: float) -> tuple[Array, Array]:
        """Points about the regression of the first two outputs on the third."""
        covariance = np.asarray(self._joint.covariance_matrix, np.float64)
        mean = np.asarray(self._joint.mean, np.float64)
        slope = covariance[:2, 2] / covariance[2, 2]
        spread = covariance[:2, :2] - np.outer(slope, covariance[2, :2])
        # If outputs are functions of others, only rounding errors are left.
        nudge = 1e-9 * np.diag(np.diag(covariance)[:2])
        factor = np.linalg.cholesky(spread + nudge)
        w = np.linspace(-GRID_REACH, GRID_REACH, GRID_POINTS)
        u, v = np.meshgrid(w, w, indexing="ij")
        return skewed(u, v, mean[:2] + slope * (value - mean[2]), factor)

    def _guide(self) -> Array:
        """A correlation of the scores that gives a good grid."""
        matrix = self.correlation()
        return np.where(np.eye(len(matrix), dtype=bool), 1, MOST_CORRELATION * matrix)


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
