"""Paired draws as matrices: those that are finite, and stand-ins for constant linear outputs."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nn_uq_dist.basics import _checks
from nn_uq_dist.sampling import PairedDraws

_FEWEST_PAIRS = 8


def usable_pairs(pairs: PairedDraws) -> tuple[Array, Array, Array]:
    """Pairs whose outputs are finite, as matrices ``(n, J)`` in float64 if they are known."""
    network: Any = pairs.network
    linear: Any = pairs.linear
    inputs: Any = pairs.inputs
    count = network.shape[0]
    network, linear = network.reshape(count, -1), linear.reshape(count, -1)
    if _checks.is_concrete(network, linear):
        network, linear = np.asarray(network, np.float64), np.asarray(linear, np.float64)
        kept = np.isfinite(network).all(axis=1)
        # Randomizations keep their lengths: a gap is filled by the pair before it.
        if pairs.num_randomizations and not kept.all():
            rows = np.maximum.accumulate(np.where(kept, np.arange(count), 0))
            network, linear, inputs = network[rows], linear[rows], np.asarray(inputs)[rows]
        else:
            network, linear, inputs = network[kept], linear[kept], np.asarray(inputs)[kept]
        if not np.isfinite(network).all():
            network = network[:0]
    if network.shape[0] < _FEWEST_PAIRS:
        raise ValueError(
            f"pairs must hold at least {_FEWEST_PAIRS} draws with finite outputs, got "
            f"{network.shape[0]}; draw more, or check the network over the range of its input"
        )
    return network, linear, inputs


def constant_outputs(linearization: Any, noise: ArrayLike | None) -> Any:
    """Which outputs are constant in the linear model; ``None`` if none is or values are traced."""
    if not _checks.is_concrete(linearization, noise):
        return None
    constant = np.asarray(linearization.image(noise).is_constant)
    if constant.shape != linearization.mean.shape:
        return None  # a linearization over parts, whose laws have a minimum width
    return constant if constant.any() else None


def stand_in(
    linearization: Any, pairs: Any, network: Any, linear: Any, constant: Any
) -> tuple[Array, Any]:
    """A normal law for outputs without sensitivity, as wide as the network's, and its draws."""
    loc = np.asarray(linearization.loc, np.float64)
    spread = network.std(axis=0).reshape(loc.shape)
    # An output that is constant in all draws gets a negligible width.
    spread = np.maximum(spread, 1e-6 * np.maximum(np.abs(loc), 1))
    own_scale = np.where(constant, spread, 0.0)
    normal = jax.random.normal(jax.random.fold_in(pairs.key, 2**32 - 4), linear.shape)
    moved = loc.reshape(-1) + own_scale.reshape(-1) * np.asarray(normal, np.float64)
    dtype = jnp.result_type(linearization.loc)
    return jnp.asarray(own_scale, dtype), np.where(constant.reshape(-1), moved, linear)


def require_pairs(linearization: Any, pairs: Any) -> None:
    if not isinstance(pairs, PairedDraws):
        raise TypeError(
            f"pairs must be PairedDraws, got {type(pairs).__name__}; pass "
            f"paired_draws(network, linearization, key, num_samples)"
        )
    other = pairs.linearization
    structures = {jax.tree.structure(each) for each in (other, linearization)}
    same = len(structures) == 1
    if same and _checks.is_concrete(other, linearization):
        leaves = zip(jax.tree.leaves(other), jax.tree.leaves(linearization), strict=True)
        same = all(a is b or np.array_equal(a, b) for a, b in leaves)
    if not same:
        raise ValueError(
            "pairs must be those of this linearization, got pairs of another one; pass "
            "paired_draws(network, linearization, key, num_samples)"
        )
