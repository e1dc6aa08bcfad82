"""Log density and log survival if every point has its own law.

The contour integral is tried first; points for which it does not converge are conditioned on their
largest weights, up to four. Both are passes of one loop over the same integral: the plain integral
is the case without a conditioned weight, so the program is compiled once.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from nn_uq_dist.linear_combination._any_point import any_point
from nn_uq_dist.linear_combination._conditioning import (
    MOST_CONDITIONED,
    Leaf,
    leaf_of,
    number_of_dominating,
    ranks_of_largest,
    whole_law,
)
from nn_uq_dist.linear_combination._law import Law, binary_scale, distance_from_edge
from nn_uq_dist.linear_combination._plain_integral import log_tail_integral

Orders = tuple[int, ...]
DENSITY: Orders = (0,)
SURVIVAL: Orders = (1,)
BOTH: Orders = (0, 1)


class Gradient(NamedTuple):
    """Derivatives of M values; ``weights`` and ``normal_scale`` as those of the law.

    Attributes
    ----------
    y : Array, shape (M, B)
    weights : Array, shape (n, M, B)
    normal_scale : Array, shape (M, B), or None
    """

    y: Array
    weights: Array
    normal_scale: Array | None


class Values(NamedTuple):
    """Results of a method.

    Attributes
    ----------
    logs : Array, shape (M, B)
        ``-inf`` beyond the support, NaN for a law that is a point mass or not finite.
    done : Array of bool, shape (B,)
        Where the method has converged.
    gradient : Gradient or None
    """

    logs: Array
    done: Array
    gradient: Gradient | None


def gradient_of(values: Values) -> Gradient:
    """The gradient, which must have been requested."""
    assert values.gradient is not None  # noqa: S101 (for the type checker)
    return values.gradient


def evaluate_each_point(
    orders: Orders,
    y: Array,
    law: Law,
    active: Array,
    *,
    derivatives: int = 0,
    conditioning: bool = True,
) -> Values:
    """Log density (order 0), log survival (order 1) or both at ``y >= 0``, a law for each point.

    Parameters
    ----------
    orders : tuple of int
        `DENSITY`, `SURVIVAL` or `BOTH`, which costs little more than one of them.
    y : Array, shape (B,)
    law : Law
        Weights of any sign.
    active : Array of bool, shape (B,)
        Points that are requested.
    derivatives : int
        0 for values only; 1 or 2 for the gradient, with enough nodes for that many derivatives.
    conditioning : bool
        Whether to use conditioning where the plain integral does not converge.
    """
    # abs with derivative one at zero: all functions are even in each weight, and the second
    # derivative at a zero weight needs the chain rule to pass.
    sign = jnp.where(law.weights < 0, -1.0, 1.0).astype(y.dtype)
    law = law._replace(weights=law.weights * sign)
    scale = binary_scale(law)
    normal = None if law.normal_scale is None else law.normal_scale / scale
    scaled = law._replace(weights=law.weights / scale, normal_scale=normal)
    found = _evaluate_scaled(orders, y / scale, scaled, active, derivatives, conditioning)
    is_density = jnp.asarray(orders)[:, None] == 0
    logs = found.logs - jnp.where(is_density, jnp.log(scale), 0.0)
    second = scaled.moments()[0]
    valid = (second > 0) & jnp.isfinite(second) & ~jnp.isnan(y)
    gradient = found.gradient
    if gradient is not None:
        gradient = Gradient(
            gradient.y / scale,
            gradient.weights * (sign / scale)[:, None],
            None if gradient.normal_scale is None else gradient.normal_scale / scale,
        )
    return Values(jnp.where(valid, logs, jnp.nan), found.done | ~valid, gradient)


class _Sum(NamedTuple):
    """A sum over leaves and its gradient, both in units of ``exp(unit)``, shape (M, B)."""

    unit: Array
    value: Array
    gradient: Gradient | None


def _evaluate_scaled(
    orders: Orders, y: Array, law: Law, active: Array, derivatives: int, conditioning: bool
) -> Values:
    is_closed_form = law.normal_scale is None and law.weights.shape[0] <= MOST_CONDITIONED
    order = jnp.broadcast_to(jnp.asarray(orders)[:, None], (len(orders), *y.shape))
    if not (conditioning or is_closed_form):
        return _plain(order, y, law, active, derivatives)
    first = _first_pass(order, y, law, active, derivatives, is_closed_form)
    State = tuple[Array, Array, Array, Array, _Sum]

    def unfinished(state: State) -> Array:
        index, done, _, number, _ = state
        return (index < 0) | any_point(active & ~done & (index < 2**number))

    def add_leaf(state: State) -> State:
        index, done, ranks, number, sums = state
        is_plain = index < 0
        used = active & ~done & (is_plain | (index < 2**number))

        def addend(y: Array, weights: Array, scale: Array | None) -> tuple[Array, Any]:
            own = law._replace(weights=weights, normal_scale=scale)
            distance = distance_from_edge(y, weights)
            leaf = lax.cond(
                is_plain & (not is_closed_form),
                lambda y, distance, own: whole_law(order, y, distance, own),
                lambda y, distance, own: leaf_of(index, order, y, distance, own, ranks, number),
                *(y, distance, own),
            )
            if is_closed_form:
                logs, converged = jnp.full(order.shape, -jnp.inf, y.dtype), used
            else:
                logs, converged = log_tail_integral(
                    leaf.order, leaf.point, leaf.distance, leaf.rest, used, ~is_plain, derivatives
                )
            value, unit = _in_units(logs, leaf)
            return value, (unit, converged)

        (unit, converged), added = _with_gradient(addend, y, law, derivatives)
        added = added._replace(unit=unit)
        # Points that did not converge in the plain pass start again.
        kept = used & (converged | ~is_plain)
        sums = jax.tree.map(partial(jnp.where, kept), _add(sums, added), sums)
        done = jnp.where(is_plain, converged | ~active, done)
        ranks, number = lax.cond(
            is_plain & any_point(active & ~done),
            lambda: _conditioned_weights(law),
            lambda: (ranks, number),
        )
        return index + 1, done, ranks, number, sums

    _, _, _, _, sums = lax.while_loop(unfinished, add_leaf, first)
    positive = sums.value > 0
    safe = jnp.where(positive, sums.value, 1.0)
    logs = jnp.where(positive, sums.unit + jnp.log(safe), -jnp.inf)
    gradient = jax.tree.map(lambda part: jnp.where(positive, part / safe, 0.0), sums.gradient)
    return Values(logs, jnp.ones(y.shape, bool), gradient)


def _plain(order: Array, y: Array, law: Law, active: Array, derivatives: int) -> Values:
    """The plain integral alone; `done` is False where it does not converge."""

    def logs_of(y: Array, weights: Array, scale: Array | None) -> tuple[Array, Array]:
        own = law._replace(weights=weights, normal_scale=scale)
        distance = distance_from_edge(y, weights)
        last = jnp.asarray(False)
        return log_tail_integral(
            order, y, distance, own, active, last, derivatives, conditioned=False
        )

    converged, found = _with_gradient(logs_of, y, law, derivatives)
    return Values(found.value, converged, found.gradient)


def _first_pass(
    order: Array, y: Array, law: Law, active: Array, derivatives: int, is_closed_form: bool
) -> tuple[Array, Array, Array, Array, _Sum]:
    """Index -1 is the plain integral; leaves count from 0."""
    zeros = jnp.zeros(order.shape, y.dtype)
    gradient = None
    if derivatives:
        by_weight = jnp.zeros((law.weights.shape[0], *order.shape), y.dtype)
        gradient = Gradient(zeros, by_weight, None if law.normal_scale is None else zeros)
    sums = _Sum(jnp.full(order.shape, -jnp.inf, y.dtype), zeros, gradient)
    if is_closed_form:
        ranks = ranks_of_largest(lax.stop_gradient(law.weights), MOST_CONDITIONED)
        number = jnp.full(y.shape, law.weights.shape[0])
        return jnp.asarray(0), ~active, ranks, number, sums
    ranks = jnp.full(law.weights.shape, MOST_CONDITIONED)
    return jnp.asarray(-1), ~active, ranks, jnp.zeros(y.shape, int), sums


def _conditioned_weights(law: Law) -> tuple[Array, Array]:
    """Ranks of the largest weights and how many of them to condition on."""
    law = lax.stop_gradient(law)
    ranks = ranks_of_largest(law.weights, MOST_CONDITIONED)
    return ranks, number_of_dominating(law, ranks, MOST_CONDITIONED)


def _in_units(logs: Array, leaf: Leaf) -> tuple[Array, Array]:
    """The contribution of a leaf, in units of ``exp(unit)``, because tail values may underflow."""
    finite = jnp.isfinite(logs) & (leaf.coefficient != 0)
    logs = jnp.where(finite, logs, 0.0)
    size = jnp.log(jnp.abs(jnp.where(finite, leaf.coefficient, 1.0)))
    some = leaf.polynomial != 0
    polynomial = jnp.where(some, leaf.polynomial, 1.0)
    unit = jnp.maximum(
        jnp.where(finite, logs + size, -jnp.inf),
        jnp.where(some, jnp.log(jnp.abs(polynomial)), -jnp.inf),
    )
    unit = lax.stop_gradient(unit)
    # Factors of absent terms must be finite: differentiation multiplies them by zero.
    tail = leaf.coefficient * jnp.exp(logs - jnp.where(finite, unit, 0.0))
    rest = polynomial * jnp.exp(-jnp.where(some, unit, 0.0))
    return jnp.where(finite, tail, 0.0) + jnp.where(some, rest, 0.0), unit


def _add(sums: _Sum, added: _Sum) -> _Sum:
    unit = jnp.maximum(sums.unit, added.unit)
    safe = jnp.where(jnp.isfinite(unit), unit, 0.0)
    old, new = jnp.exp(sums.unit - safe), jnp.exp(added.unit - safe)
    value = sums.value * old + added.value * new
    gradient = jax.tree.map(lambda a, b: a * old + b * new, sums.gradient, added.gradient)
    return _Sum(unit, value, gradient)


def _with_gradient[Aux](
    function: Callable[..., tuple[Array, Aux]], y: Array, law: Law, derivatives: int
) -> tuple[Aux, _Sum]:
    """The auxiliary result, the value and, if requested, the gradient of each row."""
    arguments = (y, law.weights, law.normal_scale)
    if not derivatives:
        value, aux = function(*arguments)
        return aux, _Sum(jnp.zeros_like(value), value, None)
    value, pull_back, aux = jax.vjp(function, *arguments, has_aux=True)
    # Points do not interact, so that one pullback gives the gradient of each. It is cheap: the sums
    # that it uses were computed with the value.
    rows = jnp.eye(len(value), dtype=value.dtype)[:, :, None] * jnp.ones_like(value)
    pulled = jax.vmap(pull_back, out_axes=-2)(rows)
    return aux, _Sum(jnp.zeros_like(value), value, Gradient(*pulled))
