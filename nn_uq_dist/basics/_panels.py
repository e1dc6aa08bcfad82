"""Composite Gauss-Legendre rules."""

import numpy as np
from jax import Array

_NODES_PER_PANEL = 12


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
    column = (-1,) + (1,) * ends.ndim
    points, weights = (
        part.astype(ends.dtype).reshape(column)
        for part in np.polynomial.legendre.leggauss(_NODES_PER_PANEL)
    )
    center, half = 0.5 * (ends[1:] + ends[:-1]), 0.5 * (ends[1:] - ends[:-1])
    nodes = (center + half * points).reshape(-1, *ends.shape[1:])
    return nodes, (half * weights).reshape(nodes.shape)
