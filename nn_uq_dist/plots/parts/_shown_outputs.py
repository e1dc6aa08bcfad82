"""Which outputs a figure shows, their laws and their draws."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.typing import ArrayLike
from numpy.typing import NDArray

from nn_uq_dist.basics._checks import as_indices
from nn_uq_dist.diagnostics._arguments import (
    MINIMUM_DRAWS,
    Marginals,
    as_draws,
    as_marginals,
    finite_draws,
    names_of_outputs,
)
from nn_uq_dist.diagnostics._law_functions import LawFunctions, Tails

Array = NDArray[np.float64]


@dataclasses.dataclass(frozen=True, eq=False)
class Outputs:
    """The shown outputs of a network: their analytic laws and their draws.

    Attributes
    ----------
    functions
        Functions of the laws of all `N_y` outputs, not only the shown ones, so that any choice of
        outputs runs the same compiled program.
    shown, names
        Positions and names of the shown outputs.
    draws
        Monte Carlo draws of the shown outputs, shape ``(n, len(shown))``, or None.
    columns
        The finite draws of each shown output, sorted; empty without draws.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import numpyro.distributions as dist
    >>> from nn_uq_dist.plots import parts
    >>> laws = dist.Normal(jnp.array([1.0, 2.0]), jnp.array([3.0, 4.0]))
    >>> outputs = parts.prepare_outputs(laws, None, ["slope"], ["level", "slope"])
    >>> print(outputs.mean, outputs.sd, outputs.values_at(outputs.mean[None])[0])
    [2.] [4.] [[0.]]
    """

    functions: LawFunctions
    shown: list[int]
    names: list[str]
    draws: NDArray[Any] | None
    columns: list[Array]

    @property
    def mean(self) -> Array:
        """Means of the shown outputs."""
        return self.functions.mean[self.shown]

    @property
    def sd(self) -> Array:
        """Standard deviations of the shown outputs."""
        return self.functions.sd[self.shown]

    @property
    def bounds(self) -> tuple[Array, Array]:
        """Ends of the supports of the shown outputs, infinite where there are none."""
        return self.functions.low[self.shown], self.functions.high[self.shown]

    @property
    def num_draws(self) -> int:
        """Number of draws, including those that are not finite."""
        return 0 if self.draws is None else len(self.draws)

    def values_at(self, points: Array) -> tuple[Array, Array]:
        """Normal scores and log densities at points of the shown outputs, ``(p, len(shown))``."""
        found = self.functions.scores_and_log_densities(self._with_means(points))
        return found[0][:, self.shown], found[1][:, self.shown]

    def density_curves(self, low: Array, high: Array, num_points: int) -> tuple[Array, Array]:
        """Grids and densities between these ends, shape ``(len(shown), num_points)`` each."""
        grid = np.linspace(low, high, num_points)
        return grid.T, np.exp(self.values_at(grid)[1]).T

    def transforms(self, *, progress: bool) -> tuple[Array, NDArray[np.bool_]]:
        """Probability integral transforms of the draws, and whether they are beyond the support.

        Both of the shape of `draws`; NaN for draws that are not finite.
        """
        assert self.draws is not None  # noqa: S101 (of a figure that takes no None)
        draws = self._with_means(self.draws).astype(self.draws.dtype)
        tails = Tails(self.functions.law, draws, progress=progress)
        return tails.probabilities()[:, self.shown], tails.is_outside[:, self.shown]

    def _with_means(self, points: NDArray[Any]) -> Array:
        """Points of all outputs: those of the shown ones, and the means of the others."""
        whole = np.tile(self.functions.mean, (len(points), 1))
        whole[:, self.shown] = points
        return whole


def prepare_outputs(
    marginals: Marginals,
    draws: ArrayLike | None,
    outputs: Sequence[int | str] | None,
    output_names: Sequence[str] | None,
) -> Outputs:
    """Check the arguments that figures of single outputs share, and prepare what they draw.

    Parameters
    ----------
    marginals, draws, outputs, output_names
        As in `plot_marginals`.

    Raises
    ------
    TypeError, ValueError
        If the arguments do not fit.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import numpyro.distributions as dist
    >>> from nn_uq_dist.plots import parts
    >>> parts.prepare_outputs(dist.Normal(jnp.zeros(2), 1.0), None, None, None).names
    ['y[0]', 'y[1]']
    """
    law, shape = as_marginals(marginals)
    shown, names = choose_outputs(marginals, outputs, output_names, shape[-1])
    values = None if draws is None else as_draws(draws, shape)[:, shown]
    columns = [] if values is None else finite_draws(values, names)
    return Outputs(LawFunctions(law), shown, names, values, columns)


def require_enough(columns: Sequence[Array], names: Sequence[str]) -> None:
    """Raise if an output has too few finite draws."""
    sizes = [column.size for column in columns]
    few = [f"{n}: {c}" for n, c in zip(names, sizes, strict=True) if c < MINIMUM_DRAWS]
    if few:
        raise ValueError(
            f"every shown output must have at least {MINIMUM_DRAWS} finite draws, got "
            f"{', '.join(few)}; leave such outputs out with outputs="
        )


def as_outputs(outputs: Sequence[int | str] | None, names: Sequence[str]) -> list[int]:
    """Return the positions of the outputs to show, which are given as positions or names."""
    if outputs is None:
        return list(range(len(names)))
    if isinstance(outputs, str):
        raise TypeError(f"outputs must be a sequence, got the string {outputs!r}; pass a list")
    return list(as_indices(outputs, len(names), "outputs", names))


def choose_outputs(
    model: object,
    outputs: Sequence[int | str] | None,
    output_names: Sequence[str] | None,
    num_outputs: int,
) -> tuple[list[int], list[str]]:
    """Return positions and names of the outputs to show."""
    names = names_of_outputs(model, output_names, num_outputs)
    shown = as_outputs(outputs, names)
    return shown, [names[j] for j in shown]


def as_coverage(coverage: float) -> float:
    """Return a probability strictly between 0 and 1."""
    level = float(coverage)
    if not 0 < level < 1:
        raise ValueError(f"coverage must lie between 0 and 1, got {coverage}; pass 0.95")
    return level
