"""Joint laws as figures draw them: densities on a grid that resolves them."""

from collections.abc import Sequence
from functools import cached_property
from typing import Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.basics._compiled_once import in_portions
from nn_uq_dist.basics._known_values import in_float64
from nn_uq_dist.diagnostics._arguments import as_joint_law
from nn_uq_dist.diagnostics._law_functions import LawFunctions, joint_correlation
from nn_uq_dist.distributions import GaussianCopulaJoint
from nn_uq_dist.laws import JointLaw, OutputLaw, as_output_law, batch_entries
from nn_uq_dist.linearization._linear_model import LinearModel
from nn_uq_dist.linearization._linearized_network import Linearization
from nn_uq_dist.plots.parts._regions import Region, close_border, mass_levels, skewed

Array = NDArray[np.float64]
Law = Literal["joint", "copula", "linear"] | JointLaw

POINTS_PER_CALL = 4096
# The grid follows the correlation of the outputs up to this value. It is only a guide: the scores
# of a law other than a Gaussian copula may spread more than their correlation suggests.
MOST_CORRELATION = 0.99
# Range of the normal scores of a table, and number of its points.
SCORE_REACH, NUM_POINTS = 8.0, 2048
# The points of a table are linear between the values of this many scores.
NUM_KNOTS = 64
GRID = np.linspace(-4.7, 4.7, 161)
# Points along each axis at which the exact law of the linear model is drawn.
NUM_GRID_POINTS = 256


class OutputTable(NamedTuple):
    """The law of one output, tabulated evenly in its normal scores between -8 and 8.

    Attributes
    ----------
    mean, sd, low, high
        Moments and ends of the support.
    points, scores, log_densities
        Ascending points, and scores and log densities there.
    """

    mean: float
    sd: float
    low: float
    high: float
    points: Array
    scores: Array
    log_densities: Array

    def curve(self) -> Array:
        """Points and densities, shape ``(2, points)``, down to zero at the ends of the support."""
        x, p = self.points, np.exp(self.log_densities)
        if np.isfinite(self.low):
            x, p = np.append(self.low, x), np.append(0.0, p)
        if np.isfinite(self.high):
            x, p = np.append(x, self.high), np.append(p, 0.0)
        return np.array([x, p])


def output_table(laws: OutputLaw, index: int, origin: float) -> OutputTable:
    """Tabulate one of several laws, with offset `origin`.

    With a law centered at zero, float32 resolves the deviations from a large mean.
    """
    functions = LawFunctions(batch_entries(laws, (..., (index,))))
    knots = np.linspace(-SCORE_REACH, SCORE_REACH, NUM_KNOTS)
    values = functions.values(knots)[:, 0]
    points = np.interp(np.linspace(-SCORE_REACH, SCORE_REACH, NUM_POINTS), knots, values)
    # Round the points to the precision of the law, so that its values belong to them exactly.
    points = np.unique(points.astype(functions.law.mean.dtype)).astype(np.float64)
    scores, log_densities = (x[:, 0] for x in functions.scores_and_log_densities(points[:, None]))
    # Rounding may swap neighbors, and far out some laws have the same score everywhere.
    inside = np.flatnonzero(np.abs(scores) <= SCORE_REACH)
    largest = np.maximum.accumulate(scores[inside])
    kept = inside[np.append(True, scores[inside][1:] > largest[:-1])]
    mean, sd, low, high = (
        float(x[0]) for x in (functions.mean, functions.sd, functions.low, functions.high)
    )
    return OutputTable(
        origin + mean, sd, origin + low, origin + high,
        origin + points[kept], scores[kept], log_densities[kept],
    )  # fmt: skip


class DrawnJoint:
    """A joint law of the shown outputs, used only through the contract `JointLaw`.

    The density of a Gaussian copula has a closed form in the scores of a grid, for which no program
    is compiled.

    Parameters
    ----------
    joint
        The law of the shown outputs.
    origin
        Offset added to the outputs of `joint`, shape ``(d,)``.

    Attributes
    ----------
    kind
        Name of the law in legends and labels.
    """

    def __init__(self, joint: JointLaw, origin: Array) -> None:
        self.kind = joint.kind
        self._joint = joint
        self._origin = origin
        if isinstance(joint, GaussianCopulaJoint):
            self._scores = np.asarray(joint.correlation_matrix, np.float64)
        else:
            guide = MOST_CORRELATION * joint_correlation(joint)
            self._scores = np.where(np.eye(len(guide), dtype=bool), 1, guide)

    @cached_property
    def tables(self) -> list[OutputTable]:
        """The laws of the single outputs, tabulated."""
        laws = as_output_law(self._joint.marginals)
        return [output_table(laws, j, float(x)) for j, x in enumerate(self._origin)]

    def region(self, pair: tuple[int, int], masses: Sequence[float]) -> Region:
        """Density of the marginal law of the pair."""
        factor = np.linalg.cholesky(self._scores[np.ix_(pair, pair)])
        first, second = (self.tables[j] for j in pair)
        x, y, density = _score_grid(first, second, factor)
        if not isinstance(self._joint, GaussianCopulaJoint):
            points = np.stack([x, y], axis=-1) - self._origin[list(pair)]
            density = _density(self._joint.marginalize(pair), points)
        return _region(x, y, density, masses)


