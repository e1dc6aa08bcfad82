r"""Tail integrals by the midpoint sum on a contour, and derivatives on the same nodes.

The sum is a smooth function of the point ``y``, the weights and the normal variance ``v`` for any
fixed tilt and step, so that the derivatives of its logarithm are sums of the same kind: averages of

.. math::
    e_y = -z, \qquad e_k = z L(w_k z), \qquad e_v = z^2/2, \qquad L(x) = \coth x - 1/x,

under the complex weights of the integrand. Nodes are added in chunks until all points have
converged. A second derivative is the forward-mode derivative of these averages.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from nn_uq_dist.basics.chunks import any_point
from nn_uq_dist.uniform_sum._contour import (
    Contour,
    envelope_at,
    growth_at,
    log_scale,
    power_of,
)
from nn_uq_dist.uniform_sum._uniform_component import (
    TiltedComponent,
    excess_coth,
    langevin,
    sine_and_cosine,
    square_and_product,
    tilted_component,
)
from nn_uq_dist.uniform_sum._uniform_sum import ROWS_PER_GROUP, UniformSum, tolerances_of

# Nodes that are evaluated at a time.
_NODES_PER_CHUNK = 8


class Slopes(NamedTuple):
    """Derivatives of M integrals.

    Attributes
    ----------
    y : Array, shape (M, B)
    normal_variance : Array, shape (M, B)
    weights : Array, shape (n, M, B)
    """

    y: Array
    normal_variance: Array
    weights: Array


class Nodes(NamedTuple):
    """A chunk of nodes ``z = t + i a``, and ``t/z``: all arrays have shape (J, B)."""

    frequency: Array
    z: Array
    pole: Array


def nodes_of_chunk(contour: Contour, chunk: Array | int, size: int) -> Nodes:
    """Nodes ``a = (j + 1/2) h`` of one chunk."""
    index = np.arange(size, dtype=contour.tilt.dtype) + 0.5
    index = index + jnp.asarray(chunk).astype(contour.tilt.dtype) * size
    frequency = jnp.asarray(index)[:, None] * contour.step
    ratio = frequency * (1.0 / contour.tilt)
    shrink = 1.0 / (1.0 + ratio * ratio)
    tilt = jnp.broadcast_to(contour.tilt, frequency.shape)
    return Nodes(frequency, lax.complex(tilt, frequency), lax.complex(shrink, -ratio * shrink))


def product_of_factors(
    distribution: UniformSum, excess: Array, order: Array, nodes: Nodes
) -> Array:
    r"""Product of the factors of all components and the pole, without the edge phase.

    One factor is ``(t/z) (1 - exp(-2 w z))/(1 - exp(-2 w t))``. In real arithmetic, with
    ``g = coth(w t) - 1``, its second part is ``1 + g sin(w a) (sin(w a) + i cos(w a))``: no
    overflow for large ``w t`` and no cancellation for small. ``(t/z)^4`` goes into each group of
    four factors, so that partial products of thousands of them stay at most one.

    Parameters
    ----------
    distribution : UniformSum
    excess : Array, shape (n, B)
        ``g`` of each weight.
    order : Array of int, shape (B,)
        Order of the pole.
    nodes : Nodes
    """
    pole_of_group = nodes.pole * nodes.pole
    pole_of_group = pole_of_group * pole_of_group

    def factors(weights: Array, excess: Array) -> Array:
        square, product = square_and_product(weights[:, None] * nodes.frequency)
        return lax.complex(1.0 + excess[:, None] * square, excess[:, None] * product)

    def multiply(_: Array, product: Array, *rows: Array) -> Array:
        a, b, c, d = factors(*rows)
        return product * (((a * b) * (c * d)) * pole_of_group)

    def multiply_rest(_: int, product: Array, *rows: Array) -> Array:
        for factor in factors(*rows):
            product = product * (factor * nodes.pole)
        return product

    rows = (distribution.weights, excess)
    return _fold_rows(distribution, rows, multiply, multiply_rest, power_of(nodes.pole, order))


def _fold_rows[State](
    distribution: UniformSum,
    rows: tuple[Array, ...],
    of_group: Callable[..., State],
    of_rest: Callable[..., State],
    state: State,
) -> State:
    """Fold over the rows in use, by functions of the first row, the state and a group of rows."""
    whole = distribution.weights.shape[0] // ROWS_PER_GROUP
    count = whole if distribution.num_rows is None else distribution.num_rows // ROWS_PER_GROUP

    def one_group(g: Array, state: State) -> State:
        start = g * ROWS_PER_GROUP
        group = (lax.dynamic_slice_in_dim(row, start, ROWS_PER_GROUP) for row in rows)
        return of_group(start, state, *group)

    if whole:
        state = lax.fori_loop(0, count, one_group, state)
    rest = ROWS_PER_GROUP * whole
    if rest < distribution.weights.shape[0]:
        state = of_rest(rest, state, *(row[rest:] for row in rows))
    return state


@jax.custom_jvp
def integrand(
    shift: Array, distribution: UniformSum, excess: Array, contour: Contour, nodes: Nodes
) -> Array:
    """Normalized integrands (1 on the real axis) at a chunk of nodes, shape (J, M, B).

    The shift is ``d + v t``, whose terms cancel far out; ``v t`` counts as constant.
    """
    value = product_of_factors(distribution, excess, contour.order[0], nodes)
    value = value * edge_phase(shift, distribution, nodes)
    values = [value]
    for _ in contour.order[1:]:
        values.append(values[-1] * nodes.pole)
    return jnp.stack(values, axis=1)


@integrand.defjvp
def _integrand_jvp(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Array, Array]:
    """For second derivatives: the integrand times the sum of its log slopes at each node.

    Differentiating the factors instead would take the difference of numbers of order ``1/w`` and
    ``1/w^2``. The unit of the integrand is treated as constant.
    """
    _, distribution, excess, _, nodes = primals
    distance_dot, distribution_dot = tangents[:2]
    z, square = nodes.z, nodes.z * nodes.z

    component = tilted_component(distribution.weights, nodes.z.real[0], excess)
    ratio = nodes.z.imag / nodes.z.real

    def add(along: Array, row: tuple[Array, TiltedComponent, Array]) -> tuple[Array, None]:
        weight, component, moved = row
        slope = lax.complex(*langevin(weight, component, nodes.frequency, ratio))
        return along + (moved * slope) * z, None

    along = z * (distance_dot - jnp.sum(distribution_dot.weights, axis=0))
    along, _ = lax.scan(add, along, (distribution.weights, component, distribution_dot.weights))
    if distribution.normal_scale is not None:
        along = along + square * (distribution.normal_scale * distribution_dot.normal_scale)
    density = integrand(*primals)
    return density, density * along[:, None]


def edge_phase(shift: Array, distribution: UniformSum, nodes: Nodes) -> Array:
    """``exp(i a (d + v t) - v a^2/2)``, with the distance ``d`` from the edge."""
    sine, cosine = sine_and_cosine(nodes.frequency * shift)
    if distribution.normal_scale is not None:
        spread = distribution.normal_variance * nodes.frequency
        decay = jnp.exp(-0.5 * (spread * nodes.frequency))
        sine, cosine = decay * sine, decay * cosine
    return lax.complex(cosine, sine)


def _add_slopes(
    sums: Slopes, density: Array, distribution: UniformSum, component: TiltedComponent, nodes: Nodes
) -> Slopes:
    """Add ``e_y``, ``e_k`` and ``e_v`` under densities of shape (J, M, B)."""
    z = nodes.z[:, None]
    moved = lax.optimization_barrier(density * z)
    ratio = nodes.z.imag / nodes.z.real

    def put(start: Array | int, sums: Array, weights: Array, *constants: Array) -> Array:
        rows = TiltedComponent(*(part[:, None] for part in constants))
        real, imaginary = langevin(weights[:, None], rows, nodes.frequency, ratio)
        terms = real[:, :, None] * moved.real - imaginary[:, :, None] * moved.imag
        # The barrier keeps the compiler from evaluating the terms inside the sum, where they are
        # not vectorized.
        added = jnp.sum(lax.optimization_barrier(terms), axis=1)
        old = lax.dynamic_slice_in_dim(sums, start, len(added))
        return lax.dynamic_update_slice_in_dim(sums, old + added, start, axis=0)

    return Slopes(
        sums.y - jnp.sum(moved.real, axis=0),
        sums.normal_variance + 0.5 * jnp.sum((moved * z).real, axis=0),
        _fold_rows(distribution, (distribution.weights, *component), put, put, sums.weights),
    )


def contour_sum(
    distance: Array, distribution: UniformSum, contour: Contour, derivatives: int
) -> tuple[Array, Slopes | None]:
    """Logs of the midpoint sums for ``I_m(y)``, aliases included, and their derivatives.

    Parameters
    ----------
    distance : Array, shape (B,)
        ``sum(weights) - y`` without the rounding of that difference.
    distribution : UniformSum
        With positive weights.
    contour : Contour
    derivatives : int
        Number of derivatives that the nodes must resolve; with 0 there are no slopes.

    Returns
    -------
    tuple
        Array of shape (M, B); `Slopes` of it, or None.
    """
    tolerances = tolerances_of(distance.dtype)
    excess = excess_coth(distribution.weights, contour.tilt)
    component = tilted_component(distribution.weights, contour.tilt, excess)
    constants = lax.stop_gradient((distribution, excess, contour))
    shift = _shift(distance, distribution, contour)
    nothing = jnp.zeros(contour.order.shape, distance.dtype)
    slopes = None
    if derivatives:
        of_weights = jnp.zeros((len(distribution.weights), *nothing.shape), nothing.dtype)
        slopes = Slopes(nothing, nothing, of_weights)

    def add_chunk(state: tuple[Any, ...]) -> tuple[Any, ...]:
        chunk, _, total, slopes = state
        nodes = nodes_of_chunk(contour, chunk, _NODES_PER_CHUNK)
        density = integrand(shift, distribution, excess, contour, nodes)
        density = lax.optimization_barrier(density)
        total = total + jnp.sum(density.real, axis=0)
        if slopes is not None:
            slopes = _add_slopes(slopes, density, distribution, component, nodes)
        chunk = chunk + 1
        return chunk, unfinished(chunk * _NODES_PER_CHUNK, density[-2:, 0]), total, slopes

    def unfinished(node: Array, end: Array) -> Array:
        distribution, excess, contour = constants
        end = lax.stop_gradient(end)
        largest = jnp.max(jnp.abs(end.real) + jnp.abs(end.imag), axis=0)
        bound = envelope_at(distribution, excess, contour, node.astype(distance.dtype))
        growth = growth_at(contour, node.astype(distance.dtype), derivatives)
        seen = (largest * growth > tolerances.seen) | (bound * growth > tolerances.unseen)
        more = seen & (bound * growth > tolerances.target) & (node < contour.num_nodes)
        return any_point(more)

    state = (jnp.asarray(0), jnp.asarray(True), nothing, slopes)
    _, _, total, slopes = lax.while_loop(lambda state: state[1], add_chunk, state)
    # Derivatives of the integrand include its unit.
    unit = log_scale(*lax.stop_gradient((distance, distribution, contour)))
    # The barrier makes one kernel of both logarithms.
    value = lax.optimization_barrier(unit + jnp.log(total * contour.step / jnp.pi))
    if slopes is not None:
        slopes = Slopes(*(part / total for part in slopes))
    return value, slopes


def _shift(distance: Array, distribution: UniformSum, contour: Contour) -> Array:
    """``d + v t``.

    It is the distance of the uniforms' tilted mean from their edge, at most ``n/t``, and what is
    missing to the saddlepoint, less than a standard deviation. Far out in the normal part rounding
    is more than that, and the sum would have no value.
    """
    scale = distribution.normal_scale
    if scale is None:
        return distance
    fixed = lax.stop_gradient(distance)
    most = len(distribution.weights) + 1.0 + contour.order[-1].astype(distance.dtype)
    most = lax.stop_gradient(2.0 * (most / contour.tilt + scale))
    moved = lax.stop_gradient(distribution.normal_variance) * contour.tilt
    return jnp.clip(fixed + moved, -most, most) + (distance - fixed)
