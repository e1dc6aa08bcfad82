"""Joint densities of two outputs under the analytic laws, with their regions of highest density."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from numpy.typing import NDArray

from nn_uq_dist.diagnostics._tails import Tails
from nn_uq_dist.plots._regions import Region, close_border, mass_levels, skewed

if TYPE_CHECKING:
    from nn_uq_dist._linearization import Linearization

Array = NDArray[np.float64]

TABLE_POINTS = 256  # of the upper half
TABLE_REACH = 8.0  # standard deviations
SCORE_REACH = 5.0
SCORE_POINTS = 161
PLANE_POINTS = 256
SPACE_POINTS = 128


class Table(NamedTuple):
    """The law of one output about its mean, at points that lie denser towards both ends.

    Attributes
    ----------
    center
        Mean.
    deviation
        Points minus the mean, rising.
    score
        Normal scores ``Phi^-1(F)`` there.
    log_density
        Log density there.
    end
        Half-width of the support, or infinity.
    """

    center: float
    deviation: Array
    score: Array
    log_density: Array
    end: float

    def curve(self) -> Array:
        """Points and densities, shape ``(2, points)``, down to zero at the ends of the support."""
        x, p = self.deviation, np.exp(self.log_density)
        if np.isfinite(self.end):
            x = np.concatenate([[-self.end], x, [self.end]])
            p = np.concatenate([[0.0], p, [0.0]])
        return np.array([self.center + x, p])


def output_tables(linearization: "Linearization", shown: Sequence[int]) -> list[Table]:
    """Tabulate the laws of some outputs: all that a Gaussian copula needs of them."""
    from nn_uq_dist._linearization import Linearization

    linearization.marginals()  # names a constant output by its own position
    rows = jnp.asarray(shown)
    # About zero: the resolution of float32 is then that of the deviations.
    zeros = jnp.zeros(len(shown), linearization.loc.dtype)
    law = Linearization(zeros, linearization.jacobian[rows], linearization.input).marginals()
    sd = np.sqrt(np.asarray(law.variance, np.float64))
    end = np.full(len(shown), np.inf)
    if hasattr(law.support, "upper_bound"):
        end = np.broadcast_to(np.asarray(law.support.upper_bound, np.float64), end.shape)
    end = np.where(end <= TABLE_REACH * sd, end, np.inf)
    fractions = 1 - (1 - np.arange(TABLE_POINTS) / TABLE_POINTS) ** 2
    upper = np.minimum(TABLE_REACH * sd, end) * fractions[:, None]
    places = Tails(law, upper, progress=False)
    scores, log_density = places.normal_scores(), places.log_density
    scores[0] = 0.0  # the center belongs to neither side

    return [
        Table(
            float(linearization.loc[j]),
            _both_sides(upper[:, k], -1),
            _both_sides(np.maximum.accumulate(np.abs(scores[:, k])), -1),
            _both_sides(log_density[:, k], 1),
            float(end[k]),
        )
        for k, j in enumerate(shown)
    ]


def _both_sides(upper: Array, sign: int) -> Array:
    return np.concatenate([sign * upper[:0:-1], upper])


def score_correlation(
    linearization: "Linearization",
    shown: Sequence[int],
    correlation: Literal["nataf", "linear"],
    min_eigenvalue: ArrayLike | None,
) -> Array:
    """Correlation of the normal scores of some outputs; its repair depends on all outputs."""
    fit = linearization.joint_correlation(None, correlation, min_eigenvalue)
    return np.asarray(fit.matrix, np.float64)[np.ix_(shown, shown)]


def copula_region(x: Table, y: Table, loc: Array, factor: Array, masses: Sequence[float]) -> Region:
    r"""Density of two outputs whose normal scores are normal with these parameters.

    The grid is regular in the whitened scores `w`, ``z = loc + factor w``: it resolves any
    correlation, and the probabilities of its cells are known.

    Parameters
    ----------
    x, y
        The laws of the outputs.
    loc, factor
        Mean ``(2,)`` and lower Cholesky factor ``(2, 2)`` of the scores.
    masses
        Of the regions.
    """
    w = np.linspace(-SCORE_REACH, SCORE_REACH, SCORE_POINTS)
    first, second = np.meshgrid(w, w, indexing="ij")
    points, log_density = [], -(first**2 + second**2) / 2 - np.log(np.prod(np.diag(factor)))
    for table, z in zip((x, y), skewed(first, second, loc, factor), strict=True):
        score = np.clip(z, table.score[0], table.score[-1])
        points.append(table.center + np.interp(score, table.score, table.deviation))
        log_density += np.interp(score, table.score, table.log_density) + score**2 / 2
    density = np.exp(log_density)
    close_border(density)
    weights = np.exp(-(first**2 + second**2) / 2) / (2 * np.pi) * (w[1] - w[0]) ** 2
    return Region(points[0], points[1], density, mass_levels(density, weights, masses))


def copula_slice(
    tables: Sequence[Table], correlation: Array, value: float, masses: Sequence[float]
) -> tuple[Region, float] | None:
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
    (Region, float) or None
        None if `value` is beyond the support.
    """
    x, y, given = tables
    deviation = value - given.center
    if not given.deviation[0] <= deviation <= given.deviation[-1]:
        return None
    score = np.interp(deviation, given.deviation, given.score)
    slope = correlation[:2, 2]
    factor = np.linalg.cholesky(correlation[:2, :2] - np.outer(slope, slope))
    region = copula_region(x, y, slope * score, factor, masses)
    return region, float(np.exp(np.interp(deviation, given.deviation, given.log_density)))


def linear_region(
    linearization: "Linearization",
    shown: Sequence[int],
    masses: Sequence[float],
    names: Sequence[str],
) -> Region:
    """Exact density of two outputs of the linear model, from `Linearization.joint_density_grid`.

    The grid is that of the whitened outputs, which are linear in the input as well: it resolves
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
    linearization: "Linearization",
    shown: Sequence[int],
    values: Sequence[float],
    masses: Sequence[float],
    names: Sequence[str],
) -> list[tuple[Region, float] | None]:
    """As `copula_slice` for several values, exact for the linear model."""
    i, j, k = shown
    factor, grid = _white_grid(linearization, (k, i, j), SPACE_POINTS, (names[2], *names[:2]))
    mean = np.asarray(linearization.loc, np.float64)
    layers, *plane = grid.points
    area = float(np.prod(grid.spacing[1:]))
    slices: list[tuple[Region, float] | None] = []
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
        # Beyond the support the transform leaves rounding errors.
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
        slices.append((Region(x, y, given / scale, levels / scale), total / factor[0, 0]))
    return slices


def _white_grid(
    linearization: "Linearization", shown: Sequence[int], num_points: int, names: Sequence[str]
) -> tuple[Array, Any]:
    """Return the lower Cholesky factor of the outputs, and the exact density of the whitened."""
    from nn_uq_dist._linearization import Linearization

    law = linearization.input
    jacobian = np.asarray(linearization.jacobian, np.float64)[list(shown)]
    parts = []
    if law.half_width is not None:
        parts.append(jacobian * np.asarray(law.half_width, np.float64) / np.sqrt(3))
    if law.scale_tril is not None:
        parts.append(jacobian @ np.asarray(law.scale_tril, np.float64))
    root = np.concatenate(parts, axis=-1)
    rows = root / np.linalg.norm(root, axis=-1, keepdims=True)
    # As in `joint_density_grid`: this moves by eps when the Jacobian is rounded.
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
