"""Linearize a network over parts of its random input."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import Distribution

from nn_uq_dist.basics import _checks
from nn_uq_dist.basics._compiled_once import compiled_once
from nn_uq_dist.basics._row_algebra import matvec
from nn_uq_dist.inputs import AbstractInputLaw, as_input_law
from nn_uq_dist.inputs._flat_network import FlatNetwork, flat_network
from nn_uq_dist.linearization._jacobian import points_at_once, tangents
from nn_uq_dist.linearization._parts import (
    MOST_NORMAL_PARTS,
    NORMAL_OFFSET,
    UNIFORM_OFFSET,
    Curvature,
    choose_splits,
    grid_parts,
)
from nn_uq_dist.linearization._partwise_linearization import PartwiseLinearization

# Most parts that are evaluated at once.
_MOST_AT_ONCE = 256


def linearize_parts(
    network: Callable[[Any], Any],
    f: Distribution | AbstractInputLaw | Any,
    num_parts: int | Sequence[int],
) -> PartwiseLinearization:
    r"""Linearize `network` at the center of each of many parts of the law of its input.

    The random input is made of independent uniform and normal variables (see
    `nn_uq_dist.inputs.AbstractInputLaw`). Each of them is split into parts, and the network is
    linearized at the center of every combination: its outputs then follow a mixture. With few
    inputs this quickly converges to the law of the network itself.

    Parameters
    ----------
    network
        Any JAX callable that `linearize` accepts.
    f
        Law of the input, as for `linearize`. All points of a batch are split alike.
    num_parts
        Largest number of parts. Which variables are split, and how often, depends on how the
        Jacobian changes along each of them; fewer parts are made if they suffice. Alternatively the
        number of parts along each standard variable, uniform ones first and then normal ones, which
        works inside ``jit`` and ``vmap``. If so many variables matter that splitting each of them
        would give too many combinations, only those that matter most are split.

    Returns
    -------
    PartwiseLinearization

    Raises
    ------
    TypeError
        If `network` is not callable, its output holds no real floats, the family of `f` is
        not supported, or the parts are to be chosen and `f` is traced.
    ValueError
        If `network` fails on an input of the given shape, its values or Jacobians are known to be
        NaN or infinite, or `num_parts` is not positive or has the wrong length.

    Notes
    -----
    A uniform variable on (-1, 1) is the sum of a variable on ``M`` equidistant points and a uniform
    variable on (-1/M, 1/M): the parts of a box add up to it exactly. Normal variables do not split
    like this; with three parts or more, their parts cause an error of at most 1e-3 in the
    distribution function of the variable (`nn_uq_dist.linearization._parts`). The input of a
    linear network is not split.

    The choice needs two Jacobians for each standard variable, and one more; they are included in
    ``num_evaluations`` of the result.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import numpyro.distributions as dist
    >>> import nn_uq_dist as nuq
    >>> f = dist.Uniform(-jnp.ones(2), 1.0).to_event(1)
    >>> parts = nuq.linearize_parts(lambda x: jnp.array([jnp.tanh(4 * x[0]) + x[1]]), f, 20)
    >>> parts.splits, parts.num_evaluations  # two for each part, and for five more points
    ((20, 1), 50)
    >>> print(f"{parts.marginals().excess_kurtosis[0]:.1f}")  # two humps
    -1.0
    """
    law = as_input_law(f)
    flat = flat_network(network, law)
    num_uniform, num_normal = law.num_standard_variables
    count = num_uniform + num_normal
    if count == 0:
        raise ValueError(
            "f must have a random part, got known values only; call the network itself, or pass "
            "a distribution"
        )
    splits = _known_splits(num_parts, num_uniform, count)
    num_points = 0
    if splits is None:
        most = _checks.positive_int("num_parts", num_parts)
        if not _checks.is_concrete(law):
            raise TypeError(
                "f must hold known values where the parts are chosen, got traced ones; pass the "
                "number of parts along each variable, such as the splits of an earlier result"
            )
        curvature, num_points = _curvature(flat, law)
        splits = choose_splits(curvature, most)
    parts = grid_parts(splits, num_uniform, law.dtype)
    found = _linearized_at(flat, law, parts.centers)
    remedy = "check the weights of the network and the range of its input"
    _checks.require_finite("network(center of a part)", found.value, remedy)
    _checks.require_finite(
        "the Jacobian of network at the center of a part", found.jacobian, remedy
    )
    dtype = _checks.float_dtype(found.value, found.jacobian, law.loc)

    def of_each_point(part: Array) -> Array:
        return jnp.broadcast_to(part.astype(dtype), law.batch_shape + part.shape)

    return PartwiseLinearization(
        loc=found.value.astype(dtype),
        jacobian=found.jacobian.astype(dtype),
        deviation=found.deviation.astype(dtype),
        scales=of_each_point(parts.scales),
        probabilities=of_each_point(parts.probabilities),
        input=law,
        splits=splits,
        num_evaluations=(num_points + len(parts.centers))
        * (1 + min(law.num_inputs, flat.num_outputs)),
        output_structure=flat.output_structure,
    )


def _known_splits(
    num_parts: int | Sequence[int], num_uniform: int, count: int
) -> tuple[int, ...] | None:
    """Parts along each variable if they are given."""
    if np.ndim(num_parts) == 0:
        return None
    splits = tuple(
        _checks.positive_int(f"num_parts[{k}]", number)
        for k, number in enumerate(num_parts)  # type: ignore[arg-type]
    )
    if len(splits) != count:
        raise ValueError(
            f"num_parts must have an entry for each standard variable of the input, "
            f"{num_uniform} uniform and {count - num_uniform} normal ones, got {len(splits)}; "
            "pass one number to have the parts chosen"
        )
    if max(splits[num_uniform:], default=1) > MOST_NORMAL_PARTS:
        raise ValueError(
            f"num_parts must be at most {MOST_NORMAL_PARTS} along a normal variable, got "
            f"{max(splits[num_uniform:])}; more would not be more accurate"
        )
    return splits


def _curvature(network: FlatNetwork, law: AbstractInputLaw) -> tuple[Curvature, int]:
    """Mean squares of second derivatives, and the number of points that were evaluated.

    The outputs at all points of a batch count alike: they share the choice.
    """
    num_uniform, num_normal = law.num_standard_variables
    count = num_uniform + num_normal
    columns = np.asarray(_deviation_matrix(law)).reshape(-1, count)
    moving = np.flatnonzero(np.any(columns != 0, axis=0))
    offsets = np.where(np.arange(count) < num_uniform, UNIFORM_OFFSET, NORMAL_OFFSET)
    steps = np.zeros((1 + 2 * len(moving), count))
    for i, k in enumerate(moving):
        steps[1 + 2 * i, k], steps[2 + 2 * i, k] = offsets[k], -offsets[k]
    found = _linearized_at(network, law, jnp.asarray(steps, law.dtype)).slopes
    # All outputs at all points of the batch along one axis.
    slopes = np.moveaxis(np.asarray(found, np.float64), -3, 0).reshape(len(steps), -1, count)
    squares = np.zeros((slopes.shape[1], count, count))
    for i, k in enumerate(moving):
        sides = slopes[1 + 2 * i : 3 + 2 * i] - slopes[0]
        squares[:, k] = np.mean((sides / offsets[k]) ** 2, axis=0)
    # Each mixed derivative has been estimated along both of its variables.
    squares = (squares + squares.transpose(0, 2, 1)) / 2
    # NaN at these points is ignored; NaN at the centers of the parts is found later.
    squares = np.where(np.isfinite(squares), squares, 0)
    return Curvature(slopes[0], squares, num_uniform), len(steps)


class _Linearized(NamedTuple):
    """Tangents at some points, given in standard variables; ``batch_shape`` in front.

    Attributes
    ----------
    deviation : Array, shape (M, N_x)
        Points minus the mean input.
    value : Array, shape (M, N_y)
    jacobian : Array, shape (M, N_y, N_x)
    slopes : Array, shape (M, N_y, K)
        Derivatives in the standard variables.
    """

    deviation: Array
    value: Array
    jacobian: Array
    slopes: Array


def _linearized_at(network: FlatNetwork, law: AbstractInputLaw, points: Array) -> _Linearized:
    """The network and its Jacobians at points of standard variables, shape ``(M, K)``."""
    size = min(_MOST_AT_ONCE, points_at_once(law.num_inputs, network.num_outputs))

    def found(law: AbstractInputLaw, points: Array) -> _Linearized:
        matrix = _deviation_matrix(law)[..., None, :, :]
        deviation = matvec(matrix, points)
        value, jacobian = tangents(network, law, law.loc[..., None, :] + deviation, size)
        return _Linearized(deviation, value, jacobian, jacobian @ matrix)

    return compiled_once(found, law, points)(law, points)


def _deviation_matrix(law: AbstractInputLaw) -> Array:
    """Deviations of the inputs for each standard variable, shape ``batch_shape + (N_x, K)``."""
    num_uniform, num_normal = law.num_standard_variables
    count, batch_shape = num_uniform + num_normal, law.batch_shape
    each = jnp.eye(count, dtype=law.dtype).reshape(count, *(1,) * len(batch_shape), count)
    each = jnp.broadcast_to(each, (count, *batch_shape, count))
    return jnp.moveaxis(law.deviation_at(each[..., :num_uniform], each[..., num_uniform:]), 0, -1)
