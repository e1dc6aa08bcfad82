r"""Increasing values whose slopes change no faster than the noise shows.

A density of the values has the slopes in its denominator, and noise that a distribution function
hardly shows makes spikes in it. So the logarithms :math:`u_k` of the slopes between neighbors get a
prior: as a function of the normal score they are an integrated random walk (P. J. Green and B. W.
Silverman, Nonparametric Regression and Generalized Linear Models (1994), chapter 2) whose
increments have a Student t law, so that a kink of the network remains one. The result minimizes

.. math::
    \sum_k \frac{(y_k - \hat y_k)^2}{2 \sigma_k^2}
    + \sum_k \frac{(\Delta u)_k^2}{2 h_k}
    + \frac{\nu + 1}{2} \sum_k \log\Bigl(1 + \frac{(\Delta u'_k)^2}{\nu h_k}\Bigr),
    \qquad u'_k = \frac{(\Delta u)_k}{h_k},

with the distances :math:`h_k` of scores, by Gauss-Newton steps from values that increase already:
over one unit of the score, both `u` and its slope change by about one. The parametrization makes
the values increase.
"""

from typing import Any, NamedTuple, cast

import numpy as np
from jax import Array, lax

from nn_uq_dist.basics._row_algebra import matmul, namespace

# Least slope, in units of the mean slope; a point mass would have slope zero.
_LEAST_SLOPE = 1e-4
# Degrees of freedom of the Student t law.
_FREEDOM = 2.0
# Weight of the outermost value of the draws on each side, and of the two beyond them. The prior
# takes rare large differences for noise, but much of the standard deviation is theirs.
_END_WEIGHT, _ENDS = 16.0, 3
_NUM_STEPS, _LONGEST_STEP, _DAMPING = 20, 1.0, 1e-3


def increasing(linear: Array, wanted: Array) -> tuple[Array, Array]:
    """Increasing values, halfway between what raises and what lowers the wanted ones least.

    Parameters
    ----------
    linear
        Increasing values, shape ``(J, k)``, against which slopes are measured.
    wanted
        Values that should increase with them, ``(J, k)``.

    Returns
    -------
    tuple of Array
        The values, ``(J, k)``, and the share of the wanted values that decreased, ``(J,)``.
    """
    xp = namespace(linear, wanted)
    width = linear[:, 1:] - linear[:, :-1]
    mean_slope = (xp.max(wanted, axis=-1) - xp.min(wanted, axis=-1)) / xp.sum(width, axis=-1)
    rise = _LEAST_SLOPE * mean_slope[:, None] * width
    falls = xp.mean(1.0 * (wanted[:, 1:] - wanted[:, :-1] < rise), axis=-1)
    least = xp.concatenate([xp.zeros_like(rise[:, :1]), xp.cumsum(rise, axis=-1)], axis=-1)
    rest = wanted - least
    lowered = -running_maximum(-rest[..., ::-1])[..., ::-1]
    return least + (running_maximum(rest) + lowered) / 2, falls


def running_maximum(rows: Array) -> Array:
    """Largest entry so far along the last axis."""
    largest: Any = (
        np.maximum.accumulate(rows, axis=-1)
        if namespace(rows) is np
        else lax.cummax(rows, axis=rows.ndim - 1)
    )
    return cast(Array, largest)


def smooth_slopes(
    linear: Array, start: Array, wanted: Array, log_weights: Array, scores: np.ndarray
) -> Array:
    """Increasing values near the wanted ones, with smooth slopes.

    Parameters
    ----------
    linear
        Increasing values, shape ``(J, k)``, against which slopes are measured.
    start
        Increasing values from which the steps start, ``(J, k)``.
    wanted
        Values that need not increase, ``(J, k)``.
    log_weights
        Logarithms of their inverse variances, ``(J, k)``.
    scores
        Normal scores of the values, ascending, ``(k,)``.

    Returns
    -------
    Array
        Shape ``(J, k)``.
    """
    xp = namespace(linear, start, wanted)
    width = linear[:, 1:] - linear[:, :-1]
    span = start[:, -1:] - start[:, :1]
    mean_slope = span / xp.sum(width, axis=-1, keepdims=True)
    # In single precision, values of the far tail may coincide.
    safe = xp.where(width > 0, width, 1)
    slopes = xp.where(width > 0, (start[:, 1:] - start[:, :-1]) / safe, mean_slope)
    info = np.finfo(linear.dtype)
    slopes = xp.maximum(slopes, float(info.eps) * mean_slope + float(info.tiny))
    first, second = (part.astype(linear.dtype) for part in _differences(scores))
    objective = _Objective(width, wanted, _weights(log_weights, span, xp), first, second, xp)
    state = start[:, :1], xp.log(slopes)
    if xp is np:
        for _ in range(_NUM_STEPS):
            state = objective.step(*state)
    else:
        state, _ = lax.scan(lambda at, _: (objective.step(*at), None), state, length=_NUM_STEPS)
    return objective.values(*state)[0]


