"""Arguments that tables and figures share: distributions, draws, and names of the outputs."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from jax.typing import ArrayLike
from numpy.typing import NDArray
from numpyro.distributions import Distribution

from nn_uq_dist import distributions
from nn_uq_dist.basics import checks
from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.distributions import JointDistribution, OutputDistribution, as_output_distribution
from nn_uq_dist.linearization import LinearModel
from nn_uq_dist.sampling import PairedDraws

MINIMUM_DRAWS = 100
# Draws beyond this count as infinite: their squares would be.
LARGEST_DRAW = 1e150
# What to do with a batch where only one point is taken.
ONE_POINT = "take one point: model[i] with draws[:, i], or with pairs[i]"


class HasMarginals(Protocol):
    """An object that gives the distributions of its outputs, such as a `LinearModel`."""

    def marginals(self) -> Distribution:
        """The distributions of the outputs."""


# What tables and figures of single outputs accept.
type Marginals = Distribution | HasMarginals
# Draws of a network, alone or paired with those of its linearization.
type NetworkDraws = ArrayLike | PairedDraws
# Limits of all outputs, or of some by name.
type Limits = ArrayLike | Mapping[str, ArrayLike]


def require_numbers(function: str, *values: object) -> None:
    """Raise ``TypeError`` if an argument of a function that runs now is traced by JAX."""
    if not checks.is_concrete(*values):
        raise TypeError(
            f"all arguments must hold numbers, got traced values; call {function} outside of jit, "
            f"vmap and grad"
        )


def as_marginals(
    marginals: Marginals, *, batched: bool = False
) -> tuple[OutputDistribution, tuple[int, ...]]:
    """Return the distributions of the outputs in a row, and the shape ``(..., N_y)`` that they had.

    Batch axes in front of the outputs are allowed if they may be `batched`.
    """
    distribution: Any = marginals
    if isinstance(marginals, JointDistribution):
        distribution = as_output_distribution(marginals.marginals)
    elif not isinstance(marginals, Distribution) and hasattr(marginals, "marginals"):
        distribution = _of_model(marginals)
    if not isinstance(distribution, Distribution):
        raise TypeError(
            "marginals must be a LinearizedMarginal or a Linearization, got "
            f"{type(marginals).__name__}; pass linearize(network, f), its marginals() or another "
            "univariate NumPyro distribution"
        )
    shape, event_shape = tuple(distribution.batch_shape), distribution.event_shape
    if event_shape or (len(shape) > 1 and not batched):
        remedy = "pass the distributions of single outputs" if event_shape else ONE_POINT
        raise ValueError(
            f"marginals must have batch shape {'(..., N_y)' if batched else '(N_y,)'} and no event "
            f"shape, got batch shape {shape} and event shape {event_shape}; {remedy}"
        )
    outputs = as_output_distribution(distribution, "marginals")
    if len(shape) > 1:
        in_a_row = np.unravel_index(np.arange(math.prod(shape)), shape)
        outputs = as_output_distribution(distributions.batch_entries(outputs, in_a_row))
    return outputs, shape or (1,)


def _of_model(model: HasMarginals) -> Any:
    """The marginals of a model; those of constant outputs, which have none, are a rounding wide."""
    try:
        return model.marginals()
    except ValueError:
        if not isinstance(model, LinearModel):
            raise
        constant = np.asarray(model.variance) == 0
        if not constant.any():
            raise
        info = np.finfo(model.mean.dtype)
        rounding = np.maximum(info.eps * np.abs(model.mean), 10 * np.sqrt(info.tiny))
        names = [name for name, of in zip(model.output_names, constant.T, strict=True) if of.any()]
        checks.warn(
            f"the linearization has no sensitivity of {', '.join(names)}, shown as constant to a "
            f"rounding; if draws of the network vary, ask the linearization as corrected by pairs"
        )
        return model.marginals(np.where(constant, rounding, 0))


def as_joint_marginals(joint: object, num_outputs: int) -> OutputDistribution:
    """Return those of a joint distribution after a check of its type and shapes."""
    if not isinstance(joint, JointDistribution):
        raise TypeError(
            f"joint must be a JointDistribution, got {type(joint).__name__}; pass "
            "linearization.joint() or linearization.gaussian_copula()"
        )
    if joint.batch_shape or joint.event_shape != (num_outputs,):
        raise ValueError(
            f"joint must have no batch shape and event shape (N_y,) = ({num_outputs},), got "
            f"{joint.batch_shape} and {joint.event_shape}; pass a joint distribution of all "
            "outputs of one point"
        )
    return as_output_distribution(joint.marginals)


def as_model(linearization: object, *, batched: bool = False) -> LinearModel:
    """Return the model after a check of its type, and that it is of one point if not `batched`."""
    if not isinstance(linearization, LinearModel):
        raise TypeError(
            f"linearization must be a Linearization or another LinearModel, got "
            f"{type(linearization).__name__}; pass linearize(network, f)"
        )
    if linearization.batch_shape and not batched:
        raise ValueError(
            f"linearization must have no batch shape, got {linearization.batch_shape}; {ONE_POINT}"
        )
    return linearization


def as_draws(model: object, draws: NetworkDraws, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return the draws as real numbers, one column for each output and point.

    Of pairs, which must be those of the model's input, they are those of the network. The `shape`
    of one must be ``(..., N_y)``; numbers beyond 1e150 become infinite.
    """
    if isinstance(draws, PairedDraws):
        _require_same_input(getattr(model, "input", None), draws.linearization.input)
        draws = draws.network
    values = np.asarray(draws)
    checks.require_order("draws", draws, names_of_outputs(model, None, shape[-1]))
    if shape[-1] == 1 and values.shape[1:] == shape[:-1]:
        values = values[..., None]
    if values.shape[1:] != shape:
        wanted = ", ".join(["n", *map(str, shape)])
        raise ValueError(
            f"draws must have shape (n, ..., N_y) = ({wanted}), got {values.shape}; pass one row "
            f"per draw, as monte_carlo returns; of a batch, {ONE_POINT}"
        )
    if len(values) < MINIMUM_DRAWS:
        raise ValueError(
            f"draws must hold at least {MINIMUM_DRAWS} rows, got {len(values)}; "
            "fewer say nothing about the shape of a distribution"
        )
    if values.dtype.kind not in "fiub" and values.dtype.name != "bfloat16":  # NumPy kind "V"
        raise TypeError(f"draws must be real numbers, got dtype {values.dtype}; pass floats")
    values = values.reshape(len(values), -1)
    if values.dtype == np.float64 and (too_large := np.abs(values) > LARGEST_DRAW).any():
        return np.where(too_large, np.copysign(np.inf, values), values)
    return values


