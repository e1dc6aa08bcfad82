"""Supports of outputs: of one with other ends than its base, of vectors with latent bounds."""

from typing import Any

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from numpyro.distributions import constraints
from numpyro.distributions.transforms import IndependentTransform, Transform, biject_to


# NumPyro updates the bounds of a latent site at each step only if the type of the support is an
# interval or a half-line; it treats `independent(interval(...), 1)` as fixed, and draws leave the
# support. Hence these supports of vectors are subclasses of intervals and half-lines.
class _OfVectors:
    """Every entry of the last axis fulfills the constraint that comes next among the bases."""

    event_dim = 1

    def __call__(self, x: ArrayLike) -> Array:
        return jnp.all(super().__call__(x), axis=-1)  # type: ignore[misc]

    def __repr__(self) -> str:
        # NumPyro's `__repr__` drops the first letter, which is an underscore in its own names.
        return f"V{super().__repr__()}"


class VectorInterval(_OfVectors, constraints._Interval):  # noqa: SLF001 (NumPyro looks for it)
    """A box: every entry of the last axis within its bounds."""


class VectorGreaterThan(_OfVectors, constraints._GreaterThan):  # noqa: SLF001 (as above)
    """Every entry of the last axis above its bound."""


class VectorGreaterThanEq(_OfVectors, constraints._GreaterThanEq):  # noqa: SLF001 (as above)
    """Every entry of the last axis at or above its bound."""


@biject_to.register(VectorInterval)
def _biject_to_box(constraint: VectorInterval) -> Transform:
    entry = constraints.interval(constraint.lower_bound, constraint.upper_bound)
    return IndependentTransform(biject_to(entry), 1)


@biject_to.register(VectorGreaterThan)
@biject_to.register(VectorGreaterThanEq)
def _biject_to_half_lines(constraint: VectorGreaterThan | VectorGreaterThanEq) -> Transform:
    return IndependentTransform(biject_to(constraints.greater_than(constraint.lower_bound)), 1)


def support_between(entry: constraints.Constraint, low: Any, high: Any) -> constraints.Constraint:
    """The support that has the same ends as ``entry``, if any, at other places.

    Which ends there are is known from the kind of ``entry`` alone: an interval with an infinite end
    has no bijection from the real line.
    """
    has_low, has_high = hasattr(entry, "lower_bound"), hasattr(entry, "upper_bound")
    if has_low and has_high:
        return constraints.interval(low, high)
    if has_low:
        is_closed = isinstance(entry, type(constraints.greater_than_eq(0.0)))
        return (constraints.greater_than_eq if is_closed else constraints.greater_than)(low)
    if has_high:
        is_closed = isinstance(entry, type(constraints.less_than_eq(0.0)))
        return (constraints.less_than_eq if is_closed else constraints.less_than)(high)
    return constraints.real


def vector_support(entry: constraints.Constraint) -> constraints.Constraint:
    """The support of a vector whose entries have support ``entry``."""
    if type(entry) is type(constraints.interval(0.0, 1.0)):
        return VectorInterval(entry.lower_bound, entry.upper_bound)
    if type(entry) is type(constraints.greater_than(0.0)):
        return VectorGreaterThan(entry.lower_bound)
    if type(entry) is type(constraints.greater_than_eq(0.0)):
        return VectorGreaterThanEq(entry.lower_bound)
    if entry is constraints.real:
        return constraints.real_vector
    return constraints.independent(entry, 1)
