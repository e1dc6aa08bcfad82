"""The law of a random network input: a box part, a Gaussian part, or both."""

import dataclasses
import math
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from numpyro.distributions import Distribution

from nn_uq_dist.basics import _checks
from nn_uq_dist.basics._compiled_once import broadcast
from nn_uq_dist.basics._known_values import one_program
from nn_uq_dist.basics._pytree import register_frozen
from nn_uq_dist.basics._row_algebra import matvec, namespace
from nn_uq_dist.inputs._abstract_input_law import AbstractInputLaw
from nn_uq_dist.inputs._as_input_law import as_input_law
from nn_uq_dist.inputs._parameter_checks import as_loc, as_scale_tril, as_scales, in_one_batch
from nn_uq_dist.inputs._terms import InputTerm


@register_frozen
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class InputLaw(AbstractInputLaw):
    r"""Distribution of a random input :math:`f = \mu + \beta \odot U + L N`.

    :math:`U` has independent entries, uniform on (-1, 1), and :math:`N` independent standard
    normal ones. Either part may be absent, and coordinates may mix both: a zero half-width or a
    zero row of :math:`L` takes a coordinate out of that part.

    The arrays are broadcast to one batch shape and promoted to one floating-point dtype. The
    object is an immutable pytree: it goes through ``jit``, ``grad`` and ``vmap``. To use one large
    `scale_tril` for many means without copies, map over `loc` with ``jax.vmap``.

    Parameters
    ----------
    loc
        Mean :math:`\mu`, shape ``(..., N_x)``.
    half_width
        Half-widths :math:`\beta \ge 0` of the box, broadcast against `loc`; ``None`` for no box.
    scale_tril
        Lower triangular factor :math:`L` of the Gaussian covariance :math:`L L^T`, shape
        ``(..., N_x, N_x)``, its diagonal not negative; ``None`` for no Gaussian part, or for one
        given by `scale`.
    scale
        Standard deviations of a Gaussian part with independent entries, broadcast against `loc`.
        The law is that of ``scale_tril=diag(scale)``, without a matrix: everything but
        `covariance` and the attribute `scale_tril`, which is made when it is asked for, takes
        memory and time in proportion to ``N_x``.

    Raises
    ------
    TypeError
        If an argument is not an array of real numbers.
    ValueError
        If there is neither a box nor a Gaussian part, or both `scale` and `scale_tril`; if shapes
        do not fit; if values are known (not traced) and hold NaN, infinity, a negative half-width
        or scale, a negative diagonal or an entry above the diagonal. Under ``jit`` the last four
        become NaN instead.

    Examples
    --------
    >>> from nn_uq_dist import InputLaw
    >>> law = InputLaw([1.0, 2.0, 3.0], half_width=0.3)
    >>> law.batch_shape, law.num_inputs
    ((), 3)
    >>> [round(float(v), 4) for v in law.variance]
    [0.03, 0.03, 0.03]
    """

    loc: Array
    half_width: Array | None
    scale: Array | None
    _scale_tril: Array | None

    def __init__(
        self,
        loc: ArrayLike,
        half_width: ArrayLike | None = None,
        scale_tril: ArrayLike | None = None,
        *,
        scale: ArrayLike | None = None,
    ) -> None:
        if half_width is None and scale_tril is None and scale is None:
            raise ValueError(
                "InputLaw must have a half_width or a scale_tril, got neither; pass half_width "
                "for a box, scale or scale_tril for a Gaussian part, or both"
            )
        if scale is not None and scale_tril is not None:
            raise ValueError(
                "InputLaw must have one Gaussian part, got both scale and scale_tril; pass scale "
                "for independent entries or scale_tril for correlated ones"
            )
        loc, size = as_loc(loc)
        parts: dict[str, tuple[ArrayLike, tuple[int, ...]]] = {}
        if half_width is not None:
            half_width = as_scales("half_width", half_width, size, "pass (high - low) / 2")
            parts["half_width"] = half_width, (size,)
        if scale is not None:
            scale = as_scales("scale", scale, size, "pass standard deviations")
            parts["scale"] = scale, (size,)
        if scale_tril is not None:
            parts["scale_tril"] = as_scale_tril(scale_tril, size), (size, size)
        placed = in_one_batch(**parts, loc=(loc, (size,)))
        for field in dataclasses.fields(self):
            object.__setattr__(self, field.name, placed.get(field.name.removeprefix("_")))

    @classmethod
    def from_distribution(cls, distribution: "Distribution | InputLaw") -> Self:
        """Convert a NumPyro distribution over vectors to an `InputLaw`.

        Parameters
        ----------
        distribution
            ``Uniform`` or ``Normal``, with ``.to_event(1)`` to make it a vector, or
            ``MultivariateNormal``, each also with ``.expand(...)`` and with a batch shape. An
            `InputLaw` is returned as it is. Parameters may be traced.

        Raises
        ------
        TypeError
            If the family is not accepted; the message lists those that are. Also if its law is
            not an `InputLaw`, as for most families and for distributions over arrays: use
            `nn_uq_dist.inputs.as_input_law` for these.
        ValueError
            If the distribution has batch axes and no event axis.

        Examples
        --------
        >>> import numpyro.distributions as dist
        >>> from nn_uq_dist import InputLaw
        >>> InputLaw.from_distribution(dist.Uniform(-1.0, 1.0).expand([5]).to_event(1)).num_inputs
        5
        """
        law = as_input_law(distribution)
        if not isinstance(law, cls):
            raise TypeError(
                f"f must be a vector that is a box, Gaussian or both, got the law "
                f"{type(law).__name__}; use nn_uq_dist.inputs.as_input_law(f), or pass f itself to "
                f"linearize"
            )
        return law

    @classmethod
    def from_samples(cls, draws: ArrayLike) -> Self:
        r"""Return the Gaussian input with the mean and the covariance of draws.

        Parameters
        ----------
        draws
            Two or more draws of the inputs, shape ``(n, ..., N_x)``, such as posterior draws. With
            no more draws than inputs the covariance is singular, which is allowed. It is estimated
            with the divisor ``n - 1``. Its factor is a matrix. With very many inputs, use
            `nn_uq_dist.inputs.GaussianInput` instead, with the centered draws divided by
            :math:`\sqrt{n - 1}` as the columns of its factor.

        Raises
        ------
        TypeError
            If `draws` is not an array of real numbers.
        ValueError
            If there are fewer than two draws, or known (not traced) values hold NaN or infinity.

        Examples
        --------
        >>> from nn_uq_dist import InputLaw
        >>> law = InputLaw.from_samples([[0.0, 0.0], [2.0, 1.0], [4.0, 2.0]])
        >>> print(law.mean, law.variance.round(4))
        [2. 1.] [4. 1.]
        """
        draws = _checks.as_numeric("draws", draws)
        shape = np.shape(draws)
        if len(shape) < 2 or shape[0] < 2:
            raise ValueError(
                f"draws must have shape (n, ..., N_x) with n >= 2, got shape {shape}; pass several "
                f"draws along the first axis"
            )
        _checks.require_finite("draws", draws)
        placed = broadcast(draws, _checks.float_dtype(draws), shape)
        loc, factor = one_program(_mean_and_factor)(placed)
        return cls(loc, scale_tril=factor)

    @property
    def scale_tril(self) -> Array | None:
        """Factor ``L``, ``batch_shape + (N_x, N_x)``, or ``None``; a new matrix from `scale`."""
        if self.scale is None:
            return self._scale_tril
        factor: Array = namespace(self.scale).eye(self.num_inputs, dtype=self.dtype)
        return factor * self.scale[..., None, :]

    @property
    def terms(self) -> tuple[InputTerm, ...]:
        r"""Those of ``half_width``, ``scale`` and ``scale_tril`` that there are."""
        parts = (
            (self.half_width, True, True),
            (self.scale, False, True),
            (self._scale_tril, False, False),
        )
        return tuple(InputTerm(factor, *kind) for factor, *kind in parts if factor is not None)

    @property
    def _description(self) -> str:
        gaussian = "" if self.scale is None else "independent normal"
        gaussian = gaussian if self._scale_tril is None else "correlated normal"
        box = "" if self.half_width is None else "box"
        return " and ".join(part for part in (box, gaussian) if part)


