"""Linearize a network: its values and Jacobians, in portions whose memory is bounded.

Forward mode costs a pass for each input, reverse mode one for each output: the mode with fewer
passes is used. As many passes run together as `_MOST_NUMBERS` allows; each basis vector is made
from its index when it is needed, so no large identity matrix is held in memory.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike, DTypeLike
from numpyro.distributions import Distribution

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.compiled_programs import compiled_once
from nn_uq_dist.basics.row_algebra import matvec
from nn_uq_dist.inputs import Input, as_input
from nn_uq_dist.linearization._linearized_network import Linearization
from nn_uq_dist.sampling.flat_network import REMEDY, FlatNetwork, flat_network

# Numbers in the inputs or the outputs of all passes that run together, and in the Jacobians of all
# points that are handled together.
_MOST_NUMBERS = 2**22


def linearize(
    network: Callable[[Any], Any],
    f: Distribution | Input | Any,
    at: ArrayLike | None = None,
    *,
    batch_size: int | None = None,
) -> Linearization:
    r"""Linearize a network: :math:`g(f) \approx g(a) + J(a) (f - a)`, by default at the mean.

    The Jacobian is taken column by column in forward mode if the network has at least as many
    outputs as inputs, else row by row in reverse mode; the same pass gives the value. Large
    Jacobians, and those at many points, are computed in portions, so memory beyond the result stays
    bounded. Works inside ``jit``, ``grad`` and ``vmap``. Outside of them the network is traced in
    each call and compiled where its program is new, as in `monte_carlo`; put calls that repeat very
    often inside of ``jax.jit``, which saves the tracing too.

    Parameters
    ----------
    network
        Any JAX callable that maps one input, usually of shape ``(N_x,)``, to a vector ``(N_y,)``:
        a function, a closure, a jitted function, a Flax NNX or Equinox module in inference mode;
        the how-to pages of the documentation cover other frameworks. It may return an array of any
        shape or a pytree of arrays: their entries are the ``N_y`` outputs, and
        `Linearization.unravel` restores the structure.
    f
        Distribution of the input: one of NumPyro, an `nn_uq_dist.Input`, or a dict, list or tuple
        of independent ones and known arrays, which is then the argument of the network. See
        `nn_uq_dist.inputs.as_input`. Its batch shape becomes that of the result. A family that is
        neither uniform nor normal, such as a log-normal one, has its own mean and standard
        deviation in the linear model, and a normal shape.
    at
        Point of linearization, shape ``(..., N_x)``: a vector of the input distribution, as
        ``lin.input.mean``, by default this. Of a family that is neither uniform nor normal it is
        the number of standard deviations from its mean.
    batch_size
        Number of points of the batch of `f` that are linearized at a time; it bounds the memory of
        the network evaluations, not of the result. Default: as many as have about 4 million numbers
        in their Jacobians. Choose less for a network with many more neurons than inputs and
        outputs.

    Returns
    -------
    Linearization
        With ``loc`` of shape ``batch_shape + (N_y,)`` and ``jacobian`` of shape
        ``batch_shape + (N_y, N_x)``.

    Raises
    ------
    TypeError
        If `network` is not callable, its output holds no real floats, or the family of `f`
        is not supported; if `at` is not an array of real numbers.
    ValueError
        If `network` fails on an input of the given shape (the cause is chained), its output is
        empty, one call affects the next, or value or Jacobian are known to be NaN or infinite; if
        `at` has another shape, or `batch_size` is not positive.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import numpyro.distributions as dist
    >>> from nn_uq_dist import linearize
    >>> f = dist.Uniform(jnp.array([0.9, 1.9]), jnp.array([1.1, 2.1])).to_event(1)
    >>> lin = linearize(lambda x: jnp.array([x[0] * x[1], x[0] ** 2, x[1]]), f)
    >>> lin.jacobian.shape
    (3, 2)
    >>> [round(float(v), 3) for v in lin.mean]
    [2.0, 1.0, 2.0]
    """
    distribution = as_input(f)
    if batch_size is not None:
        batch_size = checks.positive_int("batch_size", batch_size)
    point = distribution.mean
    if at is not None:
        remedy = "pass a point of the input space"
        at = checks.as_vectors(
            "at", at, "N_x", distribution.num_inputs, remedy, distribution.batch_shape
        )
        checks.require_finite("at", at)
        point = jnp.asarray(at, distribution.dtype)
        distribution = distribution.expand(
            jnp.broadcast_shapes(point.shape[:-1], distribution.batch_shape)
        )
    flat = flat_network(network, distribution.of_same_moments)

    def each(at: Array) -> tuple[Array, Array]:
        return values_and_jacobians(flat, at, flat.num_outputs, batch_size)

    try:
        value, jacobian = compiled_once(each, point)(point)
    except jax.errors.UnexpectedTracerError as error:
        # The first call, which checks the network, cannot detect a value kept for the next.
        raise ValueError(
            f"network must be a pure function, got one in which a call affects the next; {REMEDY}"
        ) from error
    if checks.is_concrete(value, jacobian):
        _require_numbers(value, jacobian, flat, "mean input" if at is None else "at")
    if at is not None:
        value = value + matvec(jacobian, distribution.mean - point)
    return Linearization.of_parts(value, jacobian, distribution, flat.output_structure)


def _require_numbers(value: Array, jacobian: Array, flat: FlatNetwork, where: str) -> None:
    """Raise ``ValueError`` that names the first entry that is NaN or infinite."""
    if np.isfinite(value).all() and np.isfinite(jacobian).all():
        return
    outputs, inputs = flat.structure.names, flat.distribution.names
    remedy = (
        f"check its weights, the parameters of f, and whether numbers within it are too large for "
        f"{value.dtype}"
    )
    checks.require_finite(f"network({where})", value, remedy, lambda: (outputs,))
    remedy = "pass at=, a point near by that has one"
    what = f"the Jacobian of network at the {where}"
    checks.require_finite(what, jacobian, remedy, lambda: (outputs, inputs))


def value_and_jacobian(
    network: Callable[[Array], Array], point: Array, num_outputs: int
) -> tuple[Array, Array]:
    """Value ``(N_y,)`` and Jacobian ``(N_y, N_x)`` at a point ``(N_x,)``.

    Parameters
    ----------
    network
        Maps ``(N_x,)`` to ``(N_y,)``.
    point
        Point, shape ``(N_x,)``.
    num_outputs
        ``N_y``.
    """
    num_inputs = point.shape[0]
    if num_inputs <= num_outputs:
        value, forward = jax.linearize(network, point)
        return value, _images_of_basis(forward, num_inputs, num_outputs, point.dtype).T
    value, pull_back = jax.vjp(network, point)
    rows = _images_of_basis(lambda row: pull_back(row)[0], num_outputs, num_inputs, value.dtype)
    return value, rows


def values_and_jacobians(
    network: FlatNetwork, points: Array, num_outputs: int, batch_size: int | None = None
) -> tuple[Array, Array]:
    """Values ``(..., N_y)`` and Jacobians ``(..., N_y, N_x)`` at points ``(..., N_x)``.

    Parameters
    ----------
    network
        A network between vectors. Where its map to what the network takes differs over the batch of
        its distribution, there is a point for each entry.
    points
        Points, shape ``(..., N_x)``.
    num_outputs
        ``N_y``.
    batch_size
        Points that are handled together. Default: as many as have `_MOST_NUMBERS` in their
        Jacobians.
    """
    shape, varying = points.shape[:-1], None
    if network.distribution.varies_over_batch:
        shape, varying = network.distribution.batch_shape, network.distribution
        points = jnp.broadcast_to(points, (*shape, points.shape[-1]))

    def at_one(entry: tuple[Input | None, Array]) -> tuple[Array, Array]:
        distribution, point = entry
        here = dataclasses.replace(network, distribution=distribution or network.distribution)
        return value_and_jacobian(here, point, num_outputs)

    if not shape:
        return at_one((varying, points))
    rows = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[len(shape) :]), (varying, points))
    size = batch_size or max(1, _MOST_NUMBERS // (points.shape[-1] * num_outputs))
    if math.prod(shape) <= size:
        results = jax.vmap(at_one)(rows)
    else:
        results = lax.map(at_one, rows, batch_size=size if size > 1 else None)
    return jax.tree.map(lambda array: array.reshape(*shape, *array.shape[1:]), results)


def _images_of_basis(
    linear: Callable[[Array], Array], count: int, width: int, dtype: DTypeLike
) -> Array:
    """Images of ``count`` basis vectors as rows of this width, some at a time."""
    if count * max(count, width) <= _MOST_NUMBERS:
        # Outside `jit` this needs no compiled loop.
        return jax.vmap(linear)(jnp.eye(count, dtype=dtype))

    def image(index: Array) -> Array:
        return linear((jnp.arange(count) == index).astype(dtype))

    # Portions of nearly equal size: the last one, compiled separately, is not much smaller.
    portions = -(-count * max(count, width) // _MOST_NUMBERS)
    size = max(1, -(-count // portions))
    return lax.map(image, jnp.arange(count), batch_size=size if size > 1 else None)
