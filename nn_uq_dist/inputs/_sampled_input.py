"""A random input that can only be sampled: any distribution, for Monte Carlo."""

import dataclasses
import math
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array

from nn_uq_dist.basics import _checks
from nn_uq_dist.inputs._abstract_input_law import AbstractInputLaw
from nn_uq_dist.inputs._as_input_law import (
    as_input_law,
    known_value,
    parts_of,
    require_one_for_all,
)
from nn_uq_dist.inputs._distribution_law import UnsupportedFamilyError, require_events


@dataclasses.dataclass(frozen=True, eq=False)
class SampledInput:
    """Distributions in a structure, independent of each other, and known values among them.

    Attributes
    ----------
    parts
        Distributions, input laws and arrays.
    tree
        Structure of the pytree that the network takes.
    batch_shape
        Of all parts together.
    """

    parts: tuple[Any, ...]
    tree: Any
    batch_shape: tuple[int, ...]

    @classmethod
    def of(cls, f: Any) -> Self:
        """Check what is drawn from."""
        named, tree = parts_of(f)
        parts: list[Any] = []
        shapes, arrays = {}, {}
        for name, part in named:
            if not isinstance(part, dist.Distribution | AbstractInputLaw):
                arrays[name] = known_value(name, part)
                parts.append(arrays[name])
                continue
            if isinstance(part, dist.Distribution):
                require_events(name, part)
            parts.append(part)
            shapes[name] = part.batch_shape
        batch_shape = _checks.broadcast_shapes(
            "the batch shapes of the parts of f must broadcast", **shapes
        )
        require_one_for_all(arrays, batch_shape)
        found = cls(tuple(parts), tree, batch_shape)
        try:
            jax.eval_shape(found.draw, jax.random.key(0))
        except (NotImplementedError, AttributeError) as error:
            kinds = ", ".join(type(part).__name__ for _, part in named)
            raise TypeError(
                f"f must have a method sample that works, got {type(error).__name__} from {kinds}; "
                f"pass a distribution that can be drawn from"
            ) from error
        return found

    def draw(self, key: Array) -> Any:
        """One draw, with the batch shape in front of each array."""
        keys = jax.random.split(key, len(self.parts))
        leaves = [self._draw_part(part, k) for part, k in zip(self.parts, keys, strict=True)]
        return jax.tree.unflatten(self.tree, leaves)

    def network_input(self, draws: Any) -> Any:
        """Return draws as they are."""
        return draws

    @property
    def one_input(self) -> Any:
        """Shapes and types of what the network takes."""
        axes = len(self.batch_shape)
        drawn = jax.eval_shape(self.draw, jax.random.key(0))
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[axes:], leaf.dtype), drawn)

    @property
    def num_inputs(self) -> int:
        """Numbers that the network takes."""
        return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(self.one_input))

    def _draw_part(self, part: Any, key: Array) -> Any:
        if isinstance(part, AbstractInputLaw):
            law = part.expand(self.batch_shape)
            return law.network_input(law.sample(key))
        if not isinstance(part, dist.Distribution):
            return jnp.broadcast_to(part, self.batch_shape + part.shape)
        drawn = jnp.asarray(part.sample(key))
        return jnp.broadcast_to(drawn, self.batch_shape + part.event_shape)


def as_drawable(f: object) -> AbstractInputLaw | SampledInput:
    """Return the law of `f`, or what draws from it where it has none that could be linearized."""
    try:
        return as_input_law(f)
    except UnsupportedFamilyError:
        return SampledInput.of(f)
