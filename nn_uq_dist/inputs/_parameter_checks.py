"""Parameters of an input law: checked before anything is computed, then of one shape and type."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nn_uq_dist.basics import _checks
from nn_uq_dist.basics._compiled_once import broadcast
from nn_uq_dist.basics._known_values import FloatArray, nan_unless


def as_loc(loc: ArrayLike) -> tuple[ArrayLike, int]:
    """Return a finite mean, and the number of inputs."""
    loc = _checks.as_numeric("loc", loc)
    shape = np.shape(loc)
    if len(shape) == 0 or shape[-1] == 0:
        raise ValueError(
            f"loc must have shape (..., N_x) with N_x >= 1, got shape {shape}; "
            f"pass one entry per network input"
        )
    _checks.require_finite("loc", loc)
    return loc, shape[-1]


def as_scales(name: str, value: ArrayLike, num_inputs: int, remedy: str) -> ArrayLike:
    """Return half-widths or scales that are not negative, one per input or one for all."""
    value = _checks.as_numeric(name, value)
    shape = np.shape(value)
    if len(shape) > 0 and shape[-1] not in {1, num_inputs}:
        raise ValueError(
            f"{name} must have last axis N_x = {num_inputs} (as loc) or 1, got shape {shape}; "
            f"give a {name.replace('_', '-')} per batch entry the shape (..., 1)"
        )
    _checks.require_finite(name, value)
    _checks.require_nonnegative(name, value, remedy)
    return nan_where_negative(value)


def as_scale_tril(scale_tril: ArrayLike, num_inputs: int) -> ArrayLike:
    """Return a lower triangular factor of a covariance."""
    scale_tril = _checks.as_numeric("scale_tril", scale_tril)
    shape = np.shape(scale_tril)
    if shape[-2:] != (num_inputs, num_inputs):
        raise ValueError(
            f"scale_tril must have shape (..., N_x, N_x) with N_x = {num_inputs} (as loc), got "
            f"shape {shape}; for independent scales pass jnp.diag(scale), or scale=scale, which "
            f"needs no matrix"
        )
    _checks.require_finite("scale_tril", scale_tril)
    if not _checks.is_concrete(scale_tril):
        factor = jnp.asarray(scale_tril)
        above = jnp.triu(jnp.ones(shape[-2:], bool), 1) & (factor != 0)
        negative = jnp.eye(num_inputs, dtype=bool) & (factor < 0)
        return nan_unless(~(above | negative), factor)
    known = np.asarray(scale_tril)
    remedy = "pass jnp.linalg.cholesky(covariance)"
    diagonal = np.diagonal(known, axis1=-2, axis2=-1)
    _checks.require_nonnegative("the diagonal of scale_tril", diagonal, remedy)
    if np.any(above := np.triu(known, 1) != 0):
        raise ValueError(
            f"scale_tril must be lower triangular, got a nonzero entry at index "
            f"{_checks.first_index(above)}; {remedy}"
        )
    return scale_tril


def require_covariance(
    name: str, covariance: FloatArray, asymmetry: float, rounding: float
) -> None:
    """Raise ``ValueError`` unless known matrices are symmetric and positive semidefinite.

    Parameters
    ----------
    name
        Of the argument.
    covariance
        Shape ``(..., N, N)``.
    asymmetry, rounding
        Differences from the transpose and negative eigenvalues that are accepted, in units of the
        largest entry.
    """
    largest = np.abs(covariance).max(axis=(-2, -1), keepdims=True)
    difference = np.abs(covariance - covariance.mT)
    if (difference > asymmetry * largest).any():
        raise ValueError(
            f"{name} must be symmetric, got a difference of {difference.max():.2g} from its "
            f"transpose; pass (C + C.mT) / 2"
        )
    if is_positive_definite(covariance, rounding * largest):
        return
    least = np.linalg.eigvalsh(covariance)[..., :1, None]
    if (least < -rounding * largest).any():
        raise ValueError(
            f"{name} must be positive semidefinite, got the eigenvalue {least.min():.2g}; pass a "
            f"covariance matrix"
        )


def is_positive_definite(matrix: FloatArray, added: FloatArray | float) -> bool:
    """Whether all matrices are, with `added` on their diagonals; eigenvalues take far longer."""
    try:
        np.linalg.cholesky(matrix + added * np.eye(matrix.shape[-1]))
    except np.linalg.LinAlgError:
        return False
    return True


def nan_where_negative(scale: ArrayLike) -> ArrayLike:
    """Half-widths or scales with NaN for negative ones that could not be seen before."""
    # A negative one has the law of a positive one: without NaN a traced mistake would go on as a
    # plausible number.
    return nan_unless(scale >= 0, scale) if isinstance(scale, jax.core.Tracer) else scale


def in_one_batch(**parameters: tuple[ArrayLike, tuple[int, ...]]) -> dict[str, Array]:
    """Return parameters, each given with its shape for one law, in one batch shape and dtype."""
    batch_shape = _checks.broadcast_shapes(
        f"the leading axes of {', '.join(parameters)} must broadcast",
        **{name: np.shape(value)[: -len(own)] for name, (value, own) in parameters.items()},
    )
    dtype = _checks.float_dtype(*(value for value, _ in parameters.values()))
    return {
        name: broadcast(value, dtype, (*batch_shape, *own))
        for name, (value, own) in parameters.items()
    }
