"""Laws of independent parts; of parts that are joined to one vector."""

import abc
import dataclasses
import operator
from collections.abc import Sequence
from functools import reduce

import jax
import numpy as np
from jax import Array

from nn_uq_dist.basics import _checks
from nn_uq_dist.basics._pytree import register_frozen
from nn_uq_dist.inputs._abstract_input_law import AbstractInputLaw
from nn_uq_dist.inputs._terms import InputTerm, layers


class JoinedInput(AbstractInputLaw):
    """Abstract law of independent parts of one batch shape, each from an input of its own on."""

    parts: tuple[AbstractInputLaw, ...]

    @property
    @abc.abstractmethod
    def starts(self) -> tuple[int, ...]:
        """First input of each part."""

    @property
    def terms(self) -> tuple[InputTerm, ...]:
        """Terms of all parts."""
        return tuple(
            dataclasses.replace(term, start=start + term.start)
            for part, start in zip(self.parts, self.starts, strict=True)
            for term in part.terms
        )

    def sample_deviation(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw ``f - loc``, each part with a key of its own."""
        key, sample_shape = _checks.as_sampling(key, sample_shape)
        keys = jax.random.split(key, len(self.parts))
        each = zip(self.parts, keys, strict=True)
        return self._placed([part.sample_deviation(own, sample_shape) for part, own in each])

    def _join(self, parts: Sequence[AbstractInputLaw]) -> None:
        """Set the fields, with parts of one batch shape."""
        batch_shape = _checks.broadcast_shapes(
            "the batch shapes of the parts must broadcast",
            **{f"part {i}": part.batch_shape for i, part in enumerate(parts)},
        )
        object.__setattr__(self, "parts", tuple(part.expand(batch_shape) for part in parts))
        object.__setattr__(self, "loc", self._placed([part.loc for part in self.parts]))

    def _placed(self, values: list[Array]) -> Array:
        """Sum of values of the parts, each in its place."""
        size = self.starts[-1] + self.parts[-1].num_inputs
        return reduce(operator.add, layers(zip(self.starts, values, strict=True), size))


@register_frozen
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class InputBlocks(JoinedInput):
    """Independent random inputs joined to one vector, in the order given.

    Moments, draws and columns are those of the parts, side by side. A matrix of all inputs by all
    inputs is made only if `covariance` is asked for. Dicts and other structures of
    distributions become such blocks by `as_input_law`, which `linearize` calls.

    Parameters
    ----------
    *parts
        Input laws, such as an `InputLaw`; `as_input_law` makes one of a distribution. Batch
        shapes broadcast.

    Raises
    ------
    TypeError
        If a part is not an input law, or is a `MappedInput`.
    ValueError
        If there are no parts, or batch shapes do not broadcast.

    Examples
    --------
    >>> import nn_uq_dist as nuq
    >>> box = nuq.InputLaw([0.0, 1.0], half_width=1.0)
    >>> law = nuq.inputs.InputBlocks(box, nuq.InputLaw([5.0], scale=0.5))
    >>> print(law, law.mean, law.normal_scale)
    InputBlocks(2 parts, num_inputs=3, batch_shape=(), dtype=float32) [0. 1. 5.] [0.  0.  0.5]
    """

    loc: Array
    parts: tuple[AbstractInputLaw, ...]

    def __init__(self, *parts: AbstractInputLaw) -> None:
        if not parts:
            raise ValueError("InputBlocks must have parts, got none; pass one law or more")
        for i, part in enumerate(parts):
            if not isinstance(part, AbstractInputLaw):
                raise TypeError(
                    f"part {i} must be an input law, got {type(part).__name__}; pass "
                    f"nn_uq_dist.inputs.as_input_law(part), or all parts as a list to linearize"
                )
            if not part.is_vector:
                raise TypeError(
                    f"part {i} must be the law of the vector that the network takes, got "
                    f"{part!r}; pass a dict or a list of the parts to as_input_law or linearize"
                )
        self._join(parts)

    @property
    def starts(self) -> tuple[int, ...]:
        """One after the other."""
        return tuple(np.cumsum([0, *(part.num_inputs for part in self.parts[:-1])]).tolist())

    @property
    def _description(self) -> str:
        return f"{len(self.parts)} parts"