def _mean_and_factor(draws: Array) -> tuple[Array, Array]:
    """Mean of draws ``(n, ..., N_x)``, and the triangular factor of their covariance."""
    mean = jnp.mean(draws, axis=0)
    rows = jnp.moveaxis(draws - mean, 0, -2) / math.sqrt(draws.shape[0] - 1)
    # Not by the covariance: its Cholesky factor fails where it is singular, or nearly so.
    upper = jnp.linalg.qr(rows, mode="r")
    missing = draws.shape[-1] - upper.shape[-2]
    upper = jnp.pad(upper, [(0, 0)] * (upper.ndim - 2) + [(0, missing), (0, 0)])
    diagonal = jnp.diagonal(upper, axis1=-2, axis2=-1)
    lower = jnp.where(diagonal < 0, -1, 1)[..., None, :] * upper.mT
    return mean, jnp.tril(lower)


@register_frozen
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class GaussianInput(AbstractInputLaw):
    r"""Gaussian input :math:`f = \mu + F N`; the factor may have few columns or many.

    :math:`N` has ``r`` independent standard normal entries. The covariance is :math:`F F^T`, of
    rank ``r`` at most. It is computed only if `covariance` is asked for: for 150,528 inputs with
    ten common causes, memory is ten times that of the mean. To add independent errors, use
    `InputSum`.

    Parameters
    ----------
    loc
        Mean :math:`\mu`, shape ``(..., N_x)``.
    factor
        :math:`F`, shape ``(..., N_x, r)``: any matrix, not only a triangular one.

    Raises
    ------
    TypeError
        If an argument is not an array of real numbers.
    ValueError
        If shapes do not fit, or known (not traced) values hold NaN or infinity.

    Examples
    --------
    Two causes of the errors of three inputs:

    >>> import nn_uq_dist as nuq
    >>> law = nuq.inputs.GaussianInput([0.0, 0.0, 0.0], [[1.0, 0.0], [1.0, 1.0], [0.0, 2.0]])
    >>> law
    GaussianInput(rank at most 2, num_inputs=3, batch_shape=(), dtype=float32)
    >>> print(law.variance, nuq.linearize(lambda x: x[:2], law).covariance[0, 1])
    [1. 2. 4.] 1.0
    """

    loc: Array
    factor: Array

    def __init__(self, loc: ArrayLike, factor: ArrayLike) -> None:
        loc, num_inputs = as_loc(loc)
        factor = _checks.as_numeric("factor", factor)
        shape = np.shape(factor)
        if len(shape) < 2 or shape[-2] != num_inputs or shape[-1] == 0:
            raise ValueError(
                f"factor must have shape (..., N_x, r) with N_x = {num_inputs} (as loc) and "
                f"r >= 1, got shape {shape}; pass a column per cause of the errors"
            )
        _checks.require_finite("factor", factor)
        placed = in_one_batch(factor=(factor, shape[-2:]), loc=(loc, (num_inputs,)))
        object.__setattr__(self, "loc", placed["loc"])
        object.__setattr__(self, "factor", placed["factor"])

    @property
    def terms(self) -> tuple[InputTerm]:
        """The factor and its normal variables."""
        return (InputTerm(self.factor, is_uniform=False),)

    def sample_deviation(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw ``f - loc`` from the key itself: there is no other part that would need one."""
        key, sample_shape = _checks.as_sampling(key, sample_shape)
        shape = (*sample_shape, *self.batch_shape, self.factor.shape[-1])
        draws = jax.random.normal(key, shape, self.dtype)
        return one_program(matvec)(self.factor, draws)

    @property
    def _description(self) -> str:
        return f"rank at most {min(self.factor.shape[-2:])}"


@register_frozen
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class KnownInput(AbstractInputLaw):
    """Input without randomness: a block of known inputs among random ones.

    It has no columns. If all inputs are known, all outputs are constant.

    Parameters
    ----------
    loc
        The values, shape ``(..., N_x)``.

    Raises
    ------
    TypeError
        If `loc` is not an array of real numbers.
    ValueError
        If it is a scalar or empty, or known (not traced) and holds NaN or infinity.

    Examples
    --------
    >>> import nn_uq_dist as nuq
    >>> box = nuq.InputLaw([0.0, 0.0], half_width=1.0)
    >>> law = nuq.inputs.InputBlocks(box, nuq.inputs.KnownInput([5.0]))
    >>> lin = nuq.linearize(lambda x: x[2:] * x[:2], law)
    >>> print(lin.marginals().weights.tolist())
    [[5.0, 0.0], [0.0, 5.0]]
    """

    loc: Array

    def __init__(self, loc: ArrayLike) -> None:
        loc, num_inputs = as_loc(loc)
        object.__setattr__(self, "loc", in_one_batch(loc=(loc, (num_inputs,)))["loc"])

    @property
    def terms(self) -> tuple[()]:
        """None: nothing is random."""
        return ()

    @property
    def _description(self) -> str:
        return "known values"
