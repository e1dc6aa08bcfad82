"""The exact law of the linear model as figures draw it, from its density on a grid."""

from collections.abc import Sequence
from typing import Any, final

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.basics._float64 import in_float64
from nn_uq_dist.laws import OutputLaw
from nn_uq_dist.linearization._linearization import Linearization
from nn_uq_dist.plots.parts._drawn_law import DrawnLaw, Slice
from nn_uq_dist.plots.parts._regions import Region, close_border, mass_levels, skewed

Array = NDArray[np.float64]

PLANE_POINTS = 256
SPACE_POINTS = 128


@final
class DrawnLinear(DrawnLaw):
    """The law of some outputs of a linearization.

    Parameters
    ----------
    linearization
        Linearization of all outputs.
    shown, names
        Positions and names of the shown outputs.
    """

    kind = "linear law"

    def __init__(
        self, linearization: Linearization, shown: Sequence[int], names: Sequence[str]
    ) -> None:
        self._linearization = linearization
        self._shown = list(shown)
        self._names = list(names)

    def marginals(self) -> tuple[OutputLaw, Array]:
        """Laws of the linear model, centered at zero, and its means."""
        return marginals_about_zero(self._linearization, self._shown)

    def correlation(self) -> Array:
        """Correlation of the outputs; NaN for constant ones."""
        whole = np.asarray(self._linearization.correlation, np.float64)
        return whole[np.ix_(self._shown, self._shown)]

    def region(self, pair: tuple[int, int], masses: Sequence[float]) -> Region:
        """Density by `linear_region`."""
        shown = [self._shown[j] for j in pair]
        return linear_region(self._linearization, shown, masses, [self._names[j] for j in pair])

    def slices(self, values: Sequence[float], masses: Sequence[float]) -> list[Slice | None]:
        """Conditional densities by `linear_slices`."""
        return linear_slices(self._linearization, self._shown, values, masses, self._names)


def marginals_about_zero(
    linearization: Linearization, shown: Sequence[int]
) -> tuple[OutputLaw, Array]:
    """The laws of some outputs, centered at zero, and their means.

    Then float32 resolves the deviations instead of the values.
    """
    linearization.marginals()  # raises for a constant output and names its position
    rows = jnp.asarray(shown)
    zeros = jnp.zeros(len(shown), linearization.loc.dtype)
    law = Linearization(zeros, linearization.jacobian[rows], linearization.input).marginals()
    return law, np.asarray(linearization.loc, np.float64)[list(shown)]


def linear_region(
    linearization: Linearization,
    shown: Sequence[int],
    masses: Sequence[float],
    names: Sequence[str],
) -> Region:
    """Exact density of two outputs of the linear model, from `Linearization.joint_density_grid`.

    The grid is regular in the whitened outputs, which are also linear in the input, so it resolves
    any correlation.
    """
    factor, grid = _white_grid(linearization, shown, PLANE_POINTS, names)
    density = grid.density / np.prod(np.diag(factor))
    levels = mass_levels(density, grid.density * grid.cell_volume, masses)
    center = np.asarray(linearization.loc, np.float64)[list(shown)]
    close_border(density)
    u, v = np.meshgrid(*grid.points, indexing="ij")
    x, y = skewed(u, v, center, factor)
    return Region(x, y, density, levels)


def linear_slices(
    linearization: Linearization,
    shown: Sequence[int],
    values: Sequence[float],
    masses: Sequence[float],
    names: Sequence[str],
) -> list[Slice | None]:
    """Density of the first two of three outputs given the third, at several values of the third.

    None for a value beyond the support.
    """
    i, j, k = shown
    factor, grid = _white_grid(linearization, (k, i, j), SPACE_POINTS, (names[2], *names[:2]))
    mean = np.asarray(linearization.loc, np.float64)
    layers, *plane = grid.points
    area = float(np.prod(grid.spacing[1:]))
    slices: list[Slice | None] = []
    for value in values:
        white = (value - mean[k]) / factor[0, 0]
        position = (white - layers[0]) / grid.spacing[0]
        below = int(np.floor(position))
        if not 0 <= below < len(layers) - 1:
            slices.append(None)
            continue
        upper = position - below
        layer = (1 - upper) * grid.density[below] + upper * grid.density[below + 1]
        total = float(layer.sum() * area)
        # Beyond the support the transform gives only rounding errors.
        if total < 1e-12:
            slices.append(None)
            continue
        given = layer / total
        levels = mass_levels(given, given * area, masses)
        scale = factor[1, 1] * factor[2, 2]
        close_border(given)
        center = mean[[i, j]] + factor[1:, 0] * white
        u, v = np.meshgrid(*plane, indexing="ij")
        x, y = skewed(u, v, center, factor[1:, 1:])
        region = Region(x, y, given / scale, levels / scale)
        slices.append(Slice(region, total / factor[0, 0]))
    return slices


def _white_grid(
    linearization: Linearization, shown: Sequence[int], num_points: int, names: Sequence[str]
) -> tuple[Array, Any]:
    """Return the lower Cholesky factor of the outputs, and the density of the whitened outputs."""
    law = linearization.input
    jacobian = np.asarray(linearization.jacobian, np.float64)[list(shown)]
    root = np.asarray(in_float64(linearization).image().take(shown).root)
    rows = root / np.linalg.norm(root, axis=-1, keepdims=True)
    # As in `joint_density_grid`: rounding the Jacobian changes this by about eps.
    eps = float(jnp.finfo(linearization.jacobian.dtype).eps)
    too_few = root.shape[1] < len(rows)
    if too_few or np.linalg.svd(rows, compute_uv=False)[-1] <= 100 * eps:
        raise ValueError(
            f"outputs must be linearly independent for law='linear', got {', '.join(names)}, which "
            "have no joint density; pass law='copula' or other outputs"
        )
    factor = np.linalg.cholesky(root @ root.T)
    white = Linearization(jnp.zeros(len(rows)), np.linalg.solve(factor, jacobian), law)
    return factor, white.joint_density_grid(num_points=num_points)