def _require_same_input(of_model: Any, of_pairs: Any) -> None:
    """Raise if pairs were drawn from another input than that of the model, which may have none."""
    if of_model is None:
        return
    first, second = (
        np.array(np.broadcast_arrays(f.mean, f.standard_deviation), float)
        for f in (of_model, of_pairs)
    )
    # A model of one's own may have the same input in another type.
    if first.shape != second.shape or (abs(first - second) > 1e-3 * first[1]).any():
        raise ValueError(
            "draws must be pairs of the model's input, got pairs whose inputs have another mean or "
            "standard deviation; pass paired_draws(network, linearization, key, num_samples) with "
            "the same input"
        )


def is_made_of(model: object, draws: NetworkDraws) -> bool:
    """Whether a corrected model was estimated from these draws: those cannot judge it.

    The first ones tell, as draws of one key are the same ones whatever their number.
    """
    pairs = getattr(model, "pairs", None)
    if not isinstance(pairs, PairedDraws):
        return False
    arrays: tuple[Any, Any] = draws, pairs.network
    if isinstance(draws, PairedDraws):  # finite, whatever the network returns
        arrays = draws.base_inputs, pairs.base_inputs
    count = min(map(len, arrays))
    compared, fitted = (
        np.asarray(array, np.float64)[:count].reshape(count, -1) for array in arrays
    )
    if fitted.shape != compared.shape:
        return False
    small = 1e-3 * np.nanstd(np.where(np.isfinite(fitted), fitted, np.nan), axis=0)
    # Where most outputs are equal, those of other draws are, too.
    off, by_chance = (
        np.mean(~np.isclose(fitted, other, 0, small, equal_nan=True))
        for other in (compared, np.roll(compared, 1, axis=0))
    )
    return bool(off <= 0.1 * by_chance)


def warn_of_left_out(draws: NDArray[Any], names: Sequence[str]) -> None:
    """Warn if draws of outputs are not finite."""
    counts = zip(names, (~np.isfinite(draws)).sum(axis=0).tolist(), strict=True)
    if left_out := [f"{name}: {count}" for name, count in counts if count]:
        checks.warn(
            f"some of {len(draws)} draws are NaN or infinite, or beyond 1e150, and are left out "
            f"({', '.join(left_out)})"
        )


def complete_rows(draws: NDArray[Any]) -> NDArray[Any]:
    """Return the rows that are finite in all outputs, and raise if they are fewer than 100."""
    complete = draws[np.isfinite(draws).all(axis=1)]
    if len(complete) < MINIMUM_DRAWS:
        raise ValueError(
            f"draws must hold at least {MINIMUM_DRAWS} rows that are finite in all outputs, "
            f"got {len(complete)}; leave out the outputs that are not, or fix the network"
        )
    return complete


