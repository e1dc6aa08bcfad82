"""The law of a sum of independent random inputs."""

import dataclasses

import jax
from jax import Array
from numpyro.distributions import Distribution

from nn_uq_dist.basics import _checks
from nn_uq_dist.basics._one_program import one_program
from nn_uq_dist.basics._pytree import register_frozen
from nn_uq_dist.basics._row_algebra import namespace, norm
from nn_uq_dist.inputs._abstract_input_law import AbstractInputLaw
from nn_uq_dist.inputs._as_input_law import as_input_law
from nn_uq_dist.inputs._input_blocks import of_each_part, sum_of_variables
from nn_uq_dist.inputs._joined_columns import joined_columns, total


@register_frozen
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class InputSum(AbstractInputLaw):
    r"""Law of a sum :math:`f = f_1 + f_2 + \dots` of independent random inputs.

    The entries of the sum have triangular laws for two equal boxes, trapezoidal ones for two
    different boxes, and nearly normal ones with a bounded support for many boxes. Only the number
    of columns grows with the number of parts.

    Parameters
    ----------
    *parts
        Two or more laws of ``N_x`` inputs: NumPyro distributions over vectors (see `as_input_law`)
        or input laws. Batch shapes broadcast.

    Raises
    ------
    TypeError
        If the family of a part is not supported, or a part is transformed or is not over vectors.
    ValueError
        If there are no parts, or their numbers of inputs or batch shapes do not fit.

    Examples
    --------
    Two independent uniforms on (-1, 1) in each coordinate:

    >>> import jax.numpy as jnp
    >>> import nn_uq_dist as nuq
    >>> box = nuq.InputLaw([0.0, 0.0], half_width=1.0)
    >>> law = nuq.inputs.InputSum(box, box)
    >>> print(law.half_range, f"{law.variance[0]:.3f}")
    [2. 2.] 0.667
    >>> density = jnp.exp(nuq.linearize(lambda x: x[:1], law).marginals().log_prob(jnp.zeros(1)))
    >>> print(f"{density[0]:.4f}")
    0.5000
    """

    loc: Array
    parts: tuple[AbstractInputLaw, ...]

    def __init__(self, *parts: Distribution | AbstractInputLaw) -> None:
        if not parts:
            raise ValueError("InputSum must have parts, got none; pass two or more laws")
        laws = [as_input_law(part) for part in parts]
        for law in laws:
            if not law.is_vector:
                raise TypeError(
                    f"the parts of an InputSum must be laws of the vector that the network takes, "
                    f"got {law!r}; pass the sum of the vectors that are mapped to as_input_law"
                )
        sizes = [law.num_inputs for law in laws]
        if len(set(sizes)) > 1:
            raise ValueError(
                f"the parts of an InputSum must have the same number of inputs, got {sizes}; "
                f"pass laws of the same vector"
            )
        batch_shape = _checks.broadcast_shapes(
            "the batch shapes of the parts must broadcast",
            **{f"part {i}": law.batch_shape for i, law in enumerate(laws)},
        )
        expanded = tuple(law.expand(batch_shape) for law in laws)
        object.__setattr__(self, "loc", total([law.loc for law in expanded]))
        object.__setattr__(self, "parts", expanded)

    def columns(self, jacobian: Array) -> tuple[Array | None, Array | None]:
        """Columns of all parts, side by side."""
        return joined_columns(part.columns(jacobian) for part in self.parts)

    @property
    def variance(self) -> Array:
        """Sum of the variances of the parts."""
        return total([part.variance for part in self.parts])

    @property
    def covariance(self) -> Array:
        """Sum of the covariance matrices of the parts."""
        return total([part.covariance for part in self.parts])

    @property
    def half_range(self) -> Array | None:
        """Sum of the half-ranges of the parts, or ``None``."""
        found = [part.half_range for part in self.parts]
        given = [half_range for half_range in found if half_range is not None]
        return total(given) if given else None

    @property
    def normal_scale(self) -> Array | None:
        """Standard deviation of the Gaussian part of each input, or ``None``."""
        found = [part.normal_scale for part in self.parts]
        given = [scale for scale in found if scale is not None]
        return one_program(norm, namespace(*given).stack(given, axis=-1)) if given else None

    @property
    def has_independent_entries(self) -> bool:
        """Whether the entries of each part are independent."""
        return all(part.has_independent_entries for part in self.parts)

    def sample_deviation(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw ``f - loc``, each part with a key of its own."""
        keys = jax.random.split(_checks.as_key("key", key), len(self.parts))
        return total(
            [
                part.sample_deviation(k, sample_shape)
                for part, k in zip(self.parts, keys, strict=True)
            ]
        )

    @property
    def num_standard_variables(self) -> tuple[int, int]:
        """Numbers of uniform and of normal variables of all parts together."""
        return sum_of_variables(self.parts)

    def deviation_at(self, uniform: Array, normal: Array) -> Array:
        """Sum of the deviations of the parts at given values of the standard variables."""
        each = of_each_part(self.parts, uniform, normal)
        return total(part.deviation_at(one, other) for part, one, other in each)

    @property
    def _description(self) -> str:
        return f"{len(self.parts)} terms"
