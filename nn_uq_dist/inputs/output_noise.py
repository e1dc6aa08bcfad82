"""Normal noise of outputs: standard deviations and correlations, checked and added."""

import operator
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from jax.typing import ArrayLike

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.concrete import broadcast, one_program
from nn_uq_dist.basics.row_algebra import covariance_root, namespace, norm
from nn_uq_dist.inputs import parameter_checks


class OutputNoise(NamedTuple):
    """Standard deviations of the noise, and correlations of the noise of different outputs.

    Scales have numbers where their squares have none.

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
    def correlation(self) -> Any:
        """Shape ``(..., N_y, N_y)``."""
        unit = namespace(self.scale).eye(self.scale.shape[-1], dtype=self.scale.dtype)
        return unit if self.coupling is None else unit + self.coupling

    @property
    def covariance(self) -> Any:
        """Shape ``(..., N_y, N_y)``."""
        scale = self.scale[..., None]
        return self.correlation * scale * scale.mT

    @property
    def root(self) -> Any:
        """A matrix ``R`` with the covariance ``R R^T``, shape ``(..., N_y, N_y)``."""
        matrix = self.correlation
        root = matrix if self.coupling is None else covariance_root(matrix)
        return self.scale[..., None] * root

    @one_program
    def plus(self, other: "OutputNoise") -> "OutputNoise":
        """Return the sum of two independent noises."""
        xp = namespace(self.scale, other.scale)
        total = norm(xp.stack(xp.broadcast_arrays(self.scale, other.scale), axis=-1))
        safe, couplings = xp.where(total > 0, total, 1), []
        for part in (self, other):
            if part.coupling is not None:
                share = (part.scale / safe)[..., None]
                couplings.append(part.coupling * share * share.mT)
        return OutputNoise(total, reduce(operator.add, couplings) if couplings else None)


def output_noise(
    noise_scale: ArrayLike | None,
    noise_covariance: ArrayLike | None,
    shape: tuple[int, ...],
    like: Any,
    own: OutputNoise | None = None,
) -> OutputNoise | None:
    """Return the sum of both kinds of noise and of `own`, or ``None`` if there is none.

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
    own
        Noise that the outputs have already.

    Raises
    ------
    TypeError
        If an argument is not an array of real numbers.
    ValueError
        If one does not broadcast, or is known and not finite; if a known scale is negative, or a
        known covariance not symmetric and positive semidefinite. A negative scale that is traced
        becomes NaN.
    """
    found = [] if own is None else [own]
    if noise_scale is not None:
        given = checks.as_numeric("noise_scale", noise_scale)
        wide = checks.broadcast_shapes(
            "noise_scale must broadcast against the outputs (..., N_y)",
            noise_scale=np.shape(given),
            outputs=shape,
        )
        remedy = "pass a standard deviation"
        scale = parameter_checks.as_scales("noise_scale", given, shape[-1], remedy, "the outputs")
        found.append(OutputNoise(_placed(scale, scale, like, wide)))
    if noise_covariance is not None:
        given = checks.as_finite("noise_covariance", noise_covariance)
        remedy = "for independent noise use noise_scale"
        matrix = parameter_checks.as_covariance("noise_covariance", given, shape[-1], remedy)
        checks.broadcast_shapes(
            "the leading axes of noise_covariance must broadcast against the batch shape",
            noise_covariance=np.shape(matrix)[:-2],
            batch_shape=shape[:-1],
        )
        parts = scale_and_coupling(matrix)
        found.append(OutputNoise(*(_placed(part, given, like, part.shape) for part in parts)))
    return reduce(OutputNoise.plus, found[::-1]) if found else None


def _placed(value: ArrayLike, given: ArrayLike, like: Any, shape: tuple[int, ...]) -> Any:
    """What is made of an argument, in the library of `like` and in the common type."""
    if namespace(like) is np:
        return np.broadcast_to(np.asarray(value, like.dtype), shape)
    return broadcast(value, checks.float_dtype(given, like), shape)


@one_program
def scale_and_coupling(covariance: Any) -> tuple[Any, Any]:
    """Standard deviations, and correlations with a diagonal of zeros, of a covariance."""
    xp = namespace(covariance)
    variance = xp.diagonal(covariance, axis1=-2, axis2=-1)
    # The square root has no finite slope at zero. A negative variance gives NaN.
    is_zero = variance == 0
    scale = xp.where(is_zero, 0, xp.sqrt(xp.where(is_zero, 1, variance)))
    unit = xp.where(is_zero, 1, scale)[..., None]
    coupling = covariance / unit / unit.mT
    return scale, xp.where(xp.eye(covariance.shape[-1], dtype=bool), 0, coupling)
