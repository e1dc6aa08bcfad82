"""Linearize a network over parts of its random input."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import Distribution

from nn_uq_dist.basics import _checks
from nn_uq_dist.basics._row_algebra import matvec
from nn_uq_dist.inputs import AbstractInputLaw, as_input_law
from nn_uq_dist.inputs._flat_network import flat_network
from nn_uq_dist.linearization._jacobian import points_at_once, values_and_jacobians
from nn_uq_dist.refinement._normal_parts import MOST_NORMAL_PARTS
from nn_uq_dist.refinement._part_centers import grid_parts, sampled_parts
from nn_uq_dist.refinement._part_choice import (
    NORMAL_OFFSET,
    UNIFORM_OFFSET,
    Curvature,
    choose_splits,
)
from nn_uq_dist.refinement._partwise_linearization import PartwiseLinearization

# Most parts that are evaluated at once.
_MOST_AT_ONCE = 256


def linearize_parts(
    net: Callable[[Any], Any],
    f: Distribution | AbstractInputLaw | Any,
    num_parts: int | Sequence[int],
    *,
    key: Array | None = None,
) -> PartwiseLinearization:
    r"""Linearize `net` at the center of each of many parts of the law of its input.

    The random input is made of independent uniform and normal variables (see
    `nn_uq_dist.inputs.AbstractInputLaw`). Each of them is split into parts, and the network is
    linearized at the center of every combination: its outputs then follow a mixture. With few
    inputs this quickly converges to the law of the network itself.

    Parameters
    ----------
    net
        Any JAX callable that `linearize` accepts.
    f
        Law of the input, as for `linearize`, without batch axes.
    num_parts
        Largest number of parts. Which variables are split, and how often, depends on how the
        Jacobian changes along each of them; fewer parts are made if they suffice. Alternatively the
        number of parts along each standard variable, uniform ones first and then normal ones, which
        works inside ``jit`` and ``vmap``.
    key
        A JAX random key: if so many variables matter that splitting each of them would give too
        many combinations, `num_parts` of these are drawn. Without a key only the variables that
        matter most are split.

    Returns
    -------
    PartwiseLinearization

    Raises
    ------
    TypeError
        If `net` is not callable, its output holds no real floats, the family of `f` is
        not supported, or the parts are to be chosen and `f` is traced.
    ValueError
        If `net` fails on an input of the given shape, its values or Jacobians are known to be NaN
        or infinite, `f` has batch axes, or `num_parts` is not positive or has the wrong length.

    Notes
    -----
    A uniform variable on (-1, 1) is the sum of a variable on ``M`` equidistant points and a uniform
    variable on (-1/M, 1/M): the parts of a box add up to it exactly. Normal variables do not split
    like this; with three parts or more, their parts cause an error of at most 1e-3 in the
    distribution function of the variable (`nn_uq_dist.refinement._normal_parts`). The input of a
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
    network = flat_network(net, law)
    num_outputs = network.num_outputs
    if law.batch_shape:
        raise ValueError(
            f"f must have batch shape (), got {law.batch_shape}; use jax.vmap with the number of "
            "parts along each variable"
        )
    num_uniform, num_normal = law.num_standard_variables
    count = num_uniform + num_normal
    if count == 0:
        raise ValueError(
            "f must have a random part, got known values only; call the network itself, or pass "
            "a distribution"
        )
    each = jnp.eye(count, dtype=law.dtype)
    matrix = law.deviation_at(each[:, :num_uniform], each[:, num_uniform:]).T
    splits = _known_splits(num_parts, num_uniform, count)
    key = None if key is None else _checks.as_key("key", key)
    most, num_points = 0, 0
    if splits is None:
        most = _checks.positive_int("num_parts", num_parts)
        if not _checks.is_concrete(law):
            raise TypeError(
                "f must hold known values where the parts are chosen, got traced ones; pass the "
                "number of parts along each variable, such as the splits of an earlier result"
            )
        curvature, num_points = _curvature(network, law, matrix, num_uniform, num_outputs)
        splits = choose_splits(curvature, most, may_draw=key is not None)
    if most and np.prod(np.array(splits, float)) > most:
        assert key is not None  # noqa: S101 (there is a choice to draw with a key alone)
        parts = sampled_parts(splits, num_uniform, most, key, law.dtype)
    else:
        parts = grid_parts(splits, num_uniform, law.dtype)
    deviation = matvec(matrix, parts.centers)
    value, jacobian = _at_points(network, law.loc + deviation, num_outputs)
    remedy = "check the weights of the network and the range of its input"
    _checks.require_finite("net(center of a part)", value, remedy)
    _checks.require_finite("the Jacobian of net at the center of a part", jacobian, remedy)
    dtype = _checks.float_dtype(value, jacobian, law.loc)
    return PartwiseLinearization(
        loc=value.astype(dtype),
        jacobian=jacobian.astype(dtype),
        deviation=deviation.astype(dtype),
        scales=parts.scales.astype(dtype),
        probabilities=parts.probabilities.astype(dtype),
        input=law,
        splits=splits,
        num_evaluations=(num_points + len(value)) * (1 + min(law.num_inputs, num_outputs)),
        output_structure=network.output_structure,
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


def _curvature(
    net: Callable[[Array], Array],
    law: AbstractInputLaw,
    matrix: Array,
    num_uniform: int,
    num_outputs: int,
) -> tuple[Curvature, int]:
    """Mean squares of second derivatives, and the number of points that were evaluated."""
    count = matrix.shape[-1]
    moving = np.flatnonzero(np.any(np.asarray(matrix) != 0, axis=0))
    offsets = np.where(np.arange(count) < num_uniform, UNIFORM_OFFSET, NORMAL_OFFSET)
    steps = np.zeros((1 + 2 * len(moving), count))
    for i, k in enumerate(moving):
        steps[1 + 2 * i, k], steps[2 + 2 * i, k] = offsets[k], -offsets[k]
    points = law.loc + matvec(matrix, jnp.asarray(steps, law.dtype))
    jacobians = np.asarray(_at_points(net, points, num_outputs)[1] @ matrix, np.float64)
    squares = np.zeros((num_outputs, count, count))
    for i, k in enumerate(moving):
        sides = jacobians[1 + 2 * i : 3 + 2 * i] - jacobians[0]
        squares[:, k] = np.mean((sides / offsets[k]) ** 2, axis=0)
    # Each mixed derivative has been estimated along both of its variables.
    squares = (squares + squares.transpose(0, 2, 1)) / 2
    # NaN at these points is ignored; NaN at the centers of the parts is found later.
    squares = np.where(np.isfinite(squares), squares, 0)
    return Curvature(jacobians[0], squares, num_uniform), len(steps)


def _at_points(
    net: Callable[[Array], Array], points: Array, num_outputs: int
) -> tuple[Array, Array]:
    """Values and Jacobians, shapes ``(M, N_y)`` and ``(M, N_y, N_x)``; some points at a time."""
    size = min(_MOST_AT_ONCE, points_at_once(points.shape[-1], num_outputs))
    return jax.jit(lambda at: values_and_jacobians(net, at, num_outputs, size))(points)
