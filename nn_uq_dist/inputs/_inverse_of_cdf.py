"""Values of a law with a known distribution function at given normal scores, differentiable."""

from typing import Any

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array, lax
from jax.custom_derivatives import SymbolicZero
from jax.scipy.special import ndtr, ndtri

from nn_uq_dist.basics._quantile_search import quantile_at_score


@jax.custom_jvp
def at_inverse_of_cdf(family: Any, z: Array) -> Array:
    """Solve ``family.cdf(x) = Phi(z)`` by Newton steps inside of a bracket."""
    to_support = dist.transforms.biject_to(family.support)
    shape = jnp.broadcast_shapes(jnp.shape(z), *(jnp.shape(p) for p in jax.tree.leaves(family)))
    limits = jnp.finfo(z.dtype)
    probability = jnp.clip(ndtr(jnp.broadcast_to(z, shape)), limits.tiny, 1 - limits.eps / 2)

    def below(t: Array) -> Array:
        return jnp.asarray(family.cdf(to_support(t)) < probability)

    def is_too_narrow(state: tuple[Array, Array]) -> Array:
        low, high = state
        grows = ~below(low) | below(high)
        return jnp.any(grows) & (jnp.max(high) < limits.max / 4)

    def widen(state: tuple[Array, Array]) -> tuple[Array, Array]:
        low, high = state
        return jnp.where(below(low), low, 2 * low), jnp.where(below(high), 2 * high, high)

    one = jnp.ones(shape, z.dtype)
    # In float32 a bracket of hundreds is an infinite value: bounded by the steps below.
    low, high = lax.fori_loop(
        0,
        _doublings(to_support),
        lambda _, state: lax.cond(is_too_narrow(state), widen, lambda s: s, state),
        (-one, one),
    )

    def score_and_log_density(t: Array, _: None) -> tuple[Array, Array]:
        x = to_support(t)
        log_density = family.log_prob(x) + to_support.log_abs_det_jacobian(t, x)
        return ndtri(family.cdf(x)), log_density

    start = (low + high) / 2
    solved = quantile_at_score(ndtri(probability), start, low, high, score_and_log_density)
    value: Array = to_support(solved)
    return value


def _doublings(to_support: Any) -> int:
    """How often the bracket is widened: values themselves, or their logarithms or logits."""
    return 100 if isinstance(to_support, dist.transforms.IdentityTransform) else 12


def _tangent(primals: tuple[Any, Array], tangents: tuple[Any, Any]) -> tuple[Array, Array]:
    family, z = primals
    family_dot, z_dot = tangents
    x = at_inverse_of_cdf(family, z)
    log_density = family.log_prob(x)
    tangent = jnp.zeros_like(x)
    if not isinstance(z_dot, SymbolicZero):
        log_normal = -(z**2) / 2 - jnp.log(2 * jnp.pi) / 2
        tangent = tangent + jnp.exp(log_normal - log_density) * z_dot
    leaves = jax.tree.leaves(family_dot, is_leaf=lambda leaf: isinstance(leaf, SymbolicZero))
    # The distribution function may have no derivative in a parameter that nobody asks for.
    if not all(isinstance(leaf, SymbolicZero) for leaf in leaves):
        moving = [not isinstance(leaf, SymbolicZero) for leaf in leaves]
        values, structure = jax.tree.flatten(family)

        def probability(*moved: Array) -> Array:
            new = iter(moved)
            filled = [next(new) if m else v for m, v in zip(moving, values, strict=True)]
            at: Array = jax.tree.unflatten(structure, filled).cdf(x)
            return at

        primal = tuple(v for m, v in zip(moving, values, strict=True) if m)
        dot = tuple(leaf for m, leaf in zip(moving, leaves, strict=True) if m)
        tangent = tangent - jax.jvp(probability, primal, dot)[1] * jnp.exp(-log_density)
    return x, tangent


at_inverse_of_cdf.defjvp(_tangent, symbolic_zeros=True)
