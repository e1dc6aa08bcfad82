"""Joint laws as figures draw them: densities on a grid that resolves them."""

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.basics._compiled_once import in_portions
from nn_uq_dist.diagnostics._arguments import as_joint_law
from nn_uq_dist.diagnostics._law_functions import LawFunctions, joint_correlation
from nn_uq_dist.distributions import (
    GaussianCopulaJoint,
    JointLaw,
    LinearizedJoint,
    OutputLaw,
    as_output_law,
)
from nn_uq_dist.inputs import LinearImage
from nn_uq_dist.linearization._linear_model import LinearModel
from nn_uq_dist.linearization._linearized_network import Linearization
from nn_uq_dist.plots.parts._regions import Region, close_border, mass_levels, skewed

Array = NDArray[np.float64]
Law = Literal["joint", "copula"] | JointLaw

POINTS_PER_CALL = 4096
# The grid follows the correlation of the outputs up to this value. It is only a guide: the scores
# of a law other than a Gaussian copula may spread more than their correlation suggests.
MOST_CORRELATION = 0.99
LARGEST_LOSS = 0.03
# Range of the normal scores of a table, and number of its points.
SCORE_REACH, NUM_POINTS = 8.0, 2048
# The points of a table are linear between the values of this many scores.
NUM_KNOTS = 64
GRID = np.linspace(-4.7, 4.7, 161)


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


def output_table(law: OutputLaw, origin: float) -> OutputTable:
    """Tabulate the law of one output, batch shape ``(1,)``, with offset `origin`.

    With a law centered at zero, float32 resolves the deviations from a large mean.
    """
    functions = LawFunctions(law)
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
    marginalize
        Joint law of some of the shown outputs, by their positions among these.
    origin
        Offset added to the outputs of these laws, shape ``(d,)``.
    """

    def __init__(self, marginalize: Callable[[Sequence[int]], JointLaw], origin: Array) -> None:
        self._marginalize = marginalize
        self._origin = origin

    @cached_property
    def kind(self) -> str:
        """Name of the law in legends and labels."""
        return self._marginalize((0,)).kind

    @cached_property
    def tables(self) -> list[OutputTable]:
        """The laws of the single outputs, tabulated."""
        return [
            output_table(as_output_law(self._marginalize((j,)).marginals), float(x))
            for j, x in enumerate(self._origin)
        ]

    def region(self, pair: tuple[int, int], masses: Sequence[float]) -> Region:
        """Density of the marginal law of the pair."""
        joint = self._marginalize(pair)
        factor = np.linalg.cholesky(_score_correlation(joint))
        first, second = (self.tables[j] for j in pair)
        x, y, density = _score_grid(first, second, factor)
        if not isinstance(joint, GaussianCopulaJoint):
            density = _density(joint, np.stack([x, y], axis=-1) - self._origin[list(pair)])
        return _region(x, y, density, masses)


def _score_correlation(joint: JointLaw) -> Array:
    """Correlation of the normal scores, or a guide to it."""
    if isinstance(joint, GaussianCopulaJoint):
        return np.asarray(joint.correlation_matrix, np.float64)
    guide = MOST_CORRELATION * joint_correlation(joint)
    return np.where(np.eye(len(guide), dtype=bool), 1, guide)


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
    # Next to an edge of the support expectation propagation may fail at single points.
    return np.nan_to_num(np.exp(logs), nan=0.0).reshape(points.shape[:-1])


def _region(x: Array, y: Array, density: Array, masses: Sequence[float]) -> Region:
    areas = _areas(x, y)
    mass = np.sum(density * areas)
    # It is 1 up to rounding and the approximation of the density, unless the grid loses some.
    if mass > 1.0 - LARGEST_LOSS:
        density = density / mass
    weights = density * areas
    close_border(density)
    return Region(x, y, density, mass_levels(density, weights, masses))


def _areas(x: Array, y: Array) -> Array:
    """Areas of the cells around the points of a skewed grid."""
    # `x` is constant along a row, so that the area is a product.
    return np.gradient(x, axis=0) * np.gradient(y, axis=1)


def drawn_law(
    law: Law | None, model: LinearModel, shown: Sequence[int], names: Sequence[str]
) -> DrawnJoint:
    """Return the law of the shown outputs that an argument names or contains.

    Parameters
    ----------
    law
        As given. Default: the joint distribution.
    model
        Model of all outputs.
    shown, names
        Positions and names of the shown outputs.
    """
    if not (law is None or isinstance(law, str | JointLaw)):
        raise TypeError(
            f"law must be 'joint', 'copula' or a JointLaw, got {type(law).__name__}; pass "
            "linearization.joint()"
        )
    if isinstance(law, str) and law not in {"joint", "copula"}:
        raise ValueError(f"law must be 'joint' or 'copula', got {law!r}; leave it out")
    origin = np.zeros(len(shown))
    if isinstance(law, JointLaw):
        law = as_joint_law("law", law, model.num_outputs)
    elif isinstance(model, Linearization):
        # With zero means float32 resolves the deviations instead of the values.
        origin = np.asarray(model.loc, np.float64)[list(shown)]
        if law != "copula":
            return DrawnJoint(partial(_linear_joint, model.image().take(shown), names), origin)
        model = Linearization(jnp.zeros_like(model.loc), model.jacobian, model.input)
    if not isinstance(law, JointLaw):
        law = model.gaussian_copula() if law == "copula" else model.joint()
    return DrawnJoint(law.marginalize(tuple(shown)).marginalize, origin)


def _linear_joint(
    image: LinearImage, names: Sequence[str], indices: Sequence[int]
) -> LinearizedJoint:
    """Joint law about zero of some of the shown outputs; all of them may have no joint density."""
    part = image.take(indices)
    loc = jnp.zeros(len(indices))
    try:
        LinearizedJoint.of_image(loc, part, validate_args=True)
    except ValueError as error:
        raise ValueError(
            "outputs must vary and be linearly independent to have a joint density, got "
            f"{', '.join(names[j] for j in indices)}; pass law='copula' or other outputs"
        ) from error
    # Without a warning at points of the grid beyond the support.
    return LinearizedJoint.of_image(loc, part, validate_args=False)
