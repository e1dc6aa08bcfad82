"""The map from the vector of an input law to what the network is called with, and laws with a map.

Pieces of the vector are the arrays of a pytree; each goes through steps, one after the other. A
step is a callable pytree, such as a transform of NumPyro. Its arrays have the batch shape of the
law in front and are mapped over it by `MappedInput`.
"""

import dataclasses
import itertools
from collections.abc import Callable
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import transforms

from nn_uq_dist.basics._normal_scores import from_normal_score
from nn_uq_dist.basics._pytree import register_frozen
from nn_uq_dist.inputs._abstract_input_law import AbstractInputLaw
from nn_uq_dist.inputs._flat_network import OutputStructure
from nn_uq_dist.inputs._names import names_of_entries
from nn_uq_dist.inputs._terms import InputTerm

type Step = Callable[[Array], Array]
type Steps = tuple[Step, ...]


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
        Of the pieces.
    tree
        The structure; that of a leaf for one array.
    """

    steps: tuple[Steps, ...]
    sizes: tuple[int, ...] = dataclasses.field(metadata={"static": True})
    tree: Any = dataclasses.field(metadata={"static": True})

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

    def __call__(self, x: Array) -> Any:
        """Cut the vector and map the pieces."""
        leaves, end = [], 0
        for steps, size in zip(self.steps, self.sizes, strict=True):
            end += size
            leaves.append(reduce(lambda value, step: step(value), steps, x[end - size : end]))
        return jax.tree.unflatten(self.tree, leaves)


def _bends(steps: Steps) -> bool:
    return not all(isinstance(step, _LINEAR) for step in steps)


@register_frozen
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class MappedInput(AbstractInputLaw):
    """Random input of any shape or structure: the distribution of a vector, and a map from it.

    Made by `as_input_law` from distributions over arrays, from dicts and other structures of
    distributions, and from transformed ones. Means, columns and draws are those of the vector,
    whose law is `base`. `network_input` maps the vector to what the network is called with. If the
    map is nonlinear, as for a log-normal input, `is_transformed` is true. Then the map followed by
    the network is linearized, as a function of normal scores or of the base of the transform, and
    the law is no longer exact for a linear network.

    Attributes
    ----------
    base : AbstractInputLaw
        Law of the vector.
    input_map
        The map.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import numpyro.distributions as dist
    >>> import nn_uq_dist as nuq
    >>> f = {"image": dist.Normal(jnp.zeros((2, 2)), 0.1).to_event(2), "gain": jnp.array(3.0)}
    >>> law = nuq.inputs.as_input_law(f)
    >>> law
    MappedInput(InputLaw to 1 random parts, 1 known, num_inputs=4, batch_shape=(), dtype=float32)
    >>> found = law.network_input(law.mean)
    >>> found["image"].shape, float(found["gain"]), law.is_transformed
    ((2, 2), 3.0, False)
    """

    base: AbstractInputLaw
    input_map: InputMap

    @property
    def loc(self) -> Array:  # type: ignore[override]  # a field in other laws
        """Mean of the vector, shape ``batch_shape + (N_x,)``."""
        return self.base.loc

    def network_input(self, x: Array) -> Any:
        """Return what the network is called with: `x`, mapped.

        Parameters and result are those of `AbstractInputLaw.network_input`.

        Raises
        ------
        ValueError
            If the last axis is not ``N_x``, or the map differs over the batch and `x` has no batch
            axes.
        """
        x = jnp.asarray(x)
        batch_shape = self.batch_shape
        own = batch_shape if self.varies_over_batch else ()
        if x.shape[-1:] != (self.num_inputs,) or x.shape[x.ndim - 1 - len(own) : -1] != own:
            raise ValueError(
                f"x must have shape (..., {', '.join(map(str, (*own, self.num_inputs)))}), got "
                f"shape {x.shape}; pass draws of sample, or the mean"
            )

        def at_one(of_input: InputMap, one: Array) -> Any:
            return of_input(one)

        for _ in own:
            at_one = jax.vmap(at_one)
        for _ in range(x.ndim - 1 - len(own)):
            at_one = jax.vmap(at_one, in_axes=(None, 0))
        return at_one(self.input_map, x)

    @property
    def names(self) -> list[str]:
        """Names of the random numbers, in the order of the vector."""
        taken, sizes = self._taken, filter(None, self.input_map.sizes)
        pieces = map(names_of_entries, taken.leaf_names, taken.shapes, sizes)
        return list(itertools.chain.from_iterable(pieces))

    @property
    def taken_names(self) -> list[str]:
        """Names of the numbers of `taken`."""
        return self._taken.names

    def taken(self, x: Array) -> Array:
        """Return the random numbers that the network takes, as vectors: all parts in order."""
        leaves = jax.tree.leaves(self._random.network_input(x))
        return jnp.concatenate([leaf.reshape(*jnp.shape(x)[:-1], -1) for leaf in leaves], axis=-1)

    def structured(self, numbers: Any, *, is_spread: bool = False) -> Any:
        """Return numbers of `taken`, or their spread, as the network takes them.

        Known parts are their values, and their spread is zero.
        """
        xp: Any = np if isinstance(numbers, np.ndarray) else jnp
        own, rank = self.input_map, len(self.batch_shape)

        def filled(part: Any, steps: Steps) -> Any:
            match steps:
                case (Known(value),):
                    shape = (*numbers.shape[:-1], *value.shape[rank:])
                    return xp.broadcast_to(numbers.dtype.type(0) if is_spread else value, shape)
            return part

        parts = own.tree.flatten_up_to(self._taken.unravel(numbers))
        return own.tree.unflatten(map(filled, parts, own.steps))

    @property
    def _random(self) -> "MappedInput":
        """Without the known parts, which are None."""
        own = self.input_map
        steps = tuple(steps for steps, size in zip(own.steps, own.sizes, strict=True) if size)
        tree = jax.tree.structure(own.tree.unflatten(size or None for size in own.sizes))
        return MappedInput(self.base, InputMap(steps, tuple(filter(None, own.sizes)), tree))

    @property
    def _taken(self) -> OutputStructure:
        """Structure of the random parts that the network takes."""
        x = jax.ShapeDtypeStruct(self.loc.shape, self.loc.dtype)
        leaves, tree = jax.tree.flatten(jax.eval_shape(self._random.network_input, x))
        rank = len(self.batch_shape)
        return OutputStructure(tree, tuple(leaf.shape[rank:] for leaf in leaves), "f")

    @property
    def varies_over_batch(self) -> bool:
        """Whether the map has parameters for each element of the batch."""
        return bool(self.batch_shape) and bool(jax.tree.leaves(self.input_map))

    @property
    def is_vector(self) -> bool:
        """False: the network takes what the map makes."""
        return False

    @property
    def is_transformed(self) -> bool:
        """Whether the map is nonlinear, so that not even the law of a linear network is exact."""
        return self.input_map.is_transformed

    @property
    def terms(self) -> tuple[InputTerm, ...]:
        """Those of the base."""
        return self.base.terms

    def sample_deviation(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw the vector less its mean."""
        return self.base.sample_deviation(key, sample_shape)

    @property
    def _description(self) -> str:
        bent = "transformed " if self.is_transformed else ""
        return f"{bent}{type(self.base).__name__} to {self.input_map.words}"
