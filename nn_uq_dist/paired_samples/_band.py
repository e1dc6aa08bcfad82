"""A band for the distribution function of the network's outputs, from paired draws."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.basics._summary_line import summary_line

Array = NDArray[np.float64]

_SIMULATIONS = 2000


class Band(NamedTuple):
    """A distribution function with a band around it, at some points of each output.

    Attributes
    ----------
    points : array, shape (k, ...)
        Values of the outputs, ascending.
    estimate : array, shape (k, ...)
        Distribution function of the network's outputs, estimated with control variates.
    lower, upper : array, shape (k, ...)
        The band, which contains the distribution function at all points at once with probability
        `level`.
    level : float
        Probability of the band.

    Examples
    --------
    >>> import jax
    >>> import jax.numpy as jnp
    >>> import nn_uq_dist as nuq
    >>> lin = nuq.linearize(jnp.sinh, nuq.InputLaw([1.0], half_width=0.3))
    >>> pairs = nuq.paired_draws(jnp.sinh, lin, jax.random.key(0), 200, progress=False)
    >>> band = lin.corrected(pairs).band(0.9)
    >>> band.points.shape, bool((band.upper - band.lower).max() < 0.1)
    ((99, 1), True)
    """

    points: Array
    estimate: Array
    lower: Array
    upper: Array
    level: float

    def __repr__(self) -> str:
        return summary_line(self)


def controlled_band(
    network: Array,
    control: Array,
    points: Array,
    known: Array,
    level: float,
    rng: np.random.Generator,
) -> Band:
    r"""Estimate a distribution function from pairs, with a band of constant width.

    The estimate is the share of the network's draws at or below `y`, minus a multiple of the
    difference between the share of the control's draws and its known value. The width is a quantile
    of the largest deviation of a normal process with the covariance of the residuals (multiplier
    bootstrap; A. W. van der Vaart and J. A. Wellner, Weak Convergence and Empirical Processes
    (1996), chapter 2.9). It is at least ``1 - (1 - level)^(1/n)``, the share of the inputs that
    all `n` draws miss with probability ``1 - level``.

    Parameters
    ----------
    network, control
        Shape ``(n, J)``.
    points, known
        Points, and the distribution function of the control there, shape ``(k, J)``.
    level
        Probability of the band, in (0, 1).
    rng
        Generator for the simulation.

    Examples
    --------
    >>> import numpy as np
    >>> from nn_uq_dist.paired_samples import controlled_band
    >>> rng = np.random.default_rng(0)
    >>> control = rng.uniform(size=(500, 1))
    >>> points = np.linspace(0.1, 0.9, 9)[:, None]
    >>> band = controlled_band(control**1.1, control, points, points, 0.95, rng)
    >>> bool((band.lower < points ** (1 / 1.1)).all() and (points ** (1 / 1.1) < band.upper).all())
    True
    """
    count, num_outputs = network.shape
    estimate, width = np.empty_like(points), np.empty(num_outputs)
    for j in range(num_outputs):
        below = (network[:, j, None] <= points[:, j]).astype(np.float64)
        of_control = (control[:, j, None] <= points[:, j]).astype(np.float64)
        slope = _slope(below, of_control)
        estimate[:, j] = below.mean(axis=0) - slope * (of_control.mean(axis=0) - known[:, j])
        residual = below - slope * of_control
        residual -= residual.mean(axis=0)
        covariance = residual.T @ residual / (count - 1)
        values, vectors = np.linalg.eigh(covariance)
        root = vectors * np.sqrt(np.maximum(values, 0))
        normal = rng.standard_normal((_SIMULATIONS, points.shape[0]))
        largest = np.abs(normal @ root.T).max(axis=1)
        width[j] = np.quantile(largest, level) / np.sqrt(count)
    # Pairs that all agree do not show that all inputs would: this share may have been missed.
    width = np.maximum(width, 1 - (1 - level) ** (1 / count))
    estimate = np.clip(np.maximum.accumulate(estimate, axis=0), 0, 1)
    lower, upper = np.clip(estimate - width, 0, 1), np.clip(estimate + width, 0, 1)
    return Band(points, estimate, lower, upper, level)


def _slope(below: Array, of_control: Array) -> float:
    a, b = below - below.mean(axis=0), of_control - of_control.mean(axis=0)
    square = float(np.sum(b * b))
    return float(np.sum(a * b)) / square if square > 0 else 0.0
