r"""The linear function that is nearest to a network over pairs, and what it leaves.

A tangent is the nearest linear function at a point, and not over the range of the input. The
differences :math:`d` between the outputs of the network and of a linear model are regressed on the
standardized inputs :math:`x` of the pairs, with the prior of ridge regression: coefficients are
normal with mean zero, so that few pairs change the Jacobian little. Its strength is integrated out
over a grid, weighted by the evidence (C. M. Bishop, Pattern Recognition and Machine Learning, 2006,
section 3.5), which all outputs share.
"""

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.concrete import evaluated_now, fewest_columns, one_program
from nn_uq_dist.basics.row_algebra import namespace, norm
from nn_uq_dist.distributions import LinearImage
from nn_uq_dist.paired_samples import Ridge
from nn_uq_dist.paired_samples.corrected_map import ROUNDINGS
from nn_uq_dist.sampling import PairedDraws

# Variance that the prior expects the coefficients to explain, over that of what they leave.
_EXPLAINED = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)
_FEWEST_PAIRS = 8
# Size of the largest remainders, in variances, at which half of the uniform part becomes normal.
_LARGE = 3.0


class LinearFit(NamedTuple):
    """What to add to a linear model, and what is left: NumPy arrays if known; batch axes in front.

    Attributes
    ----------
    shift : Array, shape (..., N_y)
        Mean of the differences at the mean input.
    slopes : Array, shape (..., N_y, N_x)
        To be added to the Jacobian.
    rest : Array, shape (..., n, N_y)
        The differences that remain, each from a fit without its own pair; 0 for outputs where all
        are rounding errors.
    """

    shift: Array
    slopes: Array
    rest: Array

    @property
    def noise(self) -> LinearImage | None:
        """Normal noise with the covariance of what remains; ``None`` if it is known to be none."""
        if checks.is_concrete(self.rest) and not np.any(self.rest):
            return None
        columns = fewest_columns(self.rest.mT / math.sqrt(self.rest.shape[-2]))
        return LinearImage(normal=jnp.asarray(columns, self.rest.dtype))

    @one_program
    def normal_share(self, standard_deviation: Array) -> Array:
        """Share of the uniform part of the joint distribution that is made normal, ``(...)``.

        Where a few remainders are huge, their covariance is too small for them and too large for
        the others; a distribution with softer edges is nearer to the network there. The share is
        below .01 where remainders are small.

        Parameters
        ----------
        standard_deviation
            Of the outputs of the linear model, shape ``(..., N_y)``.
        """
        xp: Any = namespace(self.rest)
        of_rest = norm(self.rest.mT) / math.sqrt(self.rest.shape[-2])
        total = norm(xp.stack([standard_deviation, of_rest], axis=-1))
        size = xp.mean((self.rest / xp.where(total > 0, total, 1)[..., None, :]) ** 2, axis=-1)
        tiny = xp.finfo(size.dtype).tiny
        largest = xp.sum(size**2, axis=-1) / xp.maximum(xp.sum(size, axis=-1), tiny)
        return largest**2 / (largest**2 + _LARGE**2)


def linear_fit(pairs: PairedDraws) -> LinearFit:
    """Fit what the linear model of pairs leaves of the network.

    With fewer pairs than inputs the Jacobian stays as it is, and only the means are shifted.

    Parameters
    ----------
    pairs
        Those whose outputs are finite count.
    """
    network, linear, inputs = usable_pairs(pairs)
    xp: Any = namespace(network)
    distribution = pairs.linearization.input
    dtype, batch_shape = pairs.network.dtype, distribution.batch_shape
    differences = _batch_first(xp, network - linear, batch_shape)
    with evaluated_now(pairs):
        moments = distribution.standard_deviation, distribution.mean
        scale, loc = (xp.asarray(moment, differences.dtype) for moment in moments)
    scale = xp.where(scale > 0, scale, 1)
    count = differences.shape[-2]
    if count <= distribution.num_inputs:
        slopes = xp.zeros(
            (*batch_shape, differences.shape[-1], distribution.num_inputs), differences.dtype
        )
        shift = differences.mean(axis=-2)
        rest = (differences - shift[..., None, :]) * (count / (count - 1))
    else:
        standard = _batch_first(xp, (inputs - loc) / scale, batch_shape)
        shift, slopes, rest = _nearest(xp, standard, differences)
        slopes = slopes / scale[..., None, :]
    size = ROUNDINGS * float(jnp.finfo(dtype).eps) * xp.max(abs(network), axis=0)
    size = xp.reshape(size, (*batch_shape, 1, -1))
    rest = xp.where(xp.max(abs(rest), axis=-2, keepdims=True) > size, rest, 0)
    return LinearFit(*(xp.asarray(part, dtype) for part in (shift, slopes, rest)))


