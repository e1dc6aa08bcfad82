"""Axes of distributions: entries of a batch, and supports of vectors and arrays.

Entries are made anew from the arguments of constructors. Every distribution of ours keeps these,
and so do most of NumPyro's. Others that are univariate are made from the leaves of their pytree.
The bounds of supports may depend on other sites of a model.
"""

import inspect
import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.typing import ArrayLike
from numpyro.distributions import constraints
from numpyro.distributions.transforms import IndependentTransform, Transform, biject_to

from nn_uq_dist.basics.pytree import positions


@cache
def constructor_arguments(kind: Any) -> tuple[str, ...]:
    """Names of the arguments of the constructor, which distributions keep as attributes."""
    names = inspect.signature(kind.__init__).parameters
    return tuple(name for name in names if name not in {"self", "validate_args"})


def made[D: dist.Distribution](kind: type[D], arguments: dict[str, Any]) -> D:
    """A distribution with valid arguments, which are not checked again."""
    checks = "validate_args" in inspect.signature(kind.__init__).parameters
    return kind(**arguments, validate_args=False) if checks else kind(**arguments)


def _arguments(distribution: dist.Distribution) -> dict[str, Any]:
    """Arguments of the constructor by name, or the fields of the pytree, where it keeps none.

    Transformed distributions and mixtures of NumPyro keep none.
    """
    kind: Any = type(distribution)
    kept = distribution.__dict__
    names = constructor_arguments(kind)
    if not all(name in kept for name in names):
        names = kind.gather_pytree_data_fields()
    return {name: kept.get(name) for name in names}


def _axes_behind(distribution: dist.Distribution, name: str, leaf: Any) -> int | None:
    """Number of axes of an argument behind those of the batch; None for what has no axes.

    What is no parameter, such as the numbers of a transform, is taken for one for each output.
    """
    if isinstance(leaf, dist.Distribution):
        components = name == "_component_distribution"  # of `MixtureSameFamily`
        return max(distribution.event_dim - leaf.event_dim, 0) + components
    if name in distribution.arg_constraints:
        axes: int = distribution.arg_constraints[name].event_dim
        return axes
    is_array = name in type(distribution).gather_pytree_data_fields()
    return 0 if is_array and not distribution.event_shape else None


def _is_leaf(distribution: dist.Distribution, name: str) -> Callable[[Any], bool]:
    """Whether a node of an argument is a distribution or, also as a list, a parameter."""
    is_parameter = name in distribution.arg_constraints
    return lambda node: isinstance(node, dist.Distribution) or (is_parameter and node is not None)


def shape_of_parameters(distribution: dist.Distribution) -> tuple[int, ...] | None:
    """The batch shape that follows from the parameters; None where these are no arrays.

    JAX also makes distributions of axis numbers, and of objects without a shape.
    """
    if isinstance(distribution, dist.ExpandedDistribution):
        return distribution.batch_shape
    shapes = []
    for name, tree in _arguments(distribution).items():
        for leaf in jax.tree.leaves(tree, is_leaf=_is_leaf(distribution, name)):
            axes = _axes_behind(distribution, name, leaf)
            if axes is None:
                return distribution.batch_shape
            if isinstance(leaf, dist.Distribution):
                shape: Any = leaf.batch_shape
            else:
                shape = () if isinstance(leaf, int | float) else getattr(leaf, "shape", None)
            if not isinstance(shape, tuple) or len(shape) < axes:
                return None
            shapes.append(shape[: len(shape) - axes])
    try:
        return jnp.broadcast_shapes(*shapes)
    except ValueError:  # of parts of NumPyro with axes elsewhere than in front
        return None


def drop_lost_axes(distribution: dist.Distribution) -> None:
    """Take from a distribution of NumPyro those batch axes that its parameters have lost.

    NumPyro keeps the batch shape in a private attribute, and has no way to set it.
    """
    for argument in _arguments(distribution).values():
        for inner in argument if isinstance(argument, list) else [argument]:
            if isinstance(inner, dist.Distribution):
                drop_lost_axes(inner)
    shape = shape_of_parameters(distribution)
    if shape is not None and len(shape) < len(distribution.batch_shape):
        distribution._batch_shape = shape  # noqa: SLF001


def batch_entries(distribution: dist.Distribution, index: Any) -> dist.Distribution:
    """Return the distributions at an index of the batch; ``distribution[index]`` for our own.

    Parameters
    ----------
    distribution : numpyro.distributions.Distribution
        With batch axes.
    index
        Integers, slices, masks and arrays of integers, as for a NumPy array of shape
        ``batch_shape``. Parameters that entries share stay shared.

    Raises
    ------
    IndexError
        If the index does not fit the batch shape.
    TypeError
        If there is no batch, the index is traced, or the distribution is multivariate and does not
        keep the arguments of its constructor, from which it is made anew.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import numpyro.distributions as dist
    >>> import nn_uq_dist as nuq
    >>> distributions = dist.Normal(jnp.array([1.0, 2.0, 3.0]), 1.0)
    >>> print(nuq.distributions.batch_entries(distributions, [2, 0]).mean)
    [3. 1.]
    """
    indexed: Any = distribution
    has_entries = hasattr(type(distribution), "__getitem__")
    return indexed[index] if has_entries else rebuilt_entries(distribution, index)


