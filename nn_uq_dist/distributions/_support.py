"""Supports whose bounds may depend on other sites of a model: of numbers, vectors and arrays."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.typing import ArrayLike
from numpyro.distributions import constraints
from numpyro.distributions.transforms import IndependentTransform, Transform, biject_to


# NumPyro updates the bounds of a latent site at each step only if the type of the support is an
# interval or a lower half-line; it treats `less_than(...)` and `independent(interval(...), 1)` as
# fixed, so draws get the bounds of the first trace. Hence the subclass, for half-lines as well.
class MovingSupport(constraints._Interval):  # noqa: SLF001 (NumPyro looks for it)
    """Every entry of the last axes fulfills a constraint of numbers.

    NumPyro's transforms of numbers, such as `AffineTransform`, take any interval for one of numbers
    and give theirs as the image. So ``event_dim`` is that of numbers, 0: with the axes the change
    of volume would be that of one entry, without a word.

    Parameters
    ----------
    entry
        Constraint of one number, with a ``lower_bound``, an ``upper_bound`` or both.
    num_axes
        Number of the axes.
    """

    def __init__(self, entry: constraints.Constraint, num_axes: int) -> None:
        self.entry, self.num_axes = entry, num_axes

    @property
    def lower_bound(self) -> Any:
        """Lower ends of the entries, or minus infinity."""
        return getattr(self.entry, "lower_bound", -jnp.inf)

    @property
    def upper_bound(self) -> Any:
        """Upper ends of the entries, or infinity."""
        return getattr(self.entry, "upper_bound", jnp.inf)

    def __call__(self, x: ArrayLike) -> Array:
        holds = jnp.asarray(self.entry(x))
        return holds.all(tuple(range(-self.num_axes, 0)))

    def __repr__(self) -> str:
        return f"MovingSupport({self.entry}, {self.num_axes})"

    def feasible_like(self, prototype: ArrayLike) -> ArrayLike:
        """Values within the support, of the shape of the prototype."""
        feasible: ArrayLike = self.entry.feasible_like(prototype)
        return feasible

    def eq(self, other: object, static: bool = False) -> ArrayLike:
        """Whether the other one has the same kind of entries, axes and ends."""
        if not isinstance(other, MovingSupport) or self.num_axes != other.num_axes:
            return False
        same: ArrayLike = self.entry.eq(other.entry, static=static)
        return same

    def tree_flatten(self) -> tuple[tuple[constraints.Constraint], Any]:
        return (self.entry,), (("entry",), {"num_axes": self.num_axes})


@biject_to.register(MovingSupport)
def _biject_to_entries(constraint: MovingSupport) -> Transform:
    of_entry = biject_to(constraint.entry)
    axes = constraint.num_axes
    return IndependentTransform(of_entry, axes) if axes else of_entry


def support_between(entry: constraints.Constraint, low: Any, high: Any) -> constraints.Constraint:
    """The support that has the same ends as ``entry``, if any, at other places.

    Which ends there are is known from the kind of ``entry`` alone: an interval with an infinite end
    has no bijection from the real line.
    """
    entry = getattr(entry, "entry", entry)
    has_low, has_high = hasattr(entry, "lower_bound"), hasattr(entry, "upper_bound")
    if has_low and has_high:
        return constraints.interval(low, high)
    if has_low:
        is_closed = isinstance(entry, type(constraints.greater_than_eq(0.0)))
        return (constraints.greater_than_eq if is_closed else constraints.greater_than)(low)
    if has_high:
        is_closed = isinstance(entry, type(constraints.less_than_eq(0.0)))
        below = constraints.less_than_eq if is_closed else constraints.less_than
        return MovingSupport(below(high), 0)
    return constraints.real


def support_of_event(entry: constraints.Constraint, axes: int) -> constraints.Constraint:
    """The support of an array whose entries along so many last axes have the support ``entry``."""
    if isinstance(entry, MovingSupport):
        return MovingSupport(entry.entry, entry.num_axes + axes)
    if hasattr(entry, "lower_bound") or hasattr(entry, "upper_bound"):
        return MovingSupport(entry, axes)
    if entry is constraints.real and axes == 1:
        return constraints.real_vector
    return constraints.independent(entry, axes)


class IndependentOutputs(dist.Independent):
    """Distributions of outputs with batch axes as event axes, as ``to_event`` makes them.

    NumPyro's own class keeps the bounds of the first trace where the site is latent.
    """

    def log_prob(self, value: ArrayLike) -> Array:
        """Log density of values with all event axes; one of these does not broadcast.

        A sum over axes that the distribution has and the value has not would count values more than
        once, without a word.
        """
        shape, event_shape = np.shape(value), self.event_shape
        if shape[max(len(shape) - len(event_shape), 0) :] != event_shape:
            raise ValueError(
                f"value must have shape (..., {', '.join(map(str, event_shape))}), one entry per "
                f"output, got {shape}; pass as many. A parameter with axes, used inside of a "
                f"network, makes outputs: pass it as an input, such as dist.Delta(parameter)"
            )
        found: Array = super().log_prob(value)
        return found

    @property
    def support(self) -> constraints.Constraint:
        """The support of the base along all event axes."""
        return support_of_event(self.base_dist.support, self.reinterpreted_batch_ndims)
