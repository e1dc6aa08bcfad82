"""Which joint law a figure draws, and the exact law of the linear model as figures draw it."""

from collections.abc import Sequence
from typing import Any, Literal, final

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.basics._known_values import in_float64
from nn_uq_dist.diagnostics._arguments import as_joint_law
from nn_uq_dist.laws import JointLaw, OutputLaw
from nn_uq_dist.linearization._linear_model import LinearModel
from nn_uq_dist.linearization._linearized_network import Linearization
from nn_uq_dist.plots.parts._drawn_law import DrawnJoint, DrawnLaw, Slice
from nn_uq_dist.plots.parts._regions import Region, close_border, mass_levels, skewed

Array = NDArray[np.float64]
Law = Literal["joint", "copula", "linear"] | JointLaw

PLANE_POINTS = 256
SPACE_POINTS = 128


def as_law(law: Law | None, model: LinearModel) -> Law:
    """Return the argument after a check, by default the joint distribution of the model.

    That of a `Linearization` is drawn from its exact density on a grid.
    """
    if law is None:
        return "linear" if isinstance(model, Linearization) else "joint"
    if isinstance(law, JointLaw):
        return as_joint_law("law", law, model.num_outputs)
    if not isinstance(law, str):
        raise TypeError(
            f"law must be 'joint', 'copula', 'linear' or a JointLaw, got {type(law).__name__}; "
            "pass linearization.joint()"
        )
    if law not in {"joint", "copula", "linear"}:
        raise ValueError(f"law must be 'joint', 'copula' or 'linear', got {law!r}")
    if law == "linear" and not isinstance(model, Linearization):
        raise ValueError(
            f"law must be 'joint' or 'copula' for a {type(model).__name__}, got 'linear'; only a "
            "Linearization has an exact density on a grid"
        )
    return law


def drawn_law(
    law: Law,
    model: LinearModel,
    shown: Sequence[int],
    names: Sequence[str],
) -> DrawnLaw:
    """Return the law of the shown outputs that the argument names or contains.

    Parameters
    ----------
    law
        From `as_law`.
    model
        Model of all outputs.
    shown, names
        Positions and names of the shown outputs.
    """
    origin = np.zeros(len(shown))
    if law == "linear" and isinstance(model, Linearization):
        return DrawnLinear(model, shown, names)
    if law == "joint":
        law = model.joint()
    elif isinstance(law, str):
        if isinstance(model, Linearization):
            model, origin = centered(model, shown)
        law = model.gaussian_copula()
    return DrawnJoint(law.marginalize(tuple(shown)), origin)


def centered(model: Linearization, shown: Sequence[int]) -> tuple[Linearization, Array]:
    """Return the model with zero means, and the means of the shown outputs.

    Then float32 resolves the deviations instead of the values.
    """
    zeros = Linearization(jnp.zeros_like(model.loc), model.jacobian, model.input)
    return zeros, np.asarray(model.loc, np.float64)[list(shown)]


@final
class DrawnLinear(DrawnLaw):
    """The law of some outputs of a linearization, from its exact density on a grid.

    The grid is regular in the whitened outputs, which are also linear in the input, so it resolves
    any correlation.

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
        self._linearization.marginals()  # raises for a constant output and names its position
        model, origin = centered(self._linearization, self._shown)
        rows = jnp.asarray(self._shown)
        return Linearization(model.loc[rows], model.jacobian[rows], model.input).marginals(), origin

    def correlation(self) -> Array:
        """Correlation of the outputs; NaN for constant ones."""
        whole = np.asarray(self._linearization.correlation, np.float64)
        return whole[np.ix_(self._shown, self._shown)]

    def region(self, pair: tuple[int, int], masses: Sequence[float]) -> Region:
        """Exact density, from `Linearization.joint_density_grid`."""
        center, factor, grid = self._white_grid(pair, PLANE_POINTS)
        return _region(grid.points, grid.density, center, factor, masses)

    def slices(self, values: Sequence[float], masses: Sequence[float]) -> list[Slice | None]:
        """Exact conditional densities, from the layers of a grid in three dimensions."""
        from scipy.interpolate import RegularGridInterpolator

        center, factor, grid = self._white_grid((2, 0, 1), SPACE_POINTS)
        layers, *plane = grid.points
        density = RegularGridInterpolator(
            (layers,), grid.density, bounds_error=False, fill_value=0.0
        )
        slices: list[Slice | None] = []
        for value in values:
            white = (value - center[0]) / factor[0, 0]
            layer = density([[white]])[0]
            total = float(layer.sum() * np.prod(grid.spacing[1:]))
            # Beyond the support the transform gives only rounding errors.
            if total < 1e-12:
                slices.append(None)
                continue
            at = center[1:] + factor[1:, 0] * white
            region = _region(plane, layer / total, at, factor[1:, 1:], masses)
            slices.append(Slice(region, total / factor[0, 0]))
        return slices

    def _white_grid(self, order: Sequence[int], num_points: int) -> tuple[Array, Array, Any]:
        """Return mean and lower Cholesky factor of outputs, and their density when whitened."""
        linear, shown = self._linearization, [self._shown[j] for j in order]
        root = np.asarray(in_float64(linear).image().take(shown).root)
        rows = root / np.linalg.norm(root, axis=-1, keepdims=True)
        # As in `joint_density_grid`: rounding the Jacobian changes this by about eps.
        eps = float(jnp.finfo(linear.jacobian.dtype).eps)
        too_few = root.shape[1] < len(rows)
        if too_few or np.linalg.svd(rows, compute_uv=False)[-1] <= 100 * eps:
            raise ValueError(
                "outputs must be linearly independent to have a joint density, got "
                f"{', '.join(self._names[j] for j in order)}; pass law='copula' or other outputs"
            )
        factor = np.linalg.cholesky(root @ root.T)
        jacobian = np.asarray(linear.jacobian, np.float64)[shown]
        white = Linearization(jnp.zeros(len(rows)), np.linalg.solve(factor, jacobian), linear.input)
        center = np.asarray(linear.loc, np.float64)[shown]
        return center, factor, white.joint_density_grid(num_points=num_points)


def _region(
    points: Sequence[Array], density: Array, center: Array, factor: Array, masses: Sequence[float]
) -> Region:
    """Region of two outputs with this mean and factor, whose density when whitened is given."""
    cell = np.prod([axis[1] - axis[0] for axis in points])
    levels = mass_levels(density, density * cell, masses)
    scale = np.prod(np.diag(factor))
    density = density / scale
    close_border(density)
    u, v = np.meshgrid(*points, indexing="ij")
    x, y = skewed(u, v, center, factor)
    return Region(x, y, density, levels / scale)
