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

from typing import NamedTuple

import numpy as np

from nn_uq_dist.basics._known_values import FloatArray as Array

# Least slope, in units of the mean slope; a point mass would have slope zero.
_LEAST_SLOPE = 1e-4
# Degrees of freedom of the Student t law.
_FREEDOM = 2.0
# Weight of the outermost value of the draws on each side, and of the two beyond them. The prior
# takes rare large differences for noise, but much of the standard deviation is theirs.
_END_WEIGHT, _ENDS = 16.0, 3
_NUM_STEPS, _LONGEST_STEP, _DAMPING = 20, 1.0, 1e-3
_EPS, _TINY = float(np.finfo(np.float64).eps), float(np.finfo(np.float64).tiny)


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
    width = linear[:, 1:] - linear[:, :-1]
    mean_slope = (np.max(wanted, axis=-1) - np.min(wanted, axis=-1)) / np.sum(width, axis=-1)
    rise = _LEAST_SLOPE * mean_slope[:, None] * width
    falls = np.mean(wanted[:, 1:] - wanted[:, :-1] < rise, axis=-1)
    least = np.concatenate([np.zeros_like(rise[:, :1]), np.cumsum(rise, axis=-1)], axis=-1)
    rest = wanted - least
    raised = np.maximum.accumulate(rest, axis=-1)
    lowered = -np.maximum.accumulate(-rest[..., ::-1], axis=-1)[..., ::-1]
    return least + (raised + lowered) / 2, falls


def smooth_slopes(
    linear: Array, start: Array, wanted: Array, log_weights: Array, scores: Array
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
    width = linear[:, 1:] - linear[:, :-1]
    span = start[:, -1:] - start[:, :1]
    mean_slope = span / np.sum(width, axis=-1, keepdims=True)
    # In single precision, from which the values come, those of the far tail may coincide.
    safe = np.where(width > 0, width, 1)
    slopes = np.where(width > 0, (start[:, 1:] - start[:, :-1]) / safe, mean_slope)
    slopes = np.maximum(slopes, _EPS * mean_slope + _TINY)
    objective = _Objective(width, wanted, _weights(log_weights, span), *_differences(scores))
    lowest, logs = start[:, :1], np.log(slopes)
    for _ in range(_NUM_STEPS):
        lowest, logs = objective.step(lowest, logs)
    return objective.values(lowest, logs)[0]


class _Objective(NamedTuple):
    """The sum that is made least, as a function of the lowest value and the log slopes."""

    width: Array
    wanted: Array
    weights: Array
    first: Array  # differences of log slopes, in units of the prior's scale
    second: Array

    def values(self, lowest: Array, logs: Array) -> tuple[Array, Array]:
        """The values, ``(J, k)``, and the rises between them."""
        size = self.wanted.shape[-1]
        rises = np.exp(logs) * self.width
        return lowest + rises @ np.triu(np.ones((size - 1, size)), 1), rises

    def step(self, lowest: Array, logs: Array) -> tuple[Array, Array]:
        """A Gauss-Newton step, damped and of bounded length."""
        found, rises = self.values(lowest, logs)
        below = np.tril(np.ones((found.shape[-1], rises.shape[-1])), -1)
        jacobian = np.concatenate(
            [np.ones_like(found)[..., None], below * rises[:, None, :]], axis=-1
        )
        change = logs @ self.second.T
        # Weights of the squares that touch the logarithms of the Student t law at this point.
        share = (_FREEDOM + 1) / (_FREEDOM + change**2)
        prior = (share[:, None, :] * self.second.T) @ self.second + self.first.T @ self.first
        prior = np.pad(prior, ((0, 0), (1, 0), (1, 0)))
        log_slopes = np.pad(logs, ((0, 0), (1, 0)))
        weighted = jacobian.mT * self.weights[:, None, :]
        down = weighted @ (self.wanted - found)[..., None] - prior @ log_slopes[..., None]
        curvature = weighted @ jacobian + prior
        # Scaled, so that weights of different orders of magnitude do not make it singular.
        scale = np.sqrt(np.diagonal(curvature, axis1=-2, axis2=-1))[..., None]
        curvature = curvature / (scale * scale.mT) + _DAMPING * np.eye(found.shape[-1])
        move = (np.linalg.solve(curvature, down / scale) / scale)[..., 0]
        longest = np.max(np.abs(move[:, 1:]), axis=-1, keepdims=True)
        move = move * (_LONGEST_STEP / np.maximum(longest, _LONGEST_STEP))
        return lowest + move[:, :1], logs + move[:, 1:]


def _weights(log_weights: Array, span: Array) -> Array:
    """Inverse variances, with more weight at the ends, and bounded where rounding is the noise."""
    size = log_weights.shape[-1]
    position = np.minimum(np.arange(size), np.arange(size)[::-1])
    ends = np.where(position < _ENDS, np.log(_END_WEIGHT), 0.0)
    rounding = _EPS**0.5 * span / size + _TINY**0.5
    found: Array = np.exp(np.minimum(log_weights + ends, -2 * np.log(rounding)))
    return found


def _differences(scores: Array) -> tuple[Array, Array]:
    """First and second differences of values between neighbors, in units of the prior's scale."""
    middle = (scores[1:] + scores[:-1]) / 2
    distance = np.diff(middle)
    slopes = np.diff(np.eye(middle.size), axis=0) / distance[:, None]
    around = (middle[2:] - middle[:-2]) / 2
    second = np.diff(slopes, axis=0) / np.sqrt(around)[:, None]
    return slopes * np.sqrt(distance)[:, None], second
