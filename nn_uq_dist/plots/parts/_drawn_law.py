"""What figures need from a joint law of outputs."""

import abc
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.laws import OutputLaw
from nn_uq_dist.plots.parts._output_table import OutputTable, output_table
from nn_uq_dist.plots.parts._regions import Region

Array = NDArray[np.float64]


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

    Final subclasses compute densities of pairs on a grid that resolves them: in closed form for a
    Gaussian copula, by FFT for the linear law, from `log_prob` for any other joint law.

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
