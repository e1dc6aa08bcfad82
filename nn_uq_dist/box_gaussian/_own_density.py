"""Mean and variance of one entry from its own density, by quadrature where this matters."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

# Of the quadrature, how far it looks in standard deviations, and how far the log density falls.
_NODES = 20
_REACH = 6.5
_FALL = 14.0


class OwnDensity(NamedTuple):
    """What the density of each entry alone says of its moments.

    Attributes
    ----------
    shift, factor : Array, shape (..., n)
        To be added to the mean, and to multiply the standard deviation.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from nn_uq_dist.box_gaussian import OwnDensity
    >>> OwnDensity(jnp.zeros(2), jnp.ones(2)).factor.shape
    (2,)
    """

    shift: Array
    factor: Array


def by_own_density(
    mean: Array,
    scale: Array,
    log_density: Callable[[Array], Array],
    ends: tuple[ArrayLike, ArrayLike],
) -> OwnDensity:
    """Mean and variance of each entry from its own density, up to a constant, relative to others.

    Parameters
    ----------
    mean, scale : Array, shape (..., n)
        Mean and standard deviation, roughly: where to look.
    log_density : callable
        Maps values of all entries, shape ``(..., n)``, to the log density of each alone.
    ends : tuple of array_like
        Ends of the supports.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from nn_uq_dist.box_gaussian import by_own_density
    >>> ends = -jnp.inf, jnp.inf
    >>> found = by_own_density(jnp.zeros(1), jnp.ones(1), lambda x: -((x - 0.5) ** 2) / 2, ends)
    >>> print(found.shift.round(2), found.factor.round(2))
    [0.5] [1.]
    """
    low = jnp.maximum(mean - _REACH * scale, ends[0])
    high = jnp.minimum(mean + _REACH * scale, ends[1])
    points, logs = _nodes_that_matter(log_density, low, high)
    mass = _per_node(np.polynomial.legendre.leggauss(_NODES)[1], mean)
    mass = mass * jnp.exp(logs - jnp.max(logs, axis=0))
    mass = mass / jnp.sum(mass, axis=0)
    # Relative to the mean, so that variances are not differences, and in units of the scale, whose
    # square may underflow.
    gap = (points - mean) / scale
    shift = jnp.sum(mass * gap, axis=0)
    factor = jnp.sqrt(jnp.sum(mass * (gap - shift) ** 2, axis=0))
    # An entry that the known outputs determine has no density of its own.
    has_density = jnp.isfinite(shift) & jnp.isfinite(factor)
    return OwnDensity(
        jnp.where(has_density, shift * scale, 0.0), jnp.where(has_density, factor, 1.0)
    )


def _nodes_that_matter(
    log_density: Callable[[Array], Array], low: Array, high: Array
) -> tuple[Array, Array]:
    """Gauss-Legendre nodes between the points where the density ends, and its logarithms there.

    With little noise a density may end within hundredths of its standard deviation, which only
    nodes next to the ends resolve. So the ends are sought twice: among points from `low` to `high`,
    and among points between the outermost one that matters and its neighbor.
    """
    nodes = 0.5 * (1.0 + _per_node(np.polynomial.legendre.leggauss(_NODES)[0], low))
    share = _per_node(np.arange(_NODES // 2) / (_NODES // 2 - 1), low)

    def look(ends: tuple[Array, ...], is_last: Array) -> tuple[tuple[Array, ...], Any]:
        # The density matters from `first` to `last`, not below `low` or above `high`; the largest
        # log density found so far is `top`.
        low, first, last, high, top = ends
        around = jnp.concatenate([low + (first - low) * share, last + (high - last) * share])
        points = jnp.where(is_last, low + (high - low) * nodes, around)
        logs = lax.map(log_density, points)
        logs = jnp.where(jnp.isnan(logs), -jnp.inf, logs)
        top = jnp.maximum(top, jnp.max(logs, axis=0))
        matters = logs > top - _FALL
        start = jnp.argmax(matters, axis=0)
        stop = _NODES - 1 - jnp.argmax(matters[::-1], axis=0)

        def at(place: Array) -> Array:
            place = jnp.clip(place, 0, _NODES - 1)
            return jnp.take_along_axis(points, place[None], axis=0)[0]

        return (at(start - 1), at(start), at(stop), at(stop + 1), top), (points, logs)

    middle = 0.5 * (low + high)
    ends: tuple[Array, ...] = (low, middle, middle, high, jnp.full_like(low, -jnp.inf))
    _, (points, logs) = lax.scan(look, ends, jnp.array([False, False, True]))
    return points[-1], logs[-1]


def _per_node(values: np.ndarray, like: Array) -> Array:
    return jnp.asarray(values, like.dtype).reshape(-1, *[1] * like.ndim)
