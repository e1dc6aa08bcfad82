"""Arguments that tables and figures share: the laws, the draws, and the names of the outputs."""

import importlib
import warnings
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from jax.typing import ArrayLike
from numpy.typing import NDArray
from numpyro.distributions import Distribution

if TYPE_CHECKING:
    from nn_uq_dist._linearization import Linearization
    from nn_uq_dist.distributions import LinearizedMarginal

MINIMUM_DRAWS = 100


def require_extra(module: str, purpose: str) -> ModuleType:
    """Import an optional dependency, or say which extra installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{purpose} needs {module}; install the extra with `pip install 'nn_uq_dist[viz]'`"
        ) from error


def as_marginals(marginals: "LinearizedMarginal | Linearization") -> tuple[Any, int]:
    """Return the laws of the outputs, batch shape ``(N_y,)`` or ``()``, and their number."""
    law: Any = marginals
    if not isinstance(law, Distribution) and callable(getattr(law, "marginals", None)):
        law = law.marginals()
    if not isinstance(law, Distribution) or not hasattr(law, "excess_kurtosis"):
        raise TypeError(
            "marginals must be a LinearizedMarginal or a Linearization, got "
            f"{type(marginals).__name__}; pass linearize(net, f) or its marginals()"
        )
    if law.event_shape or len(law.batch_shape) > 1:
        raise ValueError(
            "marginals must have batch shape (N_y,) and no event shape, got batch shape "
            f"{law.batch_shape} and event shape {law.event_shape}; linearize at one mean at a time"
        )
    return law, (law.batch_shape or (1,))[0]


def as_draws(draws: ArrayLike, num_outputs: int) -> NDArray[Any]:
    """Return the draws as a floating-point NumPy array of shape ``(n, N_y)``."""
    values = np.asarray(draws)
    if values.ndim == 1 and num_outputs == 1:
        values = values[:, None]
    if values.ndim != 2 or values.shape[1] != num_outputs:
        hint = (
            "pass its transpose"
            if values.ndim == 2 and values.shape[0] == num_outputs
            else "pass what monte_carlo returns, one row per draw"
        )
        raise ValueError(
            f"draws must have shape (n, N_y) = (n, {num_outputs}), got {values.shape}; {hint}"
        )
    if values.shape[0] < MINIMUM_DRAWS:
        raise ValueError(
            f"draws must hold at least {MINIMUM_DRAWS} rows, got {values.shape[0]}; "
            "fewer say nothing about the shape of a distribution"
        )
    if values.dtype.kind not in "fiub" and values.dtype.name != "bfloat16":  # NumPy kind "V"
        raise TypeError(f"draws must be real numbers, got dtype {values.dtype}")
    return values


def as_output_names(output_names: Sequence[str] | None, num_outputs: int) -> list[str]:
    """Return one unique name per output: ``y[0]``, ``y[1]``, ... unless given."""
    return as_names(output_names, num_outputs, "output", "y")


def as_input_names(input_names: Sequence[str] | None, num_inputs: int) -> list[str]:
    """Return one unique name per input: ``f[0]``, ``f[1]``, ... unless given."""
    return as_names(input_names, num_inputs, "input", "f")


def as_names(names: Sequence[str] | None, count: int, kind: str, letter: str) -> list[str]:
    """Return one unique name for each of `count` things, as the argument `<kind>_names` has them.

    Parameters
    ----------
    names
        As given. Default: `letter` with the position in brackets.
    count
        How many there must be.
    kind
        ``"output"`` or ``"input"``, for the messages.
    letter
        Of the default names.
    """
    if names is None:
        return [f"{letter}[{j}]" for j in range(count)]
    if isinstance(names, str):
        raise TypeError(
            f"{kind}_names must be a sequence of names, got the string {names!r}; pass a list"
        )
    texts = [str(name) for name in names]
    if len(texts) != count:
        raise ValueError(
            f"{kind}_names must hold one name per {kind}, {count}, got {len(texts)}; "
            f"name every {kind}, also those that are not shown"
        )
    if len(set(texts)) != count:
        repeated = sorted({text for text in texts if texts.count(text) > 1})
        raise ValueError(f"{kind}_names must differ, got {', '.join(repeated)} more than once")
    return texts


def finite_draws(draws: NDArray[Any], names: Sequence[str]) -> list[NDArray[np.float64]]:
    """Return the sorted finite draws of each output in float64, and warn if others are left out."""
    columns = []
    left_out = {}
    for name, column in zip(names, draws.T, strict=True):
        values = column.astype(np.float64)
        finite = values[np.isfinite(values)]
        if finite.size < values.size:
            left_out[name] = values.size - finite.size
        finite.sort()
        columns.append(finite)
    if left_out:
        listed = ", ".join(f"{name}: {count}" for name, count in left_out.items())
        warnings.warn(
            f"of {draws.shape[0]} draws some are NaN or infinite and are left out ({listed})",
            RuntimeWarning,  # as monte_carlo
            stacklevel=3,
        )
    return columns