def rebuilt_entries(distribution: dist.Distribution, index: Any) -> dist.Distribution:
    """The same, made anew from the arguments of the constructor."""
    places = positions(distribution.batch_shape, index)
    entries = _with_entries(distribution, distribution.batch_shape, places)
    return entries.expand(places.shape)


def _with_entries(
    distribution: dist.Distribution,
    batch_shape: tuple[int, ...],
    places: np.ndarray,
    extra: int = 0,
) -> dist.Distribution:
    """A distribution of the same kind with entries of its parameters, as for `_take_entries`.

    ``extra`` is the number of the batch axes of the distribution behind `batch_shape`.
    """
    if isinstance(distribution, dist.ExpandedDistribution):
        return _with_entries(distribution.base_dist, batch_shape, places, extra)
    kind: Any = type(distribution)
    is_made = all(name in distribution.__dict__ for name in constructor_arguments(kind))
    behind = distribution.batch_shape[len(distribution.batch_shape) - extra :]

    def entries_of(name: str, leaf: Any) -> Any:
        axes = _axes_behind(distribution, name, leaf)
        if axes is None:
            if np.ndim(leaf):
                raise _unknown_axes(kind, name)
            return leaf
        if isinstance(leaf, dist.Distribution):
            inner = _with_entries(leaf, batch_shape, places, extra + axes)
            # Draws of what wraps one other distribution have the shape of those of the other.
            wraps = not is_made and leaf.batch_shape == distribution.batch_shape
            return inner.expand((*places.shape, *behind)) if wraps else inner
        return _take_entries(leaf, jnp.ndim(leaf) - axes - extra, batch_shape, places)

    if not is_made and distribution.event_shape:
        raise _unknown_axes(kind, ", ".join(constructor_arguments(kind)))
    arguments = {
        name: jax.tree.map(partial(entries_of, name), tree, is_leaf=_is_leaf(distribution, name))
        for name, tree in _arguments(distribution).items()
    }
    if is_made:
        return made(kind, arguments)
    static = distribution.tree_flatten()[1]
    entries: dist.Distribution = kind.tree_unflatten(static, tuple(arguments.values()))
    entries._batch_shape = (*places.shape, *behind)  # noqa: SLF001 (NumPyro has no way to set it)
    return entries


def _unknown_axes(kind: type, name: str) -> TypeError:
    return TypeError(
        "entries of a batch can be taken of distributions that are univariate or keep the "
        f"arguments of their constructor, got {kind.__name__} with {name}; make it for the wanted "
        "entries, or define its method __getitem__"
    )


def _take_entries(
    argument: Any, lead: int, batch_shape: tuple[int, ...], places: np.ndarray
) -> Any:
    """Entries of a parameter whose first `lead` axes broadcast against the batch axes.

    ``places`` is where the entries are in the flattened batch, in the shape of the result.
    """
    if lead <= 0:
        return argument  # one value for all entries
    shape = jnp.shape(argument)
    rows = np.arange(math.prod(shape[:lead])).reshape(shape[:lead])
    chosen = np.broadcast_to(rows, batch_shape).reshape(-1)[places]
    for axis in range(chosen.ndim):
        start = np.arange(min(chosen.shape[axis], 1))
        first = chosen.take(start, axis)
        # What entries share stays shared; entries that an index repeats are entries of their own.
        if np.all(chosen == first) and not np.all(places == places.take(start, axis)):
            chosen = first
    table = argument.reshape(-1, *shape[lead:])
    if isinstance(table, np.ndarray):
        return table[chosen]
    # Python's indexing of JAX's arrays takes several times longer. An empty table is taken as it
    # is, whatever the index.
    return jnp.take(table, chosen, 0, mode="clip").reshape(*chosen.shape, *shape[lead:])


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

    def feasible_like(self, prototype: ArrayLike) -> Any:
        """Values within the support, of the shape of the prototype."""
        return self.entry.feasible_like(prototype)

    def eq(self, other: object, static: bool = False) -> Any:
        """Whether the other one has the same kind of entries, axes and ends."""
        if not isinstance(other, MovingSupport) or self.num_axes != other.num_axes:
            return False
        return self.entry.eq(other.entry, static=static)

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
    closed = type(constraints.greater_than_eq(0.0)), type(constraints.less_than_eq(0.0))
    is_closed = isinstance(entry, closed)
    if has_low:
        return (constraints.greater_than_eq if is_closed else constraints.greater_than)(low)
    below = constraints.less_than_eq if is_closed else constraints.less_than
    return MovingSupport(below(high), 0) if has_high else constraints.real


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

    def log_prob(self, value: ArrayLike) -> Any:
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
        return super().log_prob(value)

    @property
    def support(self) -> constraints.Constraint:
        """The support of the base along all event axes."""
        return support_of_event(self.base_dist.support, self.reinterpreted_batch_ndims)