def names_of_outputs(model: object, names: Sequence[str] | None, count: int) -> list[str]:
    """Return one unique name for each output: as given, or those of the model."""
    return as_names("output", names, count, getattr(model, "output_names", None))


def as_names(
    kind: str, names: Sequence[str] | None, count: int, keys: Sequence[str] | None = None
) -> list[str]:
    """Return one unique name for each output or input, from the argument `<kind>_names`.

    Without `names` they are the `keys` of the structure that outputs or inputs come in, else
    ``y[0]``, ``y[1]``, ... for outputs, ``f[0]``, ... for inputs.
    """
    if isinstance(names, str):
        raise TypeError(
            f"{kind}_names must be a sequence of names, got the string {names!r}; pass a list"
        )
    letter = "y" if kind == "output" else "f"
    defaults = keys or [f"{letter}[{j}]" for j in range(count)]
    texts = [str(name) for name in (defaults if names is None else names)]
    if len(texts) != count:
        raise ValueError(
            f"{kind}_names must hold one name per {kind}, {count}, got {len(texts)}; "
            f"name every {kind}, even those that are not shown"
        )
    if repeated := sorted({text for text in texts if texts.count(text) > 1}):
        raise ValueError(
            f"{kind}_names must differ, got {', '.join(repeated)} more than once; rename them"
        )
    if keys and texts != list(keys) and set(texts) == set(keys):
        raise ValueError(
            f"{kind}_names must be in the order of the {kind}s, {', '.join(keys)}, got "
            f"{', '.join(texts)}; leave {kind}_names out: these are their names anyway"
        )
    return texts


def as_levels(name: str, levels: Sequence[float], most: float = 1.0) -> FloatArray:
    """Return levels between 0 and `most` that have different names in a table."""
    values = np.asarray(checks.as_numeric(name, np.asarray(levels)), np.float64)
    if values.ndim != 1 or not np.all((values > 0) & (values < most)):
        raise ValueError(
            f"{name} must be a sequence of levels in (0, {most:g}), got {levels!r}; "
            "pass fractions such as (0.01, 0.05)"
        )
    require_distinct(name, values)
    return values


def require_distinct(name: str, values: FloatArray) -> None:
    """Raise if columns of a table that are called by these numbers would have the same name."""
    if len({f"{value:g}" for value in values}) != values.size:
        raise ValueError(
            f"{name} must differ in their first six digits, got {values.tolist()}; "
            "their names would be the same; make a table for each"
        )


def by_output[T](
    argument: str, values: T | Mapping[str, T], names: Sequence[str]
) -> list[T | None]:
    """A value for each output: one for all, or those of a dict by name."""
    if not isinstance(values, Mapping):
        return [values] * len(names)
    if unknown := [name for name in values if name not in names]:
        raise ValueError(
            f"{argument} must be those of outputs {', '.join(names)}, got the name {unknown[0]!r}; "
            f"pass a dict of these names, or {argument} for all outputs"
        )
    return [values.get(name) for name in names]


def limits_of(limits: Limits | None, names: Sequence[str]) -> list[list[float]]:
    """The limits of each output."""
    of_outputs = []
    for name, limit in zip(names, by_output("limits", limits, names), strict=True):
        argument = f"limits[{name!r}]" if isinstance(limits, Mapping) else "limits"
        values = np.ravel(checks.as_numeric(argument, np.empty(0) if limit is None else limit))
        checks.require_finite(argument, values, "leave it out")
        of_outputs.append(values.astype(np.float64).tolist())
    return of_outputs


def point_coordinates(batch_shape: Sequence[int]) -> dict[str, range]:
    """The positions along each batch axis: none, ``point``, or ``point_0``, ``point_1``, ..."""
    rank = len(batch_shape)
    names = ["point"] if rank == 1 else [f"point_{axis}" for axis in range(rank)]
    return dict(zip(names, map(range, batch_shape), strict=True))


def flat_names(batch_shape: Sequence[int], names: Sequence[str]) -> list[str]:
    """One text for each output of each point, for messages."""
    points = [", ".join(map(str, point)) for point in np.ndindex(*batch_shape)]
    return [f"{name} of point {point}" if point else name for point in points for name in names]


def row_index(batch_shape: Sequence[int], names: Sequence[str]) -> Any:
    """The index of a table with a row for each output of each point."""
    import pandas as pd

    if not batch_shape:
        return pd.Index(names, name="output")
    levels = point_coordinates(batch_shape) | {"output": names}
    return pd.MultiIndex.from_product(levels.values(), names=levels)
