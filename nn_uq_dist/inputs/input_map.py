"""From the vector of a random input to the pytree that a network takes, and names of its numbers.

Names come from the keys of dicts and of trees, and from positions in lists and arrays.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import transforms

from nn_uq_dist.basics.checks import is_concrete
from nn_uq_dist.basics.family_moments import mean_and_standard_deviation
from nn_uq_dist.basics.normal_scores import from_normal_score
from nn_uq_dist.basics.pytree import register_frozen
from nn_uq_dist.basics.row_algebra import namespace
from nn_uq_dist.inputs.parameter_checks import warn_of_rounding

type Step = Callable[[Array], Array]
type Shape = tuple[int, ...]


@register_frozen
@dataclasses.dataclass(frozen=True, eq=False)
class FromNormalScores:
    """Values of a univariate family at the entries of an array of normal scores.

    Attributes
    ----------
    family
        With parameters of the shape of the array.
    mean, standard_deviation
        Of the family, of the same shape; infinite where there are none.
    """

    family: Any
    mean: Array
    standard_deviation: Array

    @classmethod
    def of(cls, family: Any, each: Any, shape: Shape) -> Self:
        """Scores of a family; `each` is the family with parameters of this shape."""
        mean, sd = (jnp.broadcast_to(part, shape) for part in mean_and_standard_deviation(family))
        if is_concrete(mean, sd):
            warn_of_rounding(np.asarray(mean), np.asarray(sd))
        return cls(each, mean, sd)

    def __call__(self, x: Array) -> Array:
        """Quantiles of the family at the probabilities of the scores."""
        return from_normal_score(self.family, x)

    @property
    def of_same_moments(self) -> Step:
        """The linear map to values of the same mean and standard deviation."""
        return transforms.AffineTransform(self.mean, self.standard_deviation)


@register_frozen
@dataclasses.dataclass(frozen=True, eq=False)
class Known:
    """A known value, whatever the vector is."""

    value: Array

    def __call__(self, x: Array) -> Array:
        """Return the value."""
        del x
        return self.value


# Linear in their argument: a linear network of what they make is linear in the vector.
LINEAR = (
    Known,
    transforms.IdentityTransform,
    transforms.AffineTransform,
    transforms.LowerCholeskyAffine,
    transforms.PermuteTransform,
    transforms.ReshapeTransform,
    transforms.RecursiveLinearTransform,
    transforms.ZeroSumTransform,
)


@register_frozen
@dataclasses.dataclass(frozen=True, eq=False)
class InputMap:
    """A pytree of what steps make of consecutive pieces of a vector: what a network takes.

    A step is a callable pytree, such as a transform of NumPyro. Its arrays have the batch shape of
    the input in front, and are mapped over it.

    Attributes
    ----------
    steps
        Those of each piece, one after the other.
    sizes
        Of the pieces; 0 for known parts.
    tree
        The structure; that of a leaf for one array.
    """

    steps: tuple[tuple[Step, ...], ...]
    sizes: tuple[int, ...] = dataclasses.field(metadata={"static": True})
    tree: Any = dataclasses.field(metadata={"static": True})

    @classmethod
    def of_array(cls, size: int, *steps: Step) -> Self:
        """Return the map to the one array that steps make of a vector."""
        return cls((steps,), (size,), jax.tree.structure(0))

    @classmethod
    def of_parts(cls, tree: Any, maps: "Sequence[InputMap]") -> Self:
        """Return the map to a structure with what each map makes in place of a leaf."""
        leaves = [jax.tree.unflatten(part.tree, part.sizes) for part in maps]
        steps = itertools.chain.from_iterable(part.steps for part in maps)
        sizes = itertools.chain.from_iterable(part.sizes for part in maps)
        tree = jax.tree.structure(jax.tree.unflatten(tree, leaves))
        return cls(tuple(steps), tuple(sizes), tree)

    def __call__(self, x: Array) -> Any:
        """Cut the vector and map the pieces."""
        pieces = zip(self.steps, cut(x, [(size,) for size in self.sizes]), strict=True)
        leaves = [reduce(lambda value, step: step(value), steps, piece) for steps, piece in pieces]
        return jax.tree.unflatten(self.tree, leaves)

    def at(self, x: Array, batch_shape: Shape) -> Any:
        """What the map makes of vectors, shape ``(..., *batch_shape, N_x)``.

        A map without arrays is one for the whole batch, and takes vectors of shape ``(..., N_x)``.
        """
        size = sum(self.sizes)
        shape = (*batch_shape, size) if jax.tree.leaves(self) else (size,)
        lead = x.ndim - len(shape)
        if lead < 0 or x.shape[lead:] != shape:
            raise ValueError(
                f"x must have shape (..., {', '.join(map(str, shape))}), got shape {x.shape}; pass "
                f"draws of sample, or the mean"
            )
        at_one: Callable[..., Any] = InputMap.__call__
        for _ in shape[:-1]:
            at_one = jax.vmap(at_one)
        for _ in range(lead):
            at_one = jax.vmap(at_one, in_axes=(None, 0))
        return at_one(self, x)

    @property
    def is_transformed(self) -> bool:
        """Whether the map is nonlinear."""
        return any(map(_bends, self.steps))

    @property
    def of_same_moments(self) -> Self:
        """The map with each family replaced by a linear function of its normal score."""
        steps = [[getattr(step, "of_same_moments", step) for step in each] for each in self.steps]
        return dataclasses.replace(self, steps=tuple(map(tuple, steps)))

    def require_variance(self) -> None:
        """Raise ``ValueError`` if a known family has no finite variance."""
        for name, steps in zip(names_of_leaves(self.tree, "f"), self.steps, strict=True):
            for step in steps:
                if not isinstance(step, FromNormalScores):
                    continue
                if not np.isfinite(np.asarray(step.standard_deviation)).all():
                    raise ValueError(
                        f"{name} must have a finite variance to be linearized, got "
                        f"{type(step.family).__name__}, which has none, or one that "
                        f"{step.standard_deviation.dtype} cannot hold or that lies in its farthest "
                        f"tail; truncate it to what it can be, change the units, or draw from it "
                        f"with monte_carlo"
                    )

    @property
    def names_of_shapes(self) -> tuple[list[str], list[str]]:
        """Names of the parts whose moments a linear model has, and of other nonlinear parts."""
        shaped, bent = [], []
        for name, steps in zip(names_of_leaves(self.tree, "f"), self.steps, strict=True):
            others = tuple(step for step in steps if not hasattr(step, "of_same_moments"))
            if _bends(others):
                bent.append(name)
            elif len(others) < len(steps):
                shaped.append(name)
        return shaped, bent

    @property
    def words(self) -> str:
        """What the map makes, for a `repr`."""
        if jax.tree_util.treedef_is_leaf(self.tree):
            kinds = [type(getattr(step, "family", step)).__name__ for step in self.steps[0]]
            return " then ".join(kinds)
        known = self.sizes.count(0)
        bent = sum(map(_bends, self.steps))
        counts = {"random parts": len(self.sizes) - known, "transformed": bent, "known": known}
        return ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)

    def names(self, shapes: Iterable[Shape], *, taken: bool) -> list[str]:
        """Names of the random numbers of the vector, or of those that the network takes.

        Parameters
        ----------
        shapes
            Of the arrays that the network takes.
        taken
            Whether to name the numbers in these, and not those of the vector.
        """
        names: list[str] = []
        leaves = names_of_leaves(self.tree, "f")
        for name, shape, size in zip(leaves, shapes, self.sizes, strict=True):
            # Where a step makes more or fewer numbers, those of the vector have names by position.
            is_same = taken or math.prod(shape) == size
            names += names_of_entries(name, shape if is_same else (size,)) if size else []
        return names

    def taken(self, value: Any, lead: Shape) -> Array:
        """The random numbers of what the network takes, as vectors with these leading axes."""
        leaves = zip(jax.tree.leaves(value), self.sizes, strict=True)
        return jnp.concatenate([leaf.reshape(*lead, -1) for leaf, size in leaves if size], axis=-1)

    def structured(self, numbers: Any, shapes: Sequence[Shape], *, is_spread: bool) -> Any:
        """The inverse of `taken`, with the known arrays put in.

        Parameters
        ----------
        numbers
            Shape ``(..., n)``.
        shapes
            Of the arrays that the network takes.
        is_spread
            Whether the numbers are standard deviations, which are zero for known arrays.
        """
        random = iter(cut(numbers, itertools.compress(shapes, self.sizes)))
        leaves = []
        for steps, size, shape in zip(self.steps, self.sizes, shapes, strict=True):
            if size:
                leaves.append(next(random))
            else:
                known: Any = numbers.dtype.type(0) if is_spread else steps[0]
                value = known if is_spread else known.value
                wide = (*numbers.shape[:-1], *shape)
                leaves.append(namespace(numbers).broadcast_to(value, wide))
        return jax.tree.unflatten(self.tree, leaves)


def _bends(steps: tuple[Step, ...]) -> bool:
    return not all(isinstance(step, LINEAR) for step in steps)


def cut(values: Any, shapes: Iterable[Shape]) -> list[Any]:
    """Consecutive entries of vectors as arrays of these shapes, leading axes in front."""
    parts, end = [], 0
    for shape in shapes:
        start, end = end, end + math.prod(shape)
        parts.append(values[..., start:end].reshape(values.shape[:-1] + shape))
    return parts


def names_of_leaves(tree: Any, letter: str) -> list[str]:
    """A name for each leaf: its keys joined by dots, indices in brackets; `letter` without keys."""
    names = []
    for path, _ in jax.tree.leaves_with_path(jax.tree.unflatten(tree, range(tree.num_leaves))):
        name = ""
        for key in path:
            if isinstance(key, jax.tree_util.SequenceKey | jax.tree_util.FlattenedIndexKey):
                name = f"{name or letter}[{getattr(key, 'idx', getattr(key, 'key', None))}]"
            else:
                word = str(getattr(key, "name", getattr(key, "key", key)))
                name = f"{name}.{word}" if name else word
        names.append(name or letter)
    return names


def names_of_entries(name: str, shape: Shape) -> list[str]:
    """A name for each number of an array, last axis fastest."""
    return [f"{name}[{','.join(map(str, at))}]" if at else name for at in np.ndindex(*shape)]