class _Objective(NamedTuple):
    """The sum that is made least, as a function of the lowest value and the log slopes."""

    width: Array
    wanted: Array
    weights: Array
    first: np.ndarray  # differences of log slopes, in units of the prior's scale
    second: np.ndarray
    xp: Any

    def values(self, lowest: Array, logs: Array) -> tuple[Array, Array]:
        """The values, ``(J, k)``, and the rises between them."""
        size = self.wanted.shape[-1]
        rises = self.xp.exp(logs) * self.width
        upper = self.xp.asarray(np.triu(np.ones((size - 1, size), rises.dtype), 1))
        return lowest + matmul(rises, upper), rises

    def step(self, lowest: Array, logs: Array) -> tuple[Array, Array]:
        """A Gauss-Newton step, damped and of bounded length."""
        xp = self.xp
        first, second = xp.asarray(self.first), xp.asarray(self.second)
        found, rises = self.values(lowest, logs)
        below = np.tril(np.ones((found.shape[-1], rises.shape[-1]), rises.dtype), -1)
        jacobian = xp.concatenate(
            [xp.ones_like(found)[..., None], below * rises[:, None, :]], axis=-1
        )
        change = matmul(logs, second.T)
        # Weights of the squares that touch the logarithms of the Student t law at this point.
        share = (_FREEDOM + 1) / (_FREEDOM + change**2)
        prior = matmul(share[:, None, :] * second.T, second) + first.T @ first
        prior = xp.pad(prior, ((0, 0), (1, 0), (1, 0)))
        log_slopes = xp.pad(logs, ((0, 0), (1, 0)))
        weighted = jacobian.mT * self.weights[:, None, :]
        down = matmul(weighted, (self.wanted - found)[..., None])
        down = down - matmul(prior, log_slopes[..., None])
        curvature = matmul(weighted, jacobian) + prior
        # Scaled, so that weights of different orders of magnitude do not make it singular.
        scale = xp.sqrt(xp.diagonal(curvature, axis1=-2, axis2=-1))[..., None]
        identity = np.eye(found.shape[-1], dtype=found.dtype)
        curvature = curvature / (scale * scale.mT) + _DAMPING * identity
        move = (xp.linalg.solve(curvature, down / scale) / scale)[..., 0]
        longest = xp.max(xp.abs(move[:, 1:]), axis=-1, keepdims=True)
        move = move * (_LONGEST_STEP / xp.maximum(longest, _LONGEST_STEP))
        return lowest + move[:, :1], logs + move[:, 1:]


def _weights(log_weights: Array, span: Array, xp: Any) -> Array:
    """Inverse variances, with more weight at the ends, and bounded where rounding is the noise."""
    size = log_weights.shape[-1]
    position = np.minimum(np.arange(size), np.arange(size)[::-1])
    ends = np.where(position < _ENDS, np.log(_END_WEIGHT), 0.0).astype(log_weights.dtype)
    info = np.finfo(log_weights.dtype)
    rounding = float(info.eps) ** 0.5 * span / size + float(info.tiny) ** 0.5
    found: Array = xp.exp(xp.minimum(log_weights + ends, -2 * xp.log(rounding)))
    return found


def _differences(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First and second differences of values between neighbors, in units of the prior's scale."""
    middle = (scores[1:] + scores[:-1]) / 2
    distance = np.diff(middle)
    slopes = np.diff(np.eye(middle.size), axis=0) / distance[:, None]
    around = (middle[2:] - middle[:-2]) / 2
    second = np.diff(slopes, axis=0) / np.sqrt(around)[:, None]
    return slopes * np.sqrt(distance)[:, None], second
