"""Checks of what a grid can show of a joint density: outputs, number of points, laws."""

import itertools
import math
from collections.abc import Sequence

import numpy as np

from nn_uq_dist.basics import _checks
from nn_uq_dist.basics._checks import as_indices
from nn_uq_dist.basics._known_values import FloatArray

MAXIMUM_POINTS = 2**25
MINIMUM_POINTS_PER_AXIS = 32
_NARROWEST_CELLS = 2.0


def two_or_three_outputs(indices: Sequence[int] | None, num_outputs: int) -> tuple[int, ...]:
    """Return the numbers of the outputs, from 0, in the order of the axes of the result."""
    given = range(num_outputs) if indices is None else indices
    if np.ndim(given) == 0:
        raise TypeError(f"indices must be integers, got {indices!r}; pass (0, 1)")
    if len(given) not in {2, 3}:
        raise ValueError(
            f"indices must name 2 or 3 outputs, got {len(given)}; pass indices=(i, j) for two of "
            f"many, take marginals() for one (a LinearizedMarginal) or joint() for all"
        )
    try:
        outputs = as_indices(given, num_outputs)
    except TypeError as error:
        raise TypeError(f"indices must be integers, got {indices!r}; pass (0, 1)") from error
    except ValueError:
        outputs = ()
    if outputs != tuple(given):
        raise ValueError(
            f"indices must be distinct numbers from 0 to {num_outputs - 1}, got {tuple(given)}; "
            f"name each output once, by its position in loc"
        )
    return outputs


def points_per_axis(num_points: int, num_axes: int) -> int:
    """Return the points along each axis as an integer, checked for a grid with this many axes."""
    num_points = _checks.positive_int("num_points", num_points)
    largest = int(MAXIMUM_POINTS ** (1 / num_axes))
    if not MINIMUM_POINTS_PER_AXIS <= num_points <= largest:
        raise ValueError(
            f"num_points must be between {MINIMUM_POINTS_PER_AXIS} and {largest} for {num_axes} "
            f"outputs (2**25 points in all), got {num_points}; pass 256, or fewer outputs"
        )
    return num_points


def require_full_rank(root: FloatArray, outputs: Sequence[int], eps: float) -> None:
    """Raise ``ValueError`` if an output is constant or a linear function of the others.

    Parameters
    ----------
    root
        Factor of the covariance, shape ``(d, m)`` with ``m >= d``.
    outputs
        Names of the rows, for the message.
    eps
        Relative rounding error of the entries.
    """
    remedy = "there is no joint density; pass noise_scale > 0 or other outputs"
    norm = np.linalg.norm(root, axis=-1, keepdims=True)
    if not norm.all():
        constant = outputs[int(np.argmin(norm))]
        raise ValueError(
            f"every output must vary with the input, got constant output {constant}: {remedy}"
        )
    rows = root / norm
    for size in range(2, len(outputs) + 1):
        for subset in itertools.combinations(range(len(outputs)), size):
            # The smallest singular value: about the root of 1 - |correlation| for two outputs,
            # it moves by eps when the Jacobian is rounded.
            if np.linalg.norm(rows[list(subset)], ord=-2) <= 100 * eps:
                named = " and ".join(str(outputs[i]) for i in subset)
                raise ValueError(
                    f"outputs must be linearly independent, got linearly dependent outputs "
                    f"{named}: {remedy}"
                )


def require_resolved(
    root_in_cells: FloatArray, outputs: Sequence[int], num_points: int, margin: float
) -> None:
    """Raise ``ValueError`` if the law is narrower than two cells in some direction.

    Parameters
    ----------
    root_in_cells
        Factor of the covariance in units of the cells, shape ``(d, m)`` with ``m >= d``.
    outputs
        Names of the rows, for the message.
    num_points, margin
        Points along each axis, and the number of free cells at each end.
    """
    narrowest = float(np.linalg.norm(root_in_cells, ord=-2))  # the smallest singular value
    if narrowest >= _NARROWEST_CELLS:
        return
    filled = num_points - 2 * margin
    # Half a cell more at each end if the number of points is even.
    needed = math.ceil(filled * _NARROWEST_CELLS / narrowest + 2 * math.floor(margin) + 1)
    remedy = f"pass num_points={needed}"
    if needed ** len(outputs) > MAXIMUM_POINTS:
        remedy = f"{needed} points per output are too many: pass noise_scale > 0 or other outputs"
    raise ValueError(
        f"the grid must resolve the law of outputs {tuple(outputs)}, got a smallest standard "
        f"deviation of {narrowest:.3g} cells in some direction, at least {_NARROWEST_CELLS:g} "
        f"expected; {remedy}"
    )
