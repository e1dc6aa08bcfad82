"""Nodes over the values of a mixture, for integrals of functions of its normal score."""

import jax.numpy as jnp
from jax import Array, lax

from nn_uq_dist.basics._panels import gauss_legendre
from nn_uq_dist.distributions._mixture_numerics import Mixture, hull

# Panels of equal length, and panels between components, which may be narrow and close together.
_EQUAL = 20
_BETWEEN = 20
# Reach, in standard deviations, of an unbounded law: he_k phi is at most sqrt(phi), 1e-11 there.
_REACH = 10.0


def mixture_rule(mixture: Mixture, batch_shape: tuple[int, ...]) -> tuple[Array, Array]:
    """Nodes and lengths, shape ``(Q,) + batch_shape``, about 500 of them for each output.

    Notes
    -----
    A mixture has too many kinks to put a panel between each two. Half of the panels end at
    quantiles of points that mark the components, which are dense where the law may change fast.
    """
    laws = mixture.laws
    mean, scale = laws.mean, laws.standard_deviation
    low, high = hull(mixture)
    # Without finite ends: as far as any of the components reaches.
    low = jnp.where(jnp.isfinite(low), low, jnp.min(mean - _REACH * scale, axis=-1))
    high = jnp.where(jnp.isfinite(high), high, jnp.max(mean + _REACH * scale, axis=-1))
    wide = (*batch_shape, laws.batch_shape[-1])
    marks = [jnp.broadcast_to(mean + k * scale, wide) for k in (-2.0, 0.0, 2.0)]
    shares = jnp.linspace(0, 1, _BETWEEN + 1, dtype=mean.dtype)[1:-1]
    between = jnp.quantile(jnp.concatenate(marks, axis=-1), shares, axis=-1)
    steps = jnp.linspace(0, 1, _EQUAL + 1, dtype=mean.dtype)
    steps = steps.reshape(-1, *(1,) * len(batch_shape))
    equal = jnp.broadcast_to(low + (high - low) * steps, (len(steps), *batch_shape))
    ends = jnp.sort(jnp.concatenate([equal, jnp.clip(between, low, high)]), axis=0)
    return gauss_legendre(lax.stop_gradient(ends))
