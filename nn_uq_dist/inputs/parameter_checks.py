"""Parameters of random inputs and of noise: checked first, then of one shape and type."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.concrete import FloatArray, broadcast, nan_unless
from nn_uq_dist.basics.row_algebra import covariance_root, namespace

# Asymmetry and negative eigenvalues that rounding explains, in units of epsilon and of the largest
# variance.
_ROUNDINGS = 64
# Ends of a support that were rounded each by itself are still symmetric.
_ROUNDINGS_OF_ENDS = 8
# Distance of the numbers of a type, in standard deviations, from which on users are told.
_MOST_ROUNDING = 0.01


def as_mean(mean: ArrayLike) -> tuple[ArrayLike, int]:
    """Return a finite mean, and the number of inputs."""
    mean = checks.as_finite("mean", mean)
    shape = np.shape(mean)
    if len(shape) == 0 or shape[-1] == 0:
        raise ValueError(
            f"mean must have shape (..., N_x) with N_x >= 1, got shape {shape}; "
            f"pass one entry per network input"
        )
    return mean, shape[-1]


def as_scales(name: str, value: ArrayLike, size: int, remedy: str, like: str = "mean") -> ArrayLike:
    """Return half-widths or standard deviations that are not negative; NaN for traced ones.

    Parameters
    ----------
    name, value
        The argument: one number, or `size` along the last axis.
    remedy
        For a negative number.
    like
        What has the same last axis.
    """
    value = checks.as_finite(name, value)
    shape = np.shape(value)
    if len(shape) > 0 and shape[-1] not in {1, size}:
        or_one = "" if size == 1 else " or 1"
        raise ValueError(
            f"{name} must have last axis {size} (as {like}){or_one}, got shape {shape}; "
            f"give a {name.replace('_', '-')} per batch entry the shape (..., 1)"
        )
    checks.require_nonnegative(name, value, remedy)
    # A negative one has the distribution of a positive one: without NaN a traced mistake would go
    # on as a plausible number.
    return nan_unless(value >= 0, value) if isinstance(value, jax.core.Tracer) else value


def as_factor(name: str, value: ArrayLike, num_inputs: int) -> ArrayLike:
    """Return a factor, with `num_inputs` rows, of the covariance that an argument means.

    Parameters
    ----------
    name, value
        The argument of `Input.normal`: ``factor``, ``scale_tril``, ``covariance_matrix`` or
        ``precision_matrix``.
    """
    value = checks.as_finite(name, value)
    if name == "factor":
        shape = np.shape(value)
        if len(shape) < 2 or shape[-2] != num_inputs or shape[-1] == 0:
            raise ValueError(
                f"factor must have shape (..., N_x, r) with N_x = {num_inputs} (as mean) and "
                f"r >= 1, got shape {shape}; pass a column per cause of the errors"
            )
        return value
    remedy = "pass a row for each entry of mean, or, for independent ones, scale, which is a vector"
    if name == "scale_tril":
        _require_square(name, value, num_inputs, remedy)
        return _lower_triangular(value)
    matrix = as_covariance(name, value, num_inputs, remedy)
    if name == "precision_matrix":
        xp = namespace(matrix)
        try:
            root = xp.linalg.inv(xp.linalg.cholesky(matrix)).mT
        except np.linalg.LinAlgError as error:
            raise ValueError(
                "precision_matrix must be positive definite, got a singular one; pass a covariance"
            ) from error
    else:
        root = covariance_root(matrix)
    return root.astype(checks.float_dtype(value))


def as_covariance(name: str, value: ArrayLike, size: int, remedy: str) -> Any:
    """Return a covariance, or the inverse of one: a known one in NumPy and float64, checked.

    A traced one that is not symmetric and positive semidefinite becomes NaN.

    Parameters
    ----------
    name, value
        The argument, shape ``(..., size, size)``.
    remedy
        For another shape.
    """
    _require_square(name, value, size, remedy)
    dtype = checks.at_least_single(value)
    rounding = _ROUNDINGS * float(jnp.finfo(dtype).eps)
    if not checks.is_concrete(value):
        traced = jnp.asarray(value, dtype)
        fixed = lax.stop_gradient(traced)
        most = rounding * jnp.abs(fixed).max(axis=(-2, -1), keepdims=True)
        off = jnp.abs(fixed - fixed.mT).max(axis=(-2, -1), keepdims=True)
        # The factor of one with a negative eigenvalue is NaN.
        nudge = size * most + jnp.finfo(dtype).tiny
        factor = jnp.linalg.cholesky(fixed + nudge * jnp.eye(size, dtype=dtype))
        holds = (off <= most) & jnp.isfinite(factor).all(axis=(-2, -1), keepdims=True)
        return nan_unless(holds, traced)
    known = np.asarray(value, np.float64)
    difference = np.abs(known - known.mT)
    slack: Any = rounding * np.abs(known).max(axis=(-2, -1), keepdims=True)
    if (difference > slack).any():
        raise ValueError(
            f"{name} must be symmetric, got a difference of {difference.max():.2g} from its "
            f"transpose; pass (C + C.mT) / 2"
        )
    if is_positive_definite(known, slack):
        return known
    least = np.linalg.eigvalsh(known)[..., :1, None]
    if (least < -slack).any():
        raise ValueError(
            f"{name} must be positive semidefinite, got the eigenvalue {least.min():.2g}; pass a "
            f"covariance matrix"
        )
    return known


def _require_square(name: str, value: ArrayLike, size: int, remedy: str) -> None:
    if np.shape(value)[-2:] != (size, size):
        raise ValueError(
            f"{name} must have shape (..., {size}, {size}), got {np.shape(value)}; {remedy}"
        )


def _lower_triangular(scale_tril: ArrayLike) -> ArrayLike:
    """The matrix, or a message; a traced matrix that is none becomes NaN."""
    if not checks.is_concrete(scale_tril):
        factor = jnp.asarray(scale_tril)
        above = jnp.triu(factor, 1) != 0
        negative = jnp.eye(factor.shape[-1], dtype=bool) & (factor < 0)
        return nan_unless(~(above | negative), factor)
    known = np.asarray(scale_tril)
    remedy = "pass it as covariance_matrix, or its factor, jnp.linalg.cholesky(covariance)"
    diagonal = np.diagonal(known, axis1=-2, axis2=-1)
    checks.require_nonnegative("the diagonal of scale_tril", diagonal, remedy)
    if np.any(above := np.triu(known, 1) != 0):
        raise ValueError(
            f"scale_tril must be lower triangular, got a nonzero entry at index "
            f"{checks.first_index(above)}; {remedy}"
        )
    return scale_tril


def is_positive_definite(matrix: FloatArray, added: FloatArray | float) -> bool:
    """Whether all matrices are, with `added` on their diagonals; eigenvalues take far longer."""
    try:
        np.linalg.cholesky(matrix + added * np.eye(matrix.shape[-1]))
    except np.linalg.LinAlgError:
        return False
    return True


def warn_of_rounding(mean: Any, spread: Any) -> None:
    """Warn if the numbers near a known float32 mean are far apart beside its standard deviation."""
    if mean.dtype != np.float32:
        return
    values, spread = np.broadcast_arrays(np.asarray(mean), spread)
    spacing = np.spacing(np.abs(values))
    lost = (spread > 0) & (spacing > _MOST_ROUNDING * spread)
    if lost.any():
        at = checks.first_index(lost)
        place = f" at index {at}" if at else ""
        checks.warn(
            f"mean {values[at]}{place} is rounded beside its standard deviation "
            f"{spread[at]:.3g}: float32 numbers are {spacing[at]:.2g} apart there, so that both "
            f"the mean and draws may be off by half of that; subtract what is known, or "
            f"{checks.USE_FLOAT64}"
        )


def in_one_batch(**parameters: tuple[ArrayLike, tuple[int, ...]]) -> dict[str, Array]:
    """Return parameters, each with its shape without a batch, in one batch shape and dtype."""
    batch_shape = checks.broadcast_shapes(
        f"the leading axes of {', '.join(parameters)} must broadcast",
        **{
            name: np.shape(value)[: np.ndim(value) - len(shape)]
            for name, (value, shape) in parameters.items()
        },
    )
    dtype = checks.float_dtype(*[value for value, _ in parameters.values()])
    arrays: dict[str, Any] = {}
    for name, (value, shape) in parameters.items():
        wide, array = (*batch_shape, *shape), value
        if not isinstance(value, Array) or value.dtype != dtype or value.shape != wide:
            checks.require_in_range(name, value, dtype)
            array = broadcast(value, dtype, wide)
        arrays[name] = array
    return arrays


def with_scales(mean: ArrayLike, **scales: ArrayLike) -> tuple[Array, ...]:
    """A mean and numbers that are not negative, one for each input, in one batch and dtype."""
    mean, size = as_mean(mean)
    remedy = "pass positive numbers"
    checked = {
        name: (as_scales(name, value, size, remedy), (size,)) for name, value in scales.items()
    }
    return tuple(in_one_batch(mean=(mean, (size,)), **checked).values())


def as_ends(kind: str, **ends: ArrayLike) -> tuple[list[Array], Any]:
    """The ends of densities made of straight pieces, and whether each is symmetric.

    Parameters
    ----------
    kind
        Name of the distribution.
    **ends
        In their order, shape ``(..., N_x)``. Known ones that decrease raise ``ValueError``; traced
        ones give NaN.
    """
    names = ", ".join(ends)
    no_axes: tuple[int, ...] = ()
    checked = {name: (checks.as_finite(name, value), no_axes) for name, value in ends.items()}
    low, *others = in_one_batch(**checked).values()
    if not low.shape:
        raise ValueError(
            f"{names} must have shape (..., N_x), got scalars; pass arrays with an entry per "
            f"input, such as jnp.array([low])"
        )
    decreasing = jnp.stack([low, *others[:-1]]) > jnp.stack(others)
    wrong = decreasing.any(axis=0)
    if checks.is_concrete(wrong) and wrong.any():
        at = checks.first_index(np.asarray(wrong))
        values = [float(end[at]) for end in (low, *others)]
        raise ValueError(
            f"{kind} inputs must have {names} that do not decrease, got {values} at index {at}; "
            f"pass {names} in this order"
        )
    rounding = (
        _ROUNDINGS_OF_ENDS * jnp.finfo(low.dtype).eps * jnp.maximum(abs(low), abs(others[-1]))
    )
    inner = others[:-1] or [low, others[-1]]
    bent = abs((inner[0] - low) - (others[-1] - inner[-1])) > rounding
    return [nan_unless(~wrong, low), *others], ~bent
