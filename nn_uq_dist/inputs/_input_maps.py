"""Maps from the vector of numbers of an input law to what the network is called with.

Each is a frozen pytree, called with one vector ``(n,)``. Its arrays have the batch shape of the law
in front and are mapped over it by `MappedInput`. `is_transformed` tells maps that bend from those
that only rearrange.
"""

import dataclasses
import math
from typing import Any, Protocol

import jax
import numpyro.distributions as dist
from jax import Array

from nn_uq_dist.basics._normal_scores import from_normal_score
from nn_uq_dist.basics._pytree import register_frozen

type Transform = Any  # of NumPyro

# Linear in their argument: a linear network of what they make is linear in the vector.
_LINEAR = (
    dist.transforms.IdentityTransform,
    dist.transforms.AffineTransform,
    dist.transforms.LowerCholeskyAffine,
    dist.transforms.PermuteTransform,
    dist.transforms.ReshapeTransform,
    dist.transforms.RecursiveLinearTransform,
    dist.transforms.ZeroSumTransform,
)


class InputMap(Protocol):
    """What all maps have."""

    @property
    def is_transformed(self) -> bool:
        """Whether the map is nonlinear."""

    @property
    def words(self) -> str:
        """What the map makes, for a `repr`."""

    def __call__(self, x: Array) -> Any:
        """Return what the network takes for one vector."""


@register_frozen
@dataclasses.dataclass(frozen=True, eq=False)
class ToShape:
    """The vector as an array of another shape."""

    shape: tuple[int, ...] = dataclasses.field(metadata={"static": True})
    is_transformed = False

    @property
    def words(self) -> str:
        """The shape."""
        return f"shape {self.shape}"

    def __call__(self, x: Array) -> Array:
        """Reshape, last axis fastest."""
        return x.reshape(self.shape)


@register_frozen
@dataclasses.dataclass(frozen=True, eq=False)
class FromNormalScores:
    """Values of a univariate family at the entries of an array of normal scores."""

    inner: InputMap
    family: dist.Distribution  # parameters of the shape of the array
    is_transformed = True

    @property
    def words(self) -> str:
        """The family."""
        return f"{type(self.family).__name__} at normal scores"

    def __call__(self, x: Array) -> Array:
        """Quantiles of the family at the probabilities of the scores."""
        return from_normal_score(self.family, self.inner(x))


@register_frozen
@dataclasses.dataclass(frozen=True, eq=False)
class Transformed:
    """Transforms of NumPyro, one after the other."""

    inner: InputMap
    transforms: tuple[Transform, ...]

    @property
    def is_transformed(self) -> bool:
        """Whether one of them is nonlinear."""
        bends = any(not isinstance(transform, _LINEAR) for transform in self.transforms)
        return self.inner.is_transformed or bends

    @property
    def words(self) -> str:
        """Names of the transforms."""
        inner = [self.inner.words] if self.inner.is_transformed else []
        return " then ".join([*inner, *(type(t).__name__ for t in self.transforms)])

    def __call__(self, x: Array) -> Array:
        """Apply them to what the inner map gives."""
        value = self.inner(x)
        for transform in self.transforms:
            value = transform(value)
        return value


@register_frozen
@dataclasses.dataclass(frozen=True, eq=False)
class ToStructure:
    """A pytree of what several maps make of consecutive pieces, and of known values."""

    maps: tuple[InputMap, ...]
    known: tuple[Array, ...]
    sizes: tuple[int, ...] = dataclasses.field(metadata={"static": True})
    is_known: tuple[bool, ...] = dataclasses.field(metadata={"static": True})
    tree: Any = dataclasses.field(metadata={"static": True})

    @property
    def is_transformed(self) -> bool:
        """Whether a piece is."""
        return any(of_piece.is_transformed for of_piece in self.maps)

    @property
    def words(self) -> str:
        """What there is how often."""
        known = f", {len(self.known)} known" if self.known else ""
        bent = sum(of_piece.is_transformed for of_piece in self.maps)
        bent_words = f", {bent} transformed" if bent else ""
        return f"{len(self.maps)} random parts{bent_words}{known}"

    def __call__(self, x: Array) -> Any:
        """Cut the vector, map the pieces, and put known values between them."""
        random, known, start = iter(zip(self.maps, self.sizes, strict=True)), iter(self.known), 0
        leaves = []
        for is_known in self.is_known:
            if is_known:
                leaves.append(next(known))
                continue
            of_piece, size = next(random)
            leaves.append(of_piece(x[start : start + size]))
            start += size
        return jax.tree.unflatten(self.tree, leaves)


def vector_of(size: int) -> ToShape:
    """The map that leaves a vector as it is."""
    return ToShape((size,))


def rearranges_only(of_input: InputMap, size: int) -> bool:
    """Whether a map leaves a vector of this size as it is."""
    return isinstance(of_input, ToShape) and of_input.shape == (size,)


def size_of(shape: tuple[int, ...]) -> int:
    """Numbers in an array of this shape."""
    return math.prod(shape)
