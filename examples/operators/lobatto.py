"""Gauss-Legendre-Lobatto nodes with integration, differentiation and interpolation, in float64.

The `degree + 1` nodes are the end points of [-1, 1] and the zeros of P'_n between them, n the
degree and P_n the Legendre polynomial; see Canuto, Hussaini, Quarteroni and Zang, Spectral Methods
(2006), section 2.3.
"""

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import ArrayLike, NDArray
from scipy.interpolate import barycentric_interpolate

type FloatArray = NDArray[np.float64]


def nodes(degree: int) -> FloatArray:
    """Return the nodes in ascending order, shape ``(degree + 1,)``.

    Raises
    ------
    ValueError
        If `degree` is less than 1.
    """
    if degree < 1:
        raise ValueError(f"degree must be at least 1, got {degree}; two nodes are the fewest")
    # The zeros of P'_n are those of a Jacobi polynomial, eigenvalues of a tridiagonal matrix.
    k = np.arange(1.0, degree - 1)
    off_diagonal = np.sqrt(k * (k + 2) / ((2 * k + 1) * (2 * k + 3)))
    inner = np.linalg.eigvalsh(np.diag(off_diagonal, 1) + np.diag(off_diagonal, -1))
    inner = inner[: degree - 1]
    for _ in range(2):  # Newton steps take the eigenvalues' rounding errors away
        slope, curvature = _legendre_derivatives(degree, inner)
        inner = inner - slope / curvature
    # The nodes are symmetric; rounding must not make a middle node of 1e-17 out of 0.
    inner = (inner - inner[::-1]) / 2
    return np.concatenate([[-1.0], inner, [1.0]])


def weights(degree: int) -> FloatArray:
    """Return the weights of the integral over [-1, 1], exact up to degree ``2 degree - 1``."""
    values = legendre.legval(nodes(degree), _unit(degree))
    return 2 / (degree * (degree + 1) * values**2)


def differentiation_matrix(degree: int) -> FloatArray:
    """Return the matrix from values at the nodes to the derivative there of their interpolant."""
    x = nodes(degree)
    values = legendre.legval(x, _unit(degree))
    difference = x[:, None] - x
    np.fill_diagonal(difference, 1)
    matrix = values[:, None] / (values * difference)
    # Each row differentiates a constant to zero: this loses fewer digits than the closed form.
    np.fill_diagonal(matrix, 0)
    np.fill_diagonal(matrix, -matrix.sum(axis=1))
    return matrix


def interpolate(values: ArrayLike, points: ArrayLike) -> FloatArray:
    """Evaluate the Lagrange polynomial through nodal values.

    Parameters
    ----------
    values
        Values at the nodes, shape ``(..., degree + 1)``; the degree follows from it.
    points
        Where to evaluate, shape ``(M,)``.

    Returns
    -------
    ndarray
        Shape ``(..., M)``.
    """
    x = nodes(np.shape(values)[-1] - 1)
    return barycentric_interpolate(x, values, points, axis=-1, rng=0)


def _unit(degree: int) -> FloatArray:
    return np.eye(degree + 1)[degree]


def _legendre_derivatives(degree: int, x: FloatArray) -> tuple[FloatArray, FloatArray]:
    first = legendre.legder(_unit(degree))
    return legendre.legval(x, first), legendre.legval(x, legendre.legder(first))
