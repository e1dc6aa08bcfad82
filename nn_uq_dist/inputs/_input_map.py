"""The map from the vector of a random input to what the network is called with.

Pieces of the vector are the arrays of a pytree; each goes through steps, one after the other. A
step is a callable pytree, such as a transform of NumPyro. Its arrays have the batch shape of the
input in front, and are mapped over it.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import transforms

from nn_uq_dist.basics.normal_scores import from_normal_score
from nn_uq_dist.basics.pytree import register_frozen
from nn_uq_dist.inputs.structure import names_of_entries, names_of_leaves

type Step = Callable[[Array], Array]
type Steps = tuple[Step, ...]
type Shape = tuple[int, ...]


@register_frozen
@dataclasses.dataclass(frozen=True, eq=False)
class FromNormalScores:
    """Values of a univariate family at the entries of an array of normal scores."""

    family: dist.Distribution  # parameters of the shape of the array

    def __call__(self, x: Array) -> Array:
        """Quantiles of the family at the probabilities of the scores."""
        return from_normal_score(self.family, x)


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
_LINEAR = (
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
    """A pytree of what steps make of consecutive pieces of a vector.

    Attributes
    ----------
    steps
        Those of each piece.
    sizes
        Of the pieces; 0 for known parts.
    tree
        The structure; that of a leaf for one array.
    """

    steps: tuple[Steps, ...]
    sizes: tuple[int, ...] = dataclasses.field(metadata={"static": True})
    tree: Any = dataclasses.field(metadata={"static": True})

    def __call__(self, x: Array) -> Any:
        """Cut the vector and map the pieces."""
        leaves, end = [], 0
        for steps, size in zip(self.steps, self.sizes, strict=True):
            end += size
            leaves.append(reduce(lambda value, step: step(value), steps, x[end - size : end]))
        return jax.tree.unflatten(self.tree, leaves)

    def at(self, x: Array, batch_shape: Shape) -> Any:
        """What the map makes of vectors, shape ``(..., *batch_shape, N_x)``.

        A map without arrays is one for the whole batch, and takes vectors of shape ``(..., N_x)``.
        """
        size = sum(self.sizes)
        own = batch_shape if jax.tree.leaves(self) else ()
        if x.shape[-1:] != (size,) or x.shape[x.ndim - 1 - len(own) : -1] != own:
            raise ValueError(
                f"x must have shape (..., {', '.join(map(str, (*own, size)))}), got shape "
                f"{x.shape}; pass draws of sample, or the mean"
            )

        def at_one(of_input: InputMap, one: Array) -> Any:
            return of_input(one)

        for _ in own:
            at_one = jax.vmap(at_one)
        for _ in range(x.ndim - 1 - len(own)):
            at_one = jax.vmap(at_one, in_axes=(None, 0))
        return at_one(self, x)

    @property
    def is_transformed(self) -> bool:
        """Whether the map is nonlinear."""
        return any(map(_bends, self.steps))

    @property
    def words(self) -> str:
        """What the map makes, for a `repr`."""
        if jax.tree_util.treedef_is_leaf(self.tree):
            return " then ".join(
                type(getattr(step, "family", step)).__name__ for step in self.steps[0]
            )
        known = self.sizes.count(0)
        bent = sum(map(_bends, self.steps))
        counts = {"random parts": len(self.sizes) - known, "transformed": bent, "known": known}
        return ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)

    def names(self, shapes: list[Shape], *, taken: bool) -> list[str]:
        """Names of the random numbers of the vector, or of those that the network takes.

        Parameters
        ----------
        shapes
            Of the arrays that the network takes.
        taken
            Whether to name the numbers in these, and not those of the vector.
        """
        parts = zip(names_of_leaves(self.tree, "f"), shapes, self.sizes, strict=True)
        return list(
            itertools.chain.from_iterable(
                names_of_entries(name, shape, None if taken else size)
                for name, shape, size in parts
                if size
            )
        )

    def taken(self, value: Any, lead: Shape) -> Array:
        """The random numbers of what the network takes, as vectors with these leading axes."""
        leaves = zip(jax.tree.leaves(value), self.sizes, strict=True)
        return jnp.concatenate([leaf.reshape(*lead, -1) for leaf, size in leaves if size], axis=-1)

    def structured(self, numbers: Any, shapes: list[Shape], *, is_spread: bool) -> Any:
        """The inverse of `taken`: known parts are their values, and their spread is zero.

        Parameters
        ----------
        numbers
            Shape ``(..., n)``.
        shapes
            Of the arrays that the network takes.
        is_spread
            Whether the numbers are standard deviations.
        """
        xp: Any = np if isinstance(numbers, np.ndarray) else jnp
        lead, leaves, end = numbers.shape[:-1], [], 0
        for steps, shape in zip(self.steps, shapes, strict=True):
            if steps and isinstance(steps[0], Known):
                part = numbers.dtype.type(0) if is_spread else steps[0].value
                leaves.append(xp.broadcast_to(part, lead + shape))
            else:
                start, end = end, end + math.prod(shape)
                leaves.append(numbers[..., start:end].reshape(lead + shape))
        return jax.tree.unflatten(self.tree, leaves)


def _bends(steps: Steps) -> bool:
    return not all(isinstance(step, _LINEAR) for step in steps)
