"""Sums of independent random inputs; triangular and trapezoidal ones, sums of two uniform ones."""

import dataclasses

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from numpyro.distributions import Distribution

from nn_uq_dist.basics import _checks
from nn_uq_dist.basics._pytree import register_frozen
from nn_uq_dist.inputs._abstract_input_law import AbstractInputLaw
from nn_uq_dist.inputs._as_input_law import as_input_law
from nn_uq_dist.inputs._input_blocks import JoinedInput
from nn_uq_dist.inputs._input_law import InputLaw

# Ends that were rounded each by itself are still symmetric.
_ROUNDINGS = 8


@register_frozen
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class InputSum(JoinedInput):
    r"""Distribution of a sum :math:`f = f_1 + f_2 + \dots` of independent random inputs.

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
                    f"got {law!r}; pass each part by itself, InputSum(first, second), or of mapped "
                    f"inputs the sum of the vectors that are mapped"
                )
        sizes = [law.num_inputs for law in laws]
        if len(set(sizes)) > 1:
            raise ValueError(
                f"the parts of an InputSum must have the same number of inputs, got {sizes}; "
                f"pass laws of the same vector"
            )
        self._join(laws)

    @property
    def starts(self) -> tuple[int, ...]:
        """All from the first input on."""
        return (0,) * len(self.parts)

    @property
    def _description(self) -> str:
        return f"{len(self.parts)} terms"


def triangular(low: ArrayLike, high: ArrayLike, mode: ArrayLike | None = None) -> InputSum:
    r"""Distribution of independent inputs with symmetric triangular densities.

    Each input is the sum of two independent uniform variables on intervals of half its width. This
    is exact, and takes two columns for each input.

    Parameters
    ----------
    low, high
        Ends of the supports, shape ``(..., N_x)``; one of them may be a scalar.
    mode
        Where the density is largest: the middle, which is also the default.

    Returns
    -------
    InputSum

    Raises
    ------
    TypeError
        If an argument is not an array of real numbers.
    ValueError
        If `low` is known to be above `high`, or `mode` not to be the middle. Under ``jit`` these
        give NaN.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import nn_uq_dist as nuq
    >>> f = nuq.inputs.triangular(jnp.array([-1.0, 0.0]), jnp.array([1.0, 4.0]))
    >>> law = nuq.linearize(lambda x: x, f).marginals()
    >>> print(f.mean, jnp.exp(law.log_prob(f.mean)))
    [0. 2.] [1.  0.5]
    """
    given = {"low": low, "high": high} | ({} if mode is None else {"mode": mode})
    ends = _ends(given)
    top = (ends[0] + ends[1]) / 2 if mode is None else ends[2]
    return _sum_of_two("mode", "triangular", ends[0], top, top, ends[1])


def trapezoidal(low: ArrayLike, start: ArrayLike, stop: ArrayLike, high: ArrayLike) -> InputSum:
    r"""Distribution of independent inputs with symmetric trapezoidal densities.

    Each input is the sum of two independent uniform variables of half-widths
    :math:`(b - a \pm (d - c)) / 4` for the support :math:`(a, b)` and the flat top
    :math:`(c, d)`. This is exact, and takes two columns for each input.

    Parameters
    ----------
    low, start, stop, high
        Ends of the supports and of the flat tops, in this order, shape ``(..., N_x)``; scalars and
        other axes broadcast. ``start - low`` must be ``high - stop``.

    Returns
    -------
    InputSum

    Raises
    ------
    TypeError
        If an argument is not an array of real numbers.
    ValueError
        If known values are not in order, or not symmetric. Under ``jit`` these give NaN.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import nn_uq_dist as nuq
    >>> f = nuq.inputs.trapezoidal(jnp.array([0.0]), 1.0, 3.0, 4.0)
    >>> law = nuq.linearize(lambda x: x, f).marginals()
    >>> print([f"{value:.4f}" for value in jnp.exp(law.log_prob(jnp.array([[0.5], [2.0]])))[:, 0]])
    ['0.1667', '0.3333']
    """
    ends = _ends({"low": low, "start": start, "stop": stop, "high": high})
    return _sum_of_two("start and stop", "trapezoidal", *ends)


def _ends(given: dict[str, ArrayLike]) -> list[Array]:
    """Ends of one shape and type, finite where they are known."""
    names = {name: _checks.as_numeric(name, value) for name, value in given.items()}
    shape = _checks.broadcast_shapes(
        f"{', '.join(names)} must broadcast to (..., N_x)",
        **{name: np.shape(value) for name, value in names.items()},
    )
    if not shape:
        raise ValueError(
            f"{', '.join(names)} must have shape (..., N_x), got scalars; pass arrays with an "
            f"entry per input, such as jnp.array([low])"
        )
    for name, value in names.items():
        _checks.require_finite(name, value)
    dtype = _checks.float_dtype(*names.values())
    return [jnp.broadcast_to(jnp.asarray(value, dtype), shape) for value in names.values()]


def _sum_of_two(
    what: str, kind: str, low: Array, start: Array, stop: Array, high: Array
) -> InputSum:
    ends = (low, start, stop, high)
    decreasing = (start < low) | (stop < start) | (high < stop)
    largest = jnp.maximum(jnp.abs(low), jnp.abs(high))
    rounding = _ROUNDINGS * jnp.finfo(low.dtype).eps * largest
    bent = jnp.abs((start - low) - (high - stop)) > rounding
    _require_none(
        decreasing,
        ends,
        f"the ends of a {kind} law must not decrease",
        f"; pass low below high, with {what} between them",
    )
    _require_none(
        bent,
        ends,
        f"a {kind} law must be symmetric",
        f": only then is it a sum of two uniform ones; put {what} in the middle, or give a NumPyro "
        f"distribution with icdf of your own, which is linearized by its normal score, or only "
        f"sample for monte_carlo",
    )
    # A top that rounding makes wider than the support is as wide.
    width = high - low
    top = jnp.where(decreasing | bent, jnp.nan, jnp.minimum(stop - start, width))
    box = InputLaw((low + high) / 2, (width + top) / 4)
    return InputSum(box, InputLaw(jnp.zeros_like(low), (width - top) / 4))


def _require_none(wrong: Array, ends: tuple[Array, ...], expected: str, remedy: str) -> None:
    """Raise ``ValueError`` for known ends where something is wrong with them."""
    if _checks.is_concrete(wrong) and wrong.any():
        at = _checks.first_index(np.asarray(wrong))
        values = [float(end[at]) for end in ends]
        raise ValueError(f"{expected}, got {values} at index {at}{remedy}")