def usable_pairs(pairs: PairedDraws) -> tuple[Any, Any, Any]:
    """Pairs whose outputs are finite, as matrices ``(n, J)`` in float64 if they are known."""
    network: Any = pairs.network
    linear: Any = pairs.linear
    inputs: Any = pairs.base_inputs
    count = network.shape[0]
    network, linear = network.reshape(count, -1), linear.reshape(count, -1)
    if checks.is_concrete(network, linear):
        kept = np.isfinite(network).all(axis=1)
        network, linear, inputs = (
            np.asarray(part, np.float64)[kept] for part in (network, linear, inputs)
        )
    require_enough(len(network))
    return network, linear, inputs


def require_enough(num_finite: int) -> None:
    """Raise ``ValueError`` if there are too few draws with finite outputs."""
    if num_finite < _FEWEST_PAIRS:
        raise ValueError(
            f"pairs must hold at least {_FEWEST_PAIRS} draws with finite outputs, got "
            f"{num_finite}; draw more, or check the network over the range of its input"
        )


def _batch_first(xp: Any, values: Any, batch_shape: tuple[int, ...]) -> Any:
    """Draws ``(n, ...)`` as ``batch_shape + (n, numbers)``."""
    size = values.size // (len(values) * math.prod(batch_shape))
    rows = xp.reshape(values, (len(values), *batch_shape, size))
    return xp.moveaxis(rows, 0, -2)


def _nearest(xp: Any, x: Any, y: Any) -> tuple[Any, Any, Any]:
    """Value at zero, slopes ``(..., N_y, N_x)``, and residuals with each pair left out in turn."""
    ridge, (count, size) = Ridge(x.mT, y), x.shape[-2:]
    # The strengths of the prior along an axis in front of those of the batch.
    lead = (len(_EXPLAINED),) + (1,) * (x.ndim - 1)
    penalty = xp.asarray(size / np.array(_EXPLAINED), y.dtype).reshape(lead)
    slopes = ridge.coefficients(penalty)

    # One weight for all outputs: slopes that are shrunk more for one output than for another leave
    # the few directions in which all of them vary.
    rest = xp.sum(ridge.residuals(penalty) ** 2, axis=-2)
    left = rest + penalty * xp.sum(slopes**2, axis=-2)
    total, tiny = xp.sum(ridge.responses**2, axis=-2), xp.finfo(y.dtype).tiny
    fit = xp.mean(xp.log((left + tiny) / (total + tiny)), axis=-1)
    spread = xp.sum(xp.log1p(ridge.eigenvalues / penalty), axis=-1)
    logs = -spread / 2 - (count - 1) / 2 * fit
    logs = xp.concatenate([xp.zeros_like(logs[:1]), logs])  # without slopes
    weights = xp.exp(logs - xp.max(logs, axis=0))
    weights = (weights / xp.sum(weights, axis=0))[..., None, None]
    slope = xp.sum(weights[1:] * slopes, axis=0)
    without = ridge.responses * (count / (count - 1))
    rest = weights[0] * without + xp.sum(weights[1:] * ridge.errors(penalty), axis=0)
    return ridge.mean - (ridge.center[..., None, :] @ slope)[..., 0, :], slope.mT, rest
