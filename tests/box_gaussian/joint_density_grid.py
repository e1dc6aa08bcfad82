r"""The density of two or three outputs on a grid: a reference that shares no code with the package.

The distribution of :math:`W U + e`, `U` uniform on a box and `e` normal with covariance `S`, has
the real characteristic function

.. math:: \exp(-\tfrac12 \omega^T S \omega) \prod_k \sin(x_k)/x_k, \qquad x_k = (W^T \omega)_k,

and its inverse Fourier transform on a box that holds the distribution is a sum over a lattice of
frequencies (Poisson summation). With few uniforms the function decays slowly, and cutting it off at
the highest frequency of the grid would ring at the edges of the support. There it is damped to 1e-8
by the smallest normal smoothing that does so.
"""

from typing import NamedTuple

import numpy as np
import scipy.fft


class Grid(NamedTuple):
    """A density at the points of a regular grid about the mean."""

    points: np.ndarray  # along each axis, (d, n)
    density: np.ndarray  # (n,) * d
    # Along each axis, (d,): the density is that of the outputs plus such normal noise.
    smoothing: np.ndarray

    @property
    def spacing(self):
        return self.points[:, 1] - self.points[:, 0]

    @property
    def mass(self):
        """Of the cell around each point."""
        return self.density * np.prod(self.spacing)


def joint_density_grid(weights, num_points, covariance=None):
    """Compute the density of ``W U + e``, ``n`` points along each axis, for ``W`` of ``(d, k)``."""
    size = len(weights)
    covariance = np.zeros((size, size)) if covariance is None else covariance
    # A sum of uniforms and normals is sub-Gaussian with its own variance: beyond 8 standard
    # deviations it has less than 3e-14 of its mass. Twelve cells more: the smoothing has below two.
    normal = np.diagonal(covariance)
    reach = np.abs(weights).sum(axis=1) + 8 * np.sqrt(normal)
    reach = np.minimum(reach, 8 * np.sqrt((weights**2).sum(axis=1) / 3 + normal))
    # Ends lie halfway between two points, so no point falls on a jump of the density there.
    spacing = 2 * reach / (num_points - 24 - (num_points + 1) % 2)
    smoothing = np.array([_smoothing(weights, covariance, spacing, num_points, j)
                          for j in range(size)])  # fmt: skip
    at = _frequencies(num_points, spacing)
    spectrum = _normal_factor(at, covariance + np.diag(smoothing**2))
    for column in weights.T:
        spectrum = spectrum * np.sinc(2 * sum(w * f for w, f in zip(column, at, strict=True)))
    density = np.fft.fftshift(scipy.fft.irfftn(spectrum, s=(num_points,) * size))
    steps = np.arange(num_points) - num_points // 2
    density = np.maximum(density, 0) / np.prod(spacing)
    return Grid(spacing[:, None] * steps, density, smoothing)


def total_variation(grid, log_prob):
    """Distance to another density, a function of points ``(..., d)``, smoothed like the grid."""
    other = np.exp(log_prob(np.stack(np.meshgrid(*grid.points, indexing="ij"), axis=-1)))
    at = _frequencies(len(other), grid.spacing)
    spectrum = scipy.fft.rfftn(np.asarray(other, np.float64))
    spectrum *= _normal_factor(at, np.diag(grid.smoothing**2))
    gap = np.abs(grid.density - scipy.fft.irfftn(spectrum, s=other.shape))
    return 0.5 * gap.sum() * np.prod(grid.spacing)  # also where the other one is not normalized


def _frequencies(num_points, spacing):
    axes = [scipy.fft.fftfreq(num_points, step) for step in spacing[:-1]]
    axes.append(scipy.fft.rfftfreq(num_points, spacing[-1]))
    return np.meshgrid(*axes, indexing="ij", sparse=True)


def _normal_factor(at, covariance):
    square = sum(covariance[i, j] * at[i] * at[j] for i, j in np.ndindex(covariance.shape))
    return np.exp(-2 * np.pi**2 * square)


def _smoothing(weights, covariance, spacing, num_points, axis):
    """Smoothing that brings the function to 1e-8 at the highest frequency along an axis."""
    axes = [scipy.fft.fftfreq(num_points, step) for step in spacing]
    axes[axis] = np.array([0.5 / spacing[axis]])
    face = np.meshgrid(*axes, indexing="ij", sparse=True)
    # |sin x / x| <= min(1, 1/|x|), which, unlike the left side, never grows along a ray from the
    # origin: its maximum over the faces bounds everything that the grid leaves out.
    bound = _normal_factor(face, covariance)
    for column in weights.T:
        x = 2 * np.pi * sum(w * f for w, f in zip(column, face, strict=True))
        bound = bound / np.maximum(1, np.abs(x))
    return spacing[axis] * np.sqrt(2 * np.log(max(bound.max() / 1e-8, 1))) / np.pi
