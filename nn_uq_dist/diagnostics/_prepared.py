"""Draws of the outputs and their positions under their laws, computed once for every use."""

import warnings
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.diagnostics._arguments import MINIMUM_DRAWS
from nn_uq_dist.diagnostics._tails import Tails
from nn_uq_dist.laws._output_law import OutputLaw

Array = NDArray[np.float64]

_PACKAGE = str(Path(__file__).parents[1])


class PreparedDraws:
    """Checked draws of the outputs, with their positions under the laws of the outputs.

    The constructor warns of draws that are not finite, so call it after all arguments are checked.

    Parameters
    ----------
    law
        Laws of the outputs, from `as_marginals`.
    values
        Draws, from `as_draws`, shape ``(n, N_y)``.
    names
        Names of the outputs, from `as_output_names`.
    progress
        Whether a progress bar may appear while the laws are evaluated.

    Attributes
    ----------
    columns
        The finite draws of each output in float64, ascending.
    """

    def __init__(
        self, law: OutputLaw, values: NDArray[Any], names: Sequence[str], *, progress: bool = True
    ) -> None:
        self.law = law
        self.values = values
        self.names = names
        self.columns = finite_draws(values, names)
        self._progress = progress

    def finite(self, j: int) -> NDArray[np.intp]:
        """Positions of the finite draws of output `j`."""
        return np.flatnonzero(np.isfinite(self.values[:, j].astype(np.float64)))

    def order(self, j: int) -> NDArray[np.intp]:
        """The same, sorted by the size of the draws, as in `columns`."""
        finite = self.finite(j)
        return finite[np.argsort(self.values[finite, j].astype(np.float64))]

    @cached_property
    def tails(self) -> Tails:
        """Positions of all draws under the laws, in the order of the draws."""
        return Tails(self.law, self.values, progress=self._progress)

    @cached_property
    def probabilities(self) -> Array:
        """Probability integral transforms of all draws, in the order of the draws."""
        return self.tails.probabilities()

    @cached_property
    def non_finite(self) -> NDArray[np.int64]:
        """Number of draws of each output that are not finite."""
        return np.array([len(self.values) - column.size for column in self.columns])

    @cached_property
    def outside_support(self) -> Array:
        """Fraction of the finite draws of each output beyond its support, NaN if there are none."""
        counts = np.array([column.size for column in self.columns], np.float64)
        return self.tails.is_outside.sum(axis=0) / np.where(counts > 0, counts, np.nan)


def finite_draws(draws: NDArray[Any], names: Sequence[str]) -> list[Array]:
    """Return the sorted finite draws of each output in float64, and warn if others are left out."""
    columns = []
    for column in draws.T:
        numbers = column.astype(np.float64)
        columns.append(np.sort(numbers[np.isfinite(numbers)]))
    warn_of_left_out(len(draws), [column.size for column in columns], names)
    return columns


def complete_rows(draws: NDArray[Any], names: Sequence[str]) -> NDArray[Any]:
    """Return the rows that are finite in all outputs, and warn if others are left out.

    Raises
    ------
    ValueError
        If they are fewer than 100.
    """
    is_finite = np.isfinite(draws)
    is_complete = is_finite.all(axis=1)
    if is_complete.all():
        return draws
    warn_of_left_out(len(draws), is_finite.sum(axis=0).tolist(), names)
    if is_complete.sum() < MINIMUM_DRAWS:
        raise ValueError(
            f"draws must hold at least {MINIMUM_DRAWS} rows that are finite in all outputs, "
            f"got {is_complete.sum()}; leave out the outputs that are not, or fix the network"
        )
    return draws[is_complete]


def warn_of_left_out(num_draws: int, counts: Sequence[int], names: Sequence[str]) -> None:
    """Warn if outputs have fewer finite draws than there are draws."""
    left_out = [
        f"{name}: {num_draws - count}"
        for name, count in zip(names, counts, strict=True)
        if count < num_draws
    ]
    if left_out:
        warnings.warn(
            f"some of {num_draws} draws are NaN or infinite, or beyond 1e150, and are left out "
            f"({', '.join(left_out)})",
            RuntimeWarning,  # as monte_carlo
            skip_file_prefixes=(_PACKAGE,),  # the line of the user
        )