def _score_grid(
    first: OutputTable, second: OutputTable, factor: Array
) -> tuple[Array, Array, Array]:
    r"""Points with scores ``z = factor w`` for regular `w`, which resolve any correlation.

    Also their density if the scores are normal,

    .. math:: p(x, y) = p_x p_y\, N(z; 0, L L^T) / (\phi(z_x) \phi(z_y)).
    """
    found, grid = [], skewed((GRID, GRID), np.zeros(2), factor)
    for table, scores in zip((first, second), grid, strict=True):
        at = np.clip(scores, *table.scores[[0, -1]])
        points, logs = (
            np.interp(at, table.scores, part) for part in (table.points, table.log_densities)
        )
        found.append((at, points, logs + at**2 / 2))
    (a, x, log_x), (b, y, log_y) = found
    # The scores, whitened; the factors 2 pi of both normal laws cancel.
    u = a / factor[0, 0]
    v = (b - factor[1, 0] * u) / factor[1, 1]
    return x, y, np.exp(log_x + log_y - (u**2 + v**2) / 2) / np.prod(np.diag(factor))


def _density(joint: JointLaw, points: Array) -> Array:
    """Density at points of shape ``(..., d)``."""
    flat = points.reshape(-1, points.shape[-1])
    logs = in_portions(joint.log_prob, flat, size=POINTS_PER_CALL)
    return np.exp(logs).reshape(points.shape[:-1])


def _region(x: Array, y: Array, density: Array, masses: Sequence[float]) -> Region:
    weights = density * _areas(x, y)
    close_border(density)
    return Region(x, y, density, mass_levels(density, weights, masses))


def _areas(x: Array, y: Array) -> Array:
    """Areas of the cells around the points of a skewed grid."""
    # `x` is constant along a row, so that the area is a product.
    return np.gradient(x, axis=0) * np.gradient(y, axis=1)


class DrawnLinear:
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

    @cached_property
    def tables(self) -> list[OutputTable]:
        """The laws of the single outputs, tabulated."""
        model, origin = centered(self._linearization, self._shown)
        rows = jnp.asarray(self._shown)
        laws = Linearization(model.loc[rows], model.jacobian[rows], model.input).marginals()
        return [output_table(laws, j, float(x)) for j, x in enumerate(origin)]

    def region(self, pair: tuple[int, int], masses: Sequence[float]) -> Region:
        """Exact density, from `Linearization.joint_density_grid`."""
        linear, shown = self._linearization, [self._shown[j] for j in pair]
        root = np.asarray(in_float64(linear).image().take(shown).root)
        lengths = np.linalg.norm(root, axis=-1, keepdims=True)
        if not lengths.all():
            constant = self._names[pair[int(np.argmin(lengths))]]
            raise ValueError(
                f"outputs must vary to have a joint density, got {constant}, which is constant; "
                "pass outputs= without it"
            )
        rows = root / lengths
        # As in `joint_density_grid`: rounding the Jacobian changes this by about eps.
        eps = float(jnp.finfo(linear.jacobian.dtype).eps)
        if root.shape[1] < 2 or np.linalg.svd(rows, compute_uv=False)[-1] <= 100 * eps:
            raise ValueError(
                "outputs must be linearly independent to have a joint density, got "
                f"{', '.join(self._names[j] for j in pair)}; pass law='copula' or other outputs"
            )
        factor = np.linalg.cholesky(root @ root.T)
        jacobian = np.asarray(linear.jacobian, np.float64)[shown]
        white = Linearization(jnp.zeros(2), np.linalg.solve(factor, jacobian), linear.input)
        grid = white.joint_density_grid(num_points=NUM_GRID_POINTS)
        x, y = skewed(grid.points, np.asarray(linear.loc, np.float64)[shown], factor)
        return _region(x, y, grid.density / np.prod(np.diag(factor)), masses)


def drawn_law(
    law: Law | None, model: LinearModel, shown: Sequence[int], names: Sequence[str]
) -> DrawnJoint | DrawnLinear:
    """Return the law of the shown outputs that an argument names or contains.

    Parameters
    ----------
    law
        As given. Default: the exact law of a `Linearization`, else the joint distribution.
    model
        Model of all outputs.
    shown, names
        Positions and names of the shown outputs.
    """
    if law is None:
        law = "linear" if isinstance(model, Linearization) else "joint"
    if not isinstance(law, str | JointLaw):
        raise TypeError(
            f"law must be 'joint', 'copula', 'linear' or a JointLaw, got {type(law).__name__}; "
            "pass linearization.joint()"
        )
    if isinstance(law, str) and law not in {"joint", "copula", "linear"}:
        raise ValueError(f"law must be 'joint', 'copula' or 'linear', got {law!r}")
    if law == "linear":
        if isinstance(model, Linearization):
            return DrawnLinear(model, shown, names)
        raise ValueError(
            f"law must be 'joint' or 'copula' for a {type(model).__name__}, got 'linear'; only a "
            "Linearization has an exact density on a grid"
        )
    origin = np.zeros(len(shown))
    if law == "joint":
        law = model.joint()
    elif isinstance(law, str):
        if isinstance(model, Linearization):
            model, origin = centered(model, shown)
        law = model.gaussian_copula()
    else:
        law = as_joint_law("law", law, model.num_outputs)
    return DrawnJoint(law.marginalize(tuple(shown)), origin)


def centered(model: Linearization, shown: Sequence[int]) -> tuple[Linearization, Array]:
    """Return the model with zero means, and the means of the shown outputs.

    Then float32 resolves the deviations instead of the values.
    """
    zeros = Linearization(jnp.zeros_like(model.loc), model.jacobian, model.input)
    return zeros, np.asarray(model.loc, np.float64)[list(shown)]
