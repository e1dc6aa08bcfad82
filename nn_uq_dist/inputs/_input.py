"""A random input as data: a mean, independent terms, and a map to what the network takes."""

import dataclasses
import itertools
import math
import operator
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.concrete import broadcast, one_program
from nn_uq_dist.basics.pytree import register_frozen
from nn_uq_dist.basics.row_algebra import joined, namespace
from nn_uq_dist.basics.summary_line import described_line
from nn_uq_dist.inputs import parameter_checks
from nn_uq_dist.inputs._data_sheet_shapes import DataSheetInput
from nn_uq_dist.inputs.terms import InputTerm


@register_frozen
@dataclasses.dataclass(frozen=True, eq=False, repr=False, init=False)
class Input(DataSheetInput):
    r"""Distribution of a random input :math:`f = \mu + A U + B N`.

    :math:`U` has independent entries, uniform on (-1, 1), :math:`N` independent standard normal
    ones; there may be more of them than inputs. `Input.box`, `Input.normal`, `Input.known`,
    `Input.triangular`, `Input.trapezoidal`, `Input.arcsine`, `Input.student_t`,
    `Input.curvilinear_trapezoidal` and `Input.from_samples` make inputs, ``+`` adds
    independent ones, and `Input.join` puts them one after the other. Distributions of NumPyro, and
    dicts and lists of them, become inputs by `nn_uq_dist.inputs.as_input`, which `linearize` calls.

    The arrays are broadcast to one batch shape and promoted to one floating-point dtype. The
    object is an immutable pytree: it goes through ``jit``, ``grad`` and ``vmap``. To use one large
    matrix for many means without copies, map over the means with ``jax.vmap``.

    All functions that make inputs raise a ``TypeError`` if an argument is not an array of real
    numbers, and a ``ValueError`` if shapes do not fit, or known (not traced) values hold NaN or
    infinity. Known values that are not what an argument is to be raise one, too; traced ones give
    NaN.

    Parameters
    ----------
    mean
        Mean :math:`\mu`, shape ``(..., N_x)``.
    terms
        The terms of :math:`A U + B N`, independent of each other: one for each matrix of few
        columns and for each diagonal, so that no matrix of all inputs by all inputs is needed.
        Only their shapes are checked.
    input_map
        From vectors of these ``N_x`` numbers to what the network is called with; made by
        `nn_uq_dist.inputs.as_input`. By default the network is called with the vector. The mean and
        all that is computed from the terms are those of the vector.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import nn_uq_dist as nuq
    >>> f = nuq.Input.box([1.0, 2.0, 3.0], half_width=0.3)
    >>> f
    Input(box, num_inputs=3, batch_shape=(), dtype=float32)
    >>> [round(float(v), 4) for v in f.variance]
    [0.03, 0.03, 0.03]

    Inputs that all have the same error, uniform on (-3, 3):

    >>> shared = nuq.inputs.InputTerm(3 * jnp.ones((2, 1)), is_uniform=True)
    >>> f = nuq.Input(jnp.array([1.0, 2.0]), [shared])
    >>> print(nuq.linearize(lambda x: jnp.array([x[0] + x[1], x[0]]), f).variance)
    [12.  3.]
    """

    @classmethod
    def box(cls, mean: ArrayLike, half_width: ArrayLike) -> Self:
        r"""Return independent inputs, uniform on :math:`\mu_k \pm \beta_k`.

        Parameters
        ----------
        mean
            Mean :math:`\mu`, shape ``(..., N_x)``.
        half_width
            Half-widths :math:`\beta \ge 0`, broadcast against `mean`. An input with half-width 0 is
            known.

        Examples
        --------
        A box, with independent normal errors on top:

        >>> import jax.numpy as jnp
        >>> import nn_uq_dist as nuq
        >>> mean = jnp.array([0.0, 1.0])
        >>> f = nuq.Input.box(mean, 0.5) + nuq.Input.normal(0 * mean, 0.1)
        >>> print(f.half_width, f.normal_scale)
        [0.5 0.5] [0.1 0.1]
        """
        return cls._of(mean, "half_width", half_width)

    @classmethod
    def normal(
        cls,
        mean: ArrayLike,
        scale: ArrayLike | None = None,
        *,
        covariance_matrix: ArrayLike | None = None,
        precision_matrix: ArrayLike | None = None,
        scale_tril: ArrayLike | None = None,
        factor: ArrayLike | None = None,
    ) -> Self:
        r"""Return normal inputs, with one of the arguments below after `mean`.

        Parameters
        ----------
        mean
            Mean :math:`\mu`, shape ``(..., N_x)``.
        scale
            Standard deviations of independent inputs, broadcast against `mean`: no matrix is made,
            and memory and time are in proportion to ``N_x``.
        covariance_matrix, precision_matrix
            Covariance or its inverse, shape ``(..., N_x, N_x)``. A covariance that is known may be
            singular.
        scale_tril
            Lower triangular factor :math:`L` of the covariance :math:`L L^T`, its diagonal not
            negative.
        factor
            Any factor :math:`F` of the covariance :math:`F F^T`, shape ``(..., N_x, r)``, with few
            columns or many: for 150,528 inputs with ten common causes, memory is ten times that of
            the mean.

        Raises
        ------
        ValueError
            If there is not exactly one of the arguments after `mean`.

        Examples
        --------
        Two causes of the errors of three inputs:

        >>> import nn_uq_dist as nuq
        >>> f = nuq.Input.normal([0.0, 0.0, 0.0], factor=[[1.0, 0.0], [1.0, 1.0], [0.0, 2.0]])
        >>> print(f.variance, nuq.linearize(lambda x: x[:2], f).covariance[0, 1])
        [1. 2. 4.] 1.0
        """
        arguments = {
            "scale": scale,
            "covariance_matrix": covariance_matrix,
            "precision_matrix": precision_matrix,
            "scale_tril": scale_tril,
            "factor": factor,
        }
        matrices = {name: value for name, value in arguments.items() if value is not None}
        if len(matrices) != 1:
            raise ValueError(
                f"Input.normal must have one of {', '.join(arguments)}, got "
                f"{' and '.join(matrices) or 'none'}; pass scale for independent inputs"
            )
        return cls._of(mean, *matrices.popitem())

    @classmethod
    def _of(cls, mean: ArrayLike, name: str, value: ArrayLike) -> Self:
        """Return an input of one term: what an argument of `box` or `normal` means."""
        mean, size = parameter_checks.as_mean(mean)
        remedies = {"half_width": "pass (high - low) / 2", "scale": "pass standard deviations"}
        is_diagonal = name in remedies
        if is_diagonal:
            factor: Any = parameter_checks.as_scales(name, value, size, remedies[name])
        else:
            factor = parameter_checks.as_factor(name, value, size)
        shape = (size,) if is_diagonal else np.shape(factor)[-2:]
        placed = parameter_checks.in_one_batch(**{name: (factor, shape)}, mean=(mean, (size,)))
        term = InputTerm(placed[name], name == "half_width", is_diagonal)
        return cls.of_parts(placed["mean"], [term]).checked_for_rounding()

    @classmethod
    def known(cls, values: ArrayLike) -> Self:
        """Return inputs without randomness, such as a block of known ones among random ones.

        Parameters
        ----------
        values
            Shape ``(..., N_x)``. If all inputs are known, all outputs are constant.

        Examples
        --------
        >>> import nn_uq_dist as nuq
        >>> f = nuq.Input.join(nuq.Input.box([0.0, 0.0], 1.0), nuq.Input.known([5.0]))
        >>> print(nuq.linearize(lambda x: x[2:] * x[:2], f).marginals().weights.tolist())
        [[5.0, 0.0], [0.0, 5.0]]
        """
        return cls(values)

    @classmethod
    def from_samples(cls, draws: ArrayLike) -> Self:
        r"""Return normal inputs with the mean and the covariance of draws.

        Parameters
        ----------
        draws
            Two or more draws of the inputs, shape ``(n, ..., N_x)``, such as posterior draws. The
            covariance is estimated with the divisor ``n - 1``. With no more draws than inputs it is
            singular, which is allowed; the centered draws are its factor then, and no matrix of
            inputs by inputs is made.

        Examples
        --------
        >>> import nn_uq_dist as nuq
        >>> f = nuq.Input.from_samples([[0.0, 0.0], [2.0, 1.0], [4.0, 2.0]])
        >>> print(f.mean, f.variance.round(4))
        [2. 1.] [4. 1.]
        """
        draws = checks.as_finite("draws", draws)
        shape = np.shape(draws)
        if len(shape) < 2 or shape[0] < 2:
            raise ValueError(
                f"draws must have shape (n, ..., N_x) with n >= 2, got shape {shape}; pass several "
                f"draws along the first axis"
            )
        mean, factor = _mean_and_factor(broadcast(draws, checks.float_dtype(draws), shape))
        term = InputTerm(factor, is_uniform=False)
        return cls.of_parts(mean, [term]).checked_for_rounding()

    @classmethod
    def join(cls, *parts: "Input") -> Self:
        """Return independent inputs as one vector, in the order given.

        Parameters
        ----------
        *parts
            Inputs; `nn_uq_dist.inputs.as_input` makes them of distributions. Batch shapes
            broadcast.

        Raises
        ------
        TypeError
            If a part is not an input, or one with a map.
        ValueError
            If there are no parts, or batch shapes do not broadcast.

        Examples
        --------
        >>> import nn_uq_dist as nuq
        >>> f = nuq.Input.join(nuq.Input.box([0.0, 1.0], 1.0), nuq.Input.normal([5.0], 0.5))
        >>> print(f, f.mean, f.normal_scale)
        Input(box and independent normal, num_inputs=3, batch_shape=(), dtype=float32) [0. 1. 5.] \
[0.  0.  0.5]
        """
        if not parts:
            raise ValueError("Input.join must have parts, got none; pass one input or more")
        placed = _in_one_batch(parts)
        starts = itertools.accumulate((part.num_inputs for part in placed), initial=0)
        shifted = [
            dataclasses.replace(term, start=start + term.start)
            for part, start in zip(placed, starts, strict=False)
            for term in part.terms
        ]
        return cls(one_program(joined)([part.mean for part in placed]), shifted)

    def __add__(self, other: "Input") -> "Input":
        """Return the distribution of the sum of two independent inputs.

        Examples
        --------
        Two independent uniforms on (-1, 1) in each coordinate:

        >>> import nn_uq_dist as nuq
        >>> box = nuq.Input.box([0.0, 0.0], 1.0)
        >>> f = box + box
        >>> print(f, f.half_width, f"{f.variance[0]:.3f}")
        Input(sum of boxes, num_inputs=2, batch_shape=(), dtype=float32) [2. 2.] 0.667
        """
        first, second = _in_one_batch((self, other))
        if first.num_inputs != second.num_inputs:
            raise ValueError(
                f"inputs that are added must have the same number of inputs, got "
                f"{[first.num_inputs, second.num_inputs]}; pass distributions of the same vector"
            )
        mean = one_program(operator.add)(first.mean, second.mean)
        return Input(mean, first.terms + second.terms)

    @property
    def remark(self) -> str:
        """What the linear model does not have of the input; ``""`` if it has all."""
        shaped, bent = self.input_map.names_of_shapes
        remarks = []
        if shaped:
            remarks.append(
                f"of {', '.join(shaped)} the linear model has the mean and the standard "
                f"deviation, but not the shape"
            )
        if bent:
            remarks.append(
                f"{', '.join(bent)} is a nonlinear transform, linearized with the network: not "
                f"even the moments of a linear network are exact"
            )
        return "; ".join(remarks)

    def __repr__(self) -> str:
        return described_line(self, self._facts)

    def _facts(self) -> tuple[str, dict[str, object]]:
        kinds = dict.fromkeys(term.kind for term in self.terms)
        boxed = sum(term.factor.shape[-1] for term in self.terms if term.kind == "box")
        words = " and ".join(kinds) or "known values"
        if boxed > self.num_inputs:
            words = words.replace("box", "sum of boxes")
        if not self.is_vector:
            bent = "transformed " if self.is_transformed else ""
            words = f"{bent}{words} to {self.input_map.words}"
        names = ("num_inputs", "batch_shape", "dtype")
        return words, {name: getattr(self, name) for name in names}


