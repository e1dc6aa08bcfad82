"""Characteristic functions of sums of uniforms and normals on the frequencies of a regular grid."""

import math
from typing import Any

import numpy as np
import scipy.fft

from nn_uq_dist.basics._float64 import FloatArray

_CF_AT_THE_EDGE = 1e-8


def frequencies(shape: tuple[int, ...], spacing: FloatArray) -> list[FloatArray]:
    """Cycles per unit along each axis of a real FFT, shaped to broadcast against each other."""
    *full, last = zip(shape, spacing, strict=True)
    axes = [scipy.fft.fftfreq(n, h) for n, h in full] + [scipy.fft.rfftfreq(*last)]
    return list(np.meshgrid(*axes, indexing="ij", sparse=True))


def normal_factor(at: list[FloatArray], covariance: FloatArray) -> Any:
    """Characteristic function of a centered normal law with this covariance matrix."""
    rows = [_inner(row, at) for row in covariance]
    return np.exp(-2 * np.pi**2 * sum(f * r for f, r in zip(at, rows, strict=True)))


def uniform_factors(at: list[FloatArray], columns: FloatArray) -> Any:
    """Characteristic function of each column times a uniform variable on (-1, 1), one by one."""
    for column in columns.T[np.any(columns != 0, axis=0)]:
        # sinc(x) = sin(pi x)/(pi x), so it includes the factor pi of the angular frequency.
        yield np.sinc(2 * _inner(column, at))


def needed_smoothing(
    columns: FloatArray, covariance: FloatArray, spacing: FloatArray, num_points: int
) -> FloatArray:
    """Smoothing that brings the characteristic function to 1e-8 at the highest frequencies.

    Parameters
    ----------
    columns
        Of the uniforms, shape ``(d, n)``.
    covariance
        Of the normal part, shape ``(d, d)``.
    spacing, num_points
        Of the grid along each axis.

    Returns
    -------
    FloatArray
        Standard deviation of independent normal noise along each axis, shape ``(d,)``.
    """
    resolution = np.zeros(len(spacing))
    for axis, step in enumerate(spacing):
        axes = [scipy.fft.fftfreq(num_points, h) for h in spacing]
        axes[axis] = np.array([0.5 / step])
        face = list(np.meshgrid(*axes, indexing="ij", sparse=True))
        # |sin x / x| <= min(1, 1/|x|), which, unlike the left side, never grows along a ray from
        # the origin: its maximum over the faces bounds everything that the grid leaves out.
        bound = normal_factor(face, covariance)
        for column in columns.T:
            bound = bound / np.maximum(1, np.abs(2 * np.pi * _inner(column, face)))
        excess = max(float(np.max(bound)) / _CF_AT_THE_EDGE, 1.0)
        resolution[axis] = step * math.sqrt(2 * math.log(excess)) / np.pi
    return resolution


def _inner(vector: FloatArray, at: list[FloatArray]) -> Any:
    return sum(v * f for v, f in zip(vector, at, strict=True))
