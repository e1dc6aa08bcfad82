"""The law of independent random inputs, joined to one vector."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from nn_uq_dist.basics import _checks
from nn_uq_dist.basics._pytree import register_frozen
from nn_uq_dist.basics._row_algebra import namespace
from nn_uq_dist.inputs._abstract_input_law import AbstractInputLaw
from nn_uq_dist.inputs._joined_columns import joined_columns, joined_or_zero


@register_frozen
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class InputBlocks(AbstractInputLaw):
    """Law of independent random inputs joined to one vector, in the order given.

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
        batch_shape = _checks.broadcast_shapes(
            "the batch shapes of the parts must broadcast",
            **{f"part {i}": part.batch_shape for i, part in enumerate(parts)},
        )
        dtype = _checks.float_dtype(*(part.loc for part in parts))
        expanded = tuple(part.expand(batch_shape) for part in parts)
        loc = jnp.concatenate([part.loc.astype(dtype) for part in expanded], axis=-1)
        object.__setattr__(self, "loc", loc)
        object.__setattr__(self, "parts", expanded)

    def columns(self, jacobian: Array) -> tuple[Array | None, Array | None]:
        """Columns of all parts, side by side."""
        return joined_columns(
            part.columns(jacobian[..., start:stop]) for part, start, stop in self._placed
        )

    @property
    def variance(self) -> Array:
        """Variances of the parts, one after the other."""
        return self._concatenated([part.variance for part in self.parts])

    @property
    def covariance(self) -> Array:
        """Covariance matrices of the parts along the diagonal."""
        xp: Any = namespace(self.loc)
        rows = []
        for part, start, stop in self._placed:
            block = part.covariance
            around = (*block.shape[:-1], start), (*block.shape[:-1], self.num_inputs - stop)
            before, after = (xp.zeros(shape, block.dtype) for shape in around)
            rows.append(xp.concatenate([before, block, after], axis=-1))
        matrix: Array = xp.concatenate(rows, axis=-2)
        return matrix

    @property
    def half_range(self) -> Array | None:
        """Half-ranges of the uniform parts, zero where a part has none; None without any."""
        return self._or_zero([part.half_range for part in self.parts])

    @property
    def normal_scale(self) -> Array | None:
        """Standard deviations of the Gaussian parts, zero where there is none; None without any."""
        return self._or_zero([part.normal_scale for part in self.parts])

    @property
    def has_independent_entries(self) -> bool:
        """Whether the entries of each part are independent; of known values only."""
        return all(part.has_independent_entries for part in self.parts)

    def sample_deviation(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw ``f - loc``, each part with a key of its own."""
        keys = jax.random.split(_checks.as_key("key", key), len(self.parts))
        return self._concatenated(
            [
                part.sample_deviation(part_key, sample_shape)
                for part, part_key in zip(self.parts, keys, strict=True)
            ]
        )

    @property
    def num_standard_variables(self) -> tuple[int, int]:
        """Numbers of uniform and of normal variables of all parts together."""
        return sum_of_variables(self.parts)

    def deviation_at(self, uniform: Array, normal: Array) -> Array:
        """Deviations of the parts at given values of the standard variables."""
        found = [
            part.deviation_at(one, other)
            for part, one, other in of_each_part(self.parts, uniform, normal)
        ]
        shape = np.broadcast_shapes(*(part.shape[:-1] for part in found))
        return self._concatenated(
            [jnp.broadcast_to(part, (*shape, part.shape[-1])) for part in found]
        )

    def _concatenated(self, vectors: list[Array]) -> Array:
        together: Array = namespace(*vectors).concatenate(vectors, axis=-1)
        return together

    def _or_zero(self, found: list[Array | None]) -> Array | None:
        return joined_or_zero(found, [part.loc for part in self.parts])

    @property
    def _placed(self) -> list[tuple[AbstractInputLaw, int, int]]:
        """Each part with the ends of its place in the vector."""
        ends = np.cumsum([0, *(part.num_inputs for part in self.parts)]).tolist()
        return list(zip(self.parts, ends[:-1], ends[1:], strict=True))

    @property
    def _description(self) -> str:
        return f"{len(self.parts)} parts"


def sum_of_variables(parts: tuple[AbstractInputLaw, ...]) -> tuple[int, int]:
    """Numbers of uniform and of normal variables of all parts."""
    uniform, normal = zip(*(part.num_standard_variables for part in parts), strict=True)
    return sum(uniform), sum(normal)


def of_each_part(
    parts: tuple[AbstractInputLaw, ...], uniform: Array, normal: Array
) -> list[tuple[AbstractInputLaw, Array, Array]]:
    """Each part with the values of its own standard variables."""
    found, first, second = [], 0, 0
    for part in parts:
        counts = part.num_standard_variables
        ends = first + counts[0], second + counts[1]
        found.append((part, uniform[..., first : ends[0]], normal[..., second : ends[1]]))
        first, second = ends
    return found
