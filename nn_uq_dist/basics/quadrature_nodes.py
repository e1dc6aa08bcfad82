"""Points at which functions are evaluated: nodes of quadratures, scrambled Sobol points."""

from typing import Any

import jax
import numpy as np
from jax import Array

from nn_uq_dist.basics.concrete import FloatArray, evaluated_now

# Of SciPy's direction numbers (S. Joe and F. Y. Kuo, SIAM J. Sci. Comput. 30 (2008)).
MAXIMUM_DIMENSION = 21201
_NODES_PER_PANEL = 12


def legendre(count: int, like: Array) -> tuple[Any, Any]:
    """Nodes and weights on (-1, 1) in the type of an array, on an axis in front of its own."""
    columns = np.array(np.polynomial.legendre.leggauss(count), like.dtype)
    nodes, weights = columns.reshape(2, count, *(1,) * like.ndim)
    return nodes, weights


def gauss_legendre(ends: Array) -> tuple[Array, Array]:
    """Nodes and weights of the rule with 12 nodes on each panel.

    Parameters
    ----------
    ends : Array, shape (P + 1, ...)
        Ends of the panels, increasing along the first axis; empty panels are allowed.

    Returns
    -------
    tuple of Array, shape (12 P, ...)
    """
    points, weights = legendre(_NODES_PER_PANEL, ends)
    center, half = 0.5 * (ends[1:] + ends[:-1]), 0.5 * (ends[1:] - ends[:-1])
    nodes = (center + half * points).reshape(_NODES_PER_PANEL * len(center), *ends.shape[1:])
    return nodes, (half * weights).reshape(nodes.shape)


def sobol_points(
    key: Array, num_samples: int, num_randomizations: int, dimension: int
) -> FloatArray:
    """Points of independent scrambled Sobol sequences, one after the other.

    Parameters
    ----------
    key
        A JAX random key.
    num_samples
        Points in all, a multiple of the next.
    num_randomizations
        Sequences, each scrambled for itself (A. B. Owen, J. Complexity 14 (1998)).
    dimension
        Coordinates of a point, at most `MAXIMUM_DIMENSION`.

    Returns
    -------
    FloatArray
        In the open unit cube, shape ``(num_samples, dimension)``.
    """
    from scipy.stats import qmc

    count = num_samples // num_randomizations
    with evaluated_now():  # known points for traced distributions
        words = np.asarray(jax.random.bits(key, (num_randomizations, 4), np.uint32))
    power = (count - 1).bit_length()
    parts = [
        # Sequences keep their balance in powers of two; the first points of one are as good.
        qmc.Sobol(dimension, rng=np.random.default_rng(list(seed))).random_base2(power)[:count]
        for seed in words
    ]
    tiny = np.finfo(np.float64).eps
    return np.clip(np.concatenate(parts), tiny, 1 - tiny)
