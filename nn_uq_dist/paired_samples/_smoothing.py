r"""A smooth function from noisy averages of it, as smooth as the noise requires.

The difference of two quantile functions, as a function of the normal score `z`, has a Gaussian
process prior: a constant, a multiple of the linear law's quantile function, a stationary part, and
two that grow in the tails,

.. math::
    k(z, z') = a \bigl(1 + l(z) l(z') + \rho\, e^{-(z - z')^2 / 2 \ell^2}
               + \tau\, h(z) h(z') + \tau\, h(-z) h(-z')\bigr),

with `l` standardized and `h` quadratic beyond a score of 1.5. The posterior mean is averaged over
a grid of amplitudes, lengths and ratios, weighted by their evidence (C. E. Rasmussen and C. K. I.
Williams, Gaussian Processes for Machine Learning (2006), chapter 5): so the data determine how much
of the difference is kept, possibly none. An average changes smoothly with the data, while a choice
of the best would jump.
"""

from typing import NamedTuple

import numpy as np

from nn_uq_dist.basics._known_values import FloatArray as Array

_LENGTHS = (0.25, 0.5, 1.0, 2.0)
_RATIOS = (0.1, 1.0)
_TAILS = (0.0, 1.0, 30.0, 1000.0)
# In units of the noise of the averages.
_AMPLITUDES = np.geomspace(1e-3, 1e6, 14)
_TAIL_START = 1.5


class Points(NamedTuple):
    """Points at which a function is observed or predicted."""

    scores: Array  # (m,)
    linear: Array  # standardized quantiles of the linear law there, (J, m)


def smooth(averages: Array, noise: Array, at: Points, wanted: Points, floor: Array) -> Array:
    """Posterior mean of functions of the normal score.

    Parameters
    ----------
    averages
        Observed averages, shape ``(J, m)``.
    noise
        Covariance of their errors, shape ``(J, m, m)``.
    at, wanted
        Points of the observations, and the ``k`` points at which the function is predicted.
    floor
        Lower bound of the standard deviation of the noise, shape ``(J,)``.

    Returns
    -------
    Array
        Shape ``(J, k)``.
    """
    unit = np.median(np.diagonal(noise, axis1=-2, axis2=-1), axis=-1)
    unit = np.maximum(unit, floor**2)[:, None, None]
    known, asked = _kernels(at, at), _kernels(wanted, at)  # (J, g, m, m), (J, g, k, m)
    standard = averages / unit[:, :, 0] ** 0.5
    eps = np.finfo(np.float64).eps
    identity = np.eye(at.scores.size)
    scaled = noise / unit

    def under_prior(amplitude: float) -> tuple[Array, Array]:
        """Log evidence, ``(J, g)``, and coefficients of the kernels, ``(J, g, m)``."""
        covariance = amplitude * known + scaled[:, None]
        largest = np.max(np.diagonal(covariance, axis1=-2, axis2=-1), axis=-1)[..., None, None]
        # Keeps rounding from making the matrix indefinite, and zero noise from making it singular.
        covariance = covariance + (50 * eps * largest + 1e-6) * identity
        factor = np.linalg.cholesky(covariance)
        data = np.broadcast_to(standard[:, None, :], factor.shape[:-1])
        solved = np.linalg.solve(covariance, data[..., None])[..., 0]
        logs = np.log(np.diagonal(factor, axis1=-2, axis2=-1))
        evidence = -0.5 * np.sum(data * solved, axis=-1) - np.sum(logs, axis=-1)
        return evidence, amplitude * solved

    found = [under_prior(amplitude) for amplitude in _AMPLITUDES]
    logs, coefficients = (np.stack(parts) for parts in zip(*found, strict=True))
    weights = np.exp(logs - np.max(logs, axis=(0, 2), keepdims=True))
    weights = weights / np.sum(weights, axis=(0, 2), keepdims=True)
    mixed = np.sum(weights[..., None] * coefficients, axis=0)  # (J, g, m)
    posterior: Array = np.einsum("jgkm,jgm->jk", asked, mixed) * unit[:, :, 0] ** 0.5
    return posterior


def _kernels(a: Points, b: Points) -> Array:
    """Covariances between two sets of points under each shape of prior, ``(J, g, p, q)``."""
    end = b.scores[-1]
    held = np.clip(a.scores, b.scores[0], end)  # no wiggles beyond the data
    squared = (held[:, None] - b.scores) ** 2
    tails = sum(np.outer(_tail(s * a.scores, end), _tail(s * b.scores, end)) for s in (1, -1))
    # Without a stationary part, then with each one.
    wiggles = [np.zeros_like(squared)]
    wiggles += [
        ratio * np.exp(-squared / (2 * length**2)) for length in _LENGTHS for ratio in _RATIOS
    ]
    fixed = np.stack([1 + part + tail * tails for tail in _TAILS for part in wiggles])
    linear = a.linear[:, :, None] * b.linear[:, None, :]
    kernels: Array = fixed + linear[:, None]
    return kernels


def _tail(scores: Array, end: float) -> Array:
    """Zero, then a parabola, which becomes its tangent beyond the data."""
    inside = np.maximum(np.minimum(scores, end) - _TAIL_START, 0)
    slope = 2 * max(end - _TAIL_START, 0.0)
    parabola: Array = inside**2 + slope * np.maximum(scores - end, 0)
    return parabola