def _in_one_batch(parts: Sequence[Input]) -> list[Input]:
    """Inputs that are joined or added, checked, in one batch shape."""
    for i, part in enumerate(parts):
        if not isinstance(part, Input):
            raise TypeError(
                f"part {i} must be an nn_uq_dist.Input, got {type(part).__name__}; pass "
                f"nn_uq_dist.inputs.as_input(part), or all parts as a list to linearize"
            )
        if not part.is_vector:
            raise TypeError(
                f"part {i} must be a uniform or normal input, got {part!r}: only these can be "
                f"added or joined; pass all parts to linearize in a dict or list, and add or join "
                f"them in the network"
            )
    batch_shape = checks.broadcast_shapes(
        "the batch shapes of the parts must broadcast",
        **{f"part {i}": part.batch_shape for i, part in enumerate(parts)},
    )
    return [part.expand(batch_shape) for part in parts]


@one_program
def _mean_and_factor(draws: Array) -> tuple[Array, Array]:
    """Mean of draws ``(n, ..., N_x)``, and a factor of their covariance."""
    xp, count, size = namespace(draws), draws.shape[0], draws.shape[-1]
    mean = xp.mean(draws, axis=0)
    rows = xp.moveaxis(draws - mean, 0, -2) / math.sqrt(count - 1)
    if count <= size:
        return mean, rows.mT
    # Not by the covariance: its Cholesky factor fails where it is singular, or nearly so.
    return mean, xp.linalg.qr(rows, mode="r").mT
