"""Normal noise of the outputs: arguments `noise_scale` and `noise_covariance` of every model."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.concrete import one_program
from nn_uq_dist.basics.programs import broadcast
from nn_uq_dist.basics.row_algebra import covariance_root, namespace, norm
from nn_uq_dist.inputs.parameter_checks import nan_where_negative, require_covariance

# Asymmetry and negative eigenvalues that rounding explains, in units of epsilon and of the largest
# variance.
_ROUNDINGS = 64


class OutputNoise(NamedTuple):
    """Standard deviations of the noise, and correlations of the noise of different outputs.

    Attributes
    ----------
    scale : array, shape (..., N_y)
        The root of the diagonal of `noise_covariance` included.
    coupling : array, shape (..., N_y, N_y), or None
        The correlation off its diagonal, where it is zero.
    """

    scale: Any
    coupling: Any = None

    @property
    def covariance(self) -> Any:
        """Shape ``(..., N_y, N_y)``."""
        return one_program(_covariance_of)(self)

    @property
    def root(self) -> Any:
        """A matrix ``R`` with the covariance ``R R^T``, shape ``(..., N_y, N_y)``."""
        if self.coupling is None:
            return _diagonal(self.scale)
        unit = namespace(self.scale).eye(self.scale.shape[-1], dtype=self.scale.dtype)
        return self.scale[..., None] * covariance_root(unit + self.coupling)

    def plus(self, other: "OutputNoise") -> "OutputNoise":
        """Return the sum of two independent noises."""
        return OutputNoise(*one_program(_sum)(self, other))


def output_noise(
    noise_scale: ArrayLike | None,
    noise_covariance: ArrayLike | None,
    shape: tuple[int, ...],
    like: Any,
) -> OutputNoise | None:
    """Return the sum of both kinds of noise, or ``None`` if there is none.

    Parameters
    ----------
    noise_scale
        Standard deviation of independent normal noise; broadcasts against `shape`.
    noise_covariance
        Covariance of correlated normal noise, shape ``(..., N_y, N_y)``.
    shape
        Batch shape and number of outputs, ``(..., N_y)``.
    like
        An array of the outputs, for library and type.

    Raises
    ------
    TypeError
        If an argument is not an array of real numbers.
    ValueError
        If one does not broadcast, or is known and not finite; if a known scale is negative, or a
        known covariance not symmetric and positive semidefinite. A negative scale that is traced
        becomes NaN.
    """
    noise = None
    if noise_scale is not None:
        noise = OutputNoise(_scale(noise_scale, shape, like))
    if noise_covariance is not None:
        covariance = _covariance(noise_covariance, shape, like)
        # Scales have numbers where their squares have none.
        parts = scale_and_coupling(covariance)
        correlated = OutputNoise(*(_placed(part, noise_covariance, like) for part in parts))
        noise = correlated if noise is None else correlated.plus(noise)
    return noise


def _placed(value: Any, given: ArrayLike, like: Any, shape: tuple[int, ...] | None = None) -> Any:
    """An argument, or what is made of it, in the library of `like` and in the common type."""
    shape = np.shape(value) if shape is None else shape
    if namespace(like) is np:
        return np.broadcast_to(np.asarray(value, like.dtype), shape)
    return broadcast(value, checks.float_dtype(given, like), shape)


def _diagonal(scale: Any) -> Any:
    return namespace(scale).eye(scale.shape[-1], dtype=scale.dtype) * scale[..., None]


def _covariance_of(noise: OutputNoise) -> Any:
    own, scale = _diagonal(noise.scale) * noise.scale[..., None], noise.scale[..., None]
    return own if noise.coupling is None else own + noise.coupling * scale * scale.mT


@one_program
def scale_and_coupling(covariance: Any) -> tuple[Any, Any]:
    """Standard deviations, and correlations with a diagonal of zeros, of a covariance."""
    xp = namespace(covariance)
    variance = xp.diagonal(covariance, axis1=-2, axis2=-1)
    # The square root has no finite slope at zero. A negative variance gives NaN.
    is_zero = variance == 0
    own = xp.where(is_zero, 0, xp.sqrt(xp.where(is_zero, 1, variance)))
    unit = xp.where(is_zero, 1, own)[..., None]
    coupling = covariance / unit / unit.mT
    return own, xp.where(xp.eye(covariance.shape[-1], dtype=bool), 0, coupling)


def _sum(first: OutputNoise, second: OutputNoise) -> tuple[Any, Any]:
    xp = namespace(first.scale, second.scale)
    total = norm(xp.stack(xp.broadcast_arrays(first.scale, second.scale), axis=-1))
    safe, coupling = xp.where(total > 0, total, 1), None
    for part in (first, second):
        if part.coupling is not None:
            share = (part.scale / safe)[..., None]
            own = part.coupling * share * share.mT
            coupling = own if coupling is None else coupling + own
    return total, coupling


def _scale(noise_scale: ArrayLike, shape: tuple[int, ...], like: Any) -> Any:
    noise_scale = checks.as_numeric("noise_scale", noise_scale)
    wide = checks.broadcast_shapes(
        "noise_scale must broadcast against the outputs (..., N_y)",
        noise_scale=np.shape(noise_scale),
        outputs=shape,
    )
    if wide[-1] != shape[-1]:
        raise ValueError(
            f"noise_scale must broadcast against the {shape[-1]} outputs, got shape "
            f"{np.shape(noise_scale)}; pass one standard deviation per output"
        )
    checks.require_finite("noise_scale", noise_scale)
    checks.require_nonnegative("noise_scale", noise_scale, "pass a standard deviation")
    return _placed(nan_where_negative(noise_scale), noise_scale, like, wide)


def _covariance(noise_covariance: ArrayLike, shape: tuple[int, ...], like: Any) -> Any:
    noise_covariance = checks.as_numeric("noise_covariance", noise_covariance)
    given = np.shape(noise_covariance)
    if given[-2:] != (shape[-1], shape[-1]):
        raise ValueError(
            f"noise_covariance must have shape (..., {shape[-1]}, {shape[-1]}), got {given}; for "
            f"independent noise use noise_scale"
        )
    checks.broadcast_shapes(
        "the leading axes of noise_covariance must broadcast against the batch shape",
        noise_covariance=given[:-2],
        batch_shape=shape[:-1],
    )
    checks.require_finite("noise_covariance", noise_covariance)
    if checks.is_concrete(noise_covariance):
        known = np.asarray(noise_covariance, np.float64)
        eps = float(jnp.finfo(jnp.promote_types(like.dtype, jnp.float32)).eps)
        require_covariance("noise_covariance", known, _ROUNDINGS * eps, _ROUNDINGS * eps)
        return known
    return jnp.asarray(noise_covariance)
