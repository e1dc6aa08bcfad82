"""When a quadrature or a tilt is accepted, in float32 and in float64."""

from typing import NamedTuple

import jax.numpy as jnp
from jax.typing import DTypeLike


class Tolerances(NamedTuple):
    """Tolerances for one floating-point type.

    Attributes
    ----------
    alias_exponent
        Aliases of the trapezoidal rule are at most about ``exp(-alias_exponent)``.
    nodes_per_chunk
        Nodes that are evaluated at a time.
    target, seen, unseen
        Nodes are added until the bound on all later terms falls below ``target``; or below
        ``unseen``, if the integrand at the last two nodes is below ``seen``. The bound replaces all
        sines of a product by one; the integrand itself is smaller by a factor of about two to the
        power of the number of weights.
    acceptable
        A distribution whose bound stays above this at ``max_nodes`` is conditioned on more weights.
    max_nodes, most_nodes
        Most nodes of a method that is followed by others, and of the last method.
    line_nodes, line_reach
        Nodes of a common line, and the largest distance of a point from the mean of its tilted
        distribution, in standard deviations of that distribution.
    tilt_tolerance
        Tolerance of the tilt at the saddlepoint, in standard deviations of the tilted distribution.
    """

    alias_exponent: float
    nodes_per_chunk: int
    target: float
    seen: float
    unseen: float
    acceptable: float
    max_nodes: int
    most_nodes: int
    line_nodes: int
    line_reach: float
    tilt_tolerance: float


_TOLERANCES = {
    "float32": Tolerances(17.0, 8, 3e-8, 3e-9, 1e-4, 1e-6, 128, 256, 24, 1.25, 0.3),
    "float64": Tolerances(31.0, 8, 1e-13, 1e-14, 1e-9, 5e-13, 384, 1024, 40, 2.5, 0.3),
}


def tolerances_of(dtype: DTypeLike) -> Tolerances:
    """Tolerances for ``dtype`` (float32 or float64)."""
    return _TOLERANCES[jnp.dtype(dtype).name]
