"""A random input as data: a mean, independent terms, and a map to what the network takes."""

import dataclasses
import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import ndtri
from jax.typing import ArrayLike

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.concrete import as_variances, broadcast, one_program
from nn_uq_dist.basics.pytree import register_frozen
from nn_uq_dist.basics.row_algebra import joined, namespace
from nn_uq_dist.basics.summary_line import described_line
from nn_uq_dist.inputs import parameter_checks, terms
from nn_uq_dist.inputs._data_sheet_shapes import Arcsine, InexactBox, Trapezoid
from nn_uq_dist.inputs.input_map import FromNormalScores, InputMap
from nn_uq_dist.inputs.linear_image import LinearImage
from nn_uq_dist.inputs.terms import InputTerm


@register_frozen
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Input:
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

    mean: Array
    terms: tuple[InputTerm, ...]
    input_map: InputMap | None

    def __init__(
        self, mean: ArrayLike, terms: Sequence[InputTerm] = (), input_map: InputMap | None = None
    ) -> None:
        mean, size = parameter_checks.as_mean(mean)
        parts = {}
        for i, term in enumerate(terms):
            if not isinstance(term, InputTerm):
                raise TypeError(
                    f"terms[{i}] must be an InputTerm, got {type(term).__name__}; pass "
                    f"nn_uq_dist.inputs.InputTerm(matrix, is_uniform=True), or False if normal"
                )
            factor: Any = checks.as_numeric(f"the factor of terms[{i}]", term.factor)
            shape = np.shape(factor)
            if len(shape) < 2 - term.is_diagonal or term.stop > size:
                raise ValueError(
                    f"terms[{i}] must have rows of the {size} inputs, got a factor of shape "
                    f"{shape} from input {term.start} on; pass a row for each input that it moves"
                )
            parts[f"terms[{i}]"] = factor, shape[-1 if term.is_diagonal else -2 :]
        *factors, mean = parameter_checks.in_one_batch(**parts, mean=(mean, (size,))).values()
        placed = zip(terms, factors, strict=True)
        placed_terms = tuple(dataclasses.replace(term, factor=factor) for term, factor in placed)
        # Past the assignment that a frozen object refuses.
        vars(self).update(mean=mean, terms=placed_terms, input_map=input_map)

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
        given = {
            "scale": scale,
            "covariance_matrix": covariance_matrix,
            "precision_matrix": precision_matrix,
            "scale_tril": scale_tril,
            "factor": factor,
        }
        matrices = {name: value for name, value in given.items() if value is not None}
        if len(matrices) != 1:
            raise ValueError(
                f"Input.normal must have one of {', '.join(given)}, got "
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
        # Here, and not by `__init__`: the message names the argument.
        own = (size,) if is_diagonal else np.shape(factor)[-2:]
        placed = parameter_checks.in_one_batch(**{name: (factor, own)}, mean=(mean, (size,)))
        term = InputTerm(placed[name], name == "half_width", is_diagonal)
        return cls(placed["mean"], [term]).checked_for_rounding()

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
    def triangular(cls, low: ArrayLike, high: ArrayLike, mode: ArrayLike | None = None) -> Self:
        """Return independent inputs with triangular densities.

        A symmetric one is the sum of two independent uniform variables on intervals of half its
        width: this is exact, and takes two columns for each input. With another mode, or a traced
        one, the linear model has the mean and the standard deviation, and a normal shape; draws
        and what is corrected by them have the triangle.

        Parameters
        ----------
        low, high
            Ends of the supports, shape ``(..., N_x)``; one of them may be a scalar.
        mode
            Where the density is largest: the middle by default.

        Examples
        --------
        >>> import jax.numpy as jnp
        >>> import nn_uq_dist as nuq
        >>> f = nuq.Input.triangular(jnp.array([-1.0, 0.0]), jnp.array([1.0, 4.0]))
        >>> distribution = nuq.linearize(lambda x: x, f).marginals()
        >>> print(f.mean, jnp.exp(distribution.log_prob(f.mean)))
        [0. 2.] [1.  0.5]
        >>> skewed = nuq.Input.triangular(jnp.array([0.0]), 3.0, mode=0.0)
        >>> print(nuq.linearize(lambda x: x, skewed).mean)
        [1.]
        """
        if mode is None:
            (low, high), _ = parameter_checks.as_ends("triangular", low=low, high=high)
            return cls._of_two_boxes((low + high) / 2, (high - low) / 4, (high - low) / 4)
        return cls._of_pieces("triangular", low=low, mode=mode, high=high)

    @classmethod
    def trapezoidal(
        cls, low: ArrayLike, start: ArrayLike, stop: ArrayLike, high: ArrayLike
    ) -> Self:
        r"""Return independent inputs with trapezoidal densities.

        A symmetric one is the sum of two independent uniform variables of half-widths
        :math:`(b - a \pm (d - c)) / 4` for the support :math:`(a, b)` and the flat top
        :math:`(c, d)`. This is exact, and takes two columns for each input. For others, and traced
        ones, see `triangular`.

        Parameters
        ----------
        low, start, stop, high
            Ends of the supports and of the flat tops, in this order, shape ``(..., N_x)``; scalars
            and other axes broadcast.

        Examples
        --------
        >>> import jax.numpy as jnp
        >>> import nn_uq_dist as nuq
        >>> f = nuq.Input.trapezoidal(jnp.array([0.0]), 1.0, 3.0, 4.0)
        >>> distribution = nuq.linearize(lambda x: x, f).marginals()
        >>> density = jnp.exp(distribution.log_prob(jnp.array([[0.5], [2.0]])))
        >>> print([f"{p:.4f}" for p in density[:, 0]])
        ['0.1667', '0.3333']
        """
        return cls._of_pieces("trapezoidal", low=low, start=start, stop=stop, high=high)

    @classmethod
    def _of_pieces(cls, kind: str, **ends: ArrayLike) -> Self:
        (low, *top, high), symmetric = parameter_checks.as_ends(kind, **ends)
        start, stop = top[0], top[-1]
        if checks.is_concrete(low, symmetric) and symmetric.all():
            # A top that rounding makes wider than the support is as wide.
            width, flat = high - low, jnp.minimum(stop - start, high - low)
            return cls._of_two_boxes((low + high) / 2, (width + flat) / 4, (width - flat) / 4)
        return cls._of_family(Trapezoid(low, start, stop, high), low.shape)

    @classmethod
    def _of_two_boxes(cls, mean: Array, *half_widths: Array) -> Self:
        parts = [InputTerm(width, is_uniform=True, is_diagonal=True) for width in half_widths]
        return cls(mean, parts).checked_for_rounding()

    @classmethod
    def arcsine(cls, low: ArrayLike, high: ArrayLike) -> Self:
        r"""Return independent inputs that cycle between two ends like a sine.

        The density is that of :math:`\sin t` at a random time, largest at the ends; the standard
        deviation is the half-width over :math:`\sqrt 2`. In the linear model the shape is normal.

        Parameters
        ----------
        low, high
            Ends of the supports, shape ``(..., N_x)``; one of them may be a scalar.

        Examples
        --------
        The temperature of a room whose control switches it between 19 and 21 degrees:

        >>> import jax.numpy as jnp
        >>> import nn_uq_dist as nuq
        >>> f = nuq.Input.arcsine(jnp.array([19.0]), 21.0)
        >>> print(f"{nuq.linearize(lambda x: x, f).variance[0]:.3f}")
        0.500
        """
        (low, high), _ = parameter_checks.as_ends("arcsine", low=low, high=high)
        return cls._of_family(Arcsine(low, high), high.shape)

    @classmethod
    def student_t(cls, mean: ArrayLike, scale: ArrayLike, df: ArrayLike) -> Self:
        r"""Return independent inputs with Student's t distribution.

        That of a mean of `n` readings with scatter :math:`s` has the scale :math:`s/\sqrt n` and
        ``n - 1`` degrees of freedom. Its standard deviation is larger, by
        :math:`\sqrt{\nu/(\nu - 2)}`. In the linear model the shape is normal.

        Parameters
        ----------
        mean
            Shape ``(..., N_x)``.
        scale, df
            Scales and degrees of freedom, positive; broadcast against `mean`. `linearize` needs
            more than two.

        Examples
        --------
        >>> import jax.numpy as jnp
        >>> import nn_uq_dist as nuq
        >>> f = nuq.Input.student_t(jnp.array([1.0]), 0.1, df=4)
        >>> print(f"{nuq.linearize(lambda x: x, f).variance[0]:.4f}")  # .1^2 * 4/2
        0.0200
        """
        mean, scale, df = parameter_checks.with_scales(mean, scale=scale, df=df)
        if checks.is_concrete(df) and (df == 0).any():
            raise ValueError("df must be positive, got 0; pass the number of readings less one")
        return cls._of_family(dist.StudentT(df, mean, scale, validate_args=False), mean.shape)

    @classmethod
    def _of_family(cls, family: Any, shape: tuple[int, ...]) -> Self:
        """Inputs of a family with parameters of this shape, ``(..., N_x)``."""
        step = FromNormalScores.of(family, family, shape)
        unit = InputTerm(jnp.ones_like(step.mean), is_uniform=False, is_diagonal=True)
        return cls(jnp.zeros_like(step.mean), [unit], InputMap.of_array(shape[-1], step))

    @classmethod
    def curvilinear_trapezoidal(
        cls, mean: ArrayLike, half_width: ArrayLike, inexactness: ArrayLike
    ) -> Self:
        r"""Return independent inputs, uniform between ends that are not known exactly.

        The ends are :math:`\mu \pm (\beta + d v)` with `v` uniform on (-1, 1) (JCGM 101:2008,
        6.4.3). In the linear model the input is uniform, with the same standard deviation,
        :math:`\sqrt{\beta^2/3 + d^2/9}`. Each input is made of two numbers, its place between the
        ends and theirs.

        Parameters
        ----------
        mean
            Shape ``(..., N_x)``.
        half_width, inexactness
            Half-widths :math:`\beta` and their errors :math:`d \le \beta`; broadcast against
            `mean`.

        Examples
        --------
        >>> import jax.numpy as jnp
        >>> import nn_uq_dist as nuq
        >>> f = nuq.Input.curvilinear_trapezoidal(jnp.array([5.0]), 3.0, 1.5)
        >>> print(nuq.linearize(lambda x: x, f).variance)  # 9/3 + 2.25/9
        [3.25]
        """
        mean, half, error = parameter_checks.with_scales(
            mean, half_width=half_width, inexactness=inexactness
        )
        if checks.is_concrete(half, error) and (error > half).any():
            at = checks.first_index(np.asarray(error > half))
            raise ValueError(
                f"inexactness must not exceed half_width, got {error[at]} and {half[at]} at index "
                f"{at}; pass the error of the ends, not their distance"
            )
        vector = jnp.zeros((*mean.shape[:-1], 2 * mean.shape[-1]), mean.dtype)
        unit = InputTerm(jnp.ones_like(vector), is_uniform=True, is_diagonal=True)
        step = InexactBox(mean, half, error)
        return cls(vector, [unit], InputMap.of_array(vector.shape[-1], step))

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
        return cls(mean, [InputTerm(factor, is_uniform=False)]).checked_for_rounding()

    def checked_for_rounding(self) -> Self:
        """The same, with a warning where its type is too coarse for the spread about the mean."""
        if checks.is_concrete(self):
            known = jax.tree.map(np.asarray, self)  # no program to compile
            parameter_checks.warn_of_rounding(self.mean, known.standard_deviation)
        return self

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
    def batch_shape(self) -> tuple[int, ...]:
        """Shape of the batch of inputs: the leading axes of `mean`."""
        return self.mean.shape[:-1]

    @property
    def num_inputs(self) -> int:
        """Number of inputs ``N_x``."""
        return self.mean.shape[-1]

    @property
    def dtype(self) -> jnp.dtype:
        """Floating-point dtype of the parameters and of the draws."""
        return self.mean.dtype

    @property
    def standard_deviation(self) -> Array:
        """Standard deviations, ``batch_shape + (N_x,)``, also where a variance would underflow."""
        return terms.standard_deviation(self.mean, self.terms)

    @property
    def variance(self) -> Array:
        """Variances, shape ``batch_shape + (N_x,)``; NaN where the type has no such number."""
        return as_variances(*terms.variance(self.mean, self.terms))

    @property
    def covariance(self) -> Array:
        """Covariance, ``batch_shape + (N_x, N_x)``; NaN where the type has no such number."""
        size = self.num_inputs
        identity = np.broadcast_to(np.eye(size, dtype=self.dtype), (*self.mean.shape, size))
        return self.image(identity).covariance

    @property
    def half_width(self) -> Array | None:
        """Half-width of the uniform part at each input, shaped as `mean`; None without one."""
        return self._of_part(terms.half_width, is_uniform=True)

    @property
    def normal_scale(self) -> Array | None:
        """Standard deviation of the normal part at each input, as `mean`; None without one."""
        return self._of_part(terms.standard_deviation, is_uniform=False)

    def _of_part(self, function: Callable[..., Array], *, is_uniform: bool) -> Array | None:
        """What a function finds of the terms of one kind, None without any."""
        own = tuple(term for term in self.terms if term.is_uniform == is_uniform)
        return function(self.mean, own) if own else None

    @property
    def has_independent_entries(self) -> bool:
        """Whether the inputs are independent of each other; of known values only."""
        return terms.are_independent(self.terms, np.ones(self.num_inputs, bool))

    def columns(self, jacobian: Any) -> tuple[Array | None, Array | None]:
        r"""Columns of the uniform and of the normal variables under a linear map.

        Parameters
        ----------
        jacobian
            Matrix :math:`J`, shape ``(..., N_y, N_x)``, already checked; leading axes broadcast
            against the batch shape.

        Returns
        -------
        tuple of Array or None
            :math:`J A`, shape ``(..., N_y, n)``, and :math:`J B`, shape ``(..., N_y, m)``; None
            where there are no columns. If nothing is random there is one normal column of zeros.
        """
        return terms.columns(jacobian, self.terms)

    def image(self, jacobian: ArrayLike) -> LinearImage:
        r"""Return the distribution of :math:`J (f - \mu)`, the deviation of linear outputs.

        Parameters
        ----------
        jacobian
            Matrix :math:`J`, shape ``(..., N_y, N_x)``; leading axes broadcast against the batch
            shape.

        Returns
        -------
        LinearImage
            With what `columns` returns.

        Raises
        ------
        TypeError
            If `jacobian` is not an array of real numbers.
        ValueError
            If its last axis is not ``N_x`` or its leading axes do not broadcast.

        Examples
        --------
        >>> import nn_uq_dist as nuq
        >>> f = nuq.Input.box([0.0, 0.0], [1.0, 0.0]) + nuq.Input.normal([0.0, 0.0], [0.0, 2.0])
        >>> image = f.image([[3.0, 2.0]])
        >>> print(image.weights, image.normal_scale)
        [[3. 0.]] [4.]
        """
        given = checks.as_numeric("jacobian", jacobian)
        shape = np.shape(given)
        if len(shape) < 2 or shape[-1] != self.num_inputs:
            raise ValueError(
                f"jacobian must have shape (..., N_y, N_x) with N_x = {self.num_inputs}, got shape "
                f"{shape}; pass one row per output"
            )
        checks.broadcast_shapes(
            "the leading axes of jacobian must broadcast against the batch shape",
            jacobian=shape[:-2],
            batch_shape=self.batch_shape,
        )
        # A NumPy array stays one: an input in float64 (`in_float64`) gives an image in float64.
        rows: Any = given if isinstance(given, np.ndarray) else jnp.asarray(given)
        return LinearImage(*self.columns(rows))

    def expand(self, batch_shape: tuple[int, ...]) -> Self:
        """Return the same input with its arrays broadcast to `batch_shape`.

        Raises
        ------
        ValueError
            If the present batch shape does not broadcast to `batch_shape`.

        Examples
        --------
        >>> import nn_uq_dist as nuq
        >>> nuq.Input.box([0.0, 1.0], 1.0).expand((4, 3)).batch_shape
        (4, 3)
        """
        batch_shape, present = tuple(batch_shape), self.batch_shape
        if batch_shape == present:
            return self
        ends = zip(reversed(present), reversed(batch_shape), strict=False)
        if len(present) > len(batch_shape) or any(own not in {1, new} for own, new in ends):
            raise ValueError(
                f"batch_shape must be one that the batch_shape of the input broadcasts to, got "
                f"requested {batch_shape}, present {present}; pass a batch_shape that ends in the "
                f"present one"
            )
        expanded: Self = jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf, batch_shape + leaf.shape[len(present) :]), self
        )
        return expanded

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw vectors, shape ``sample_shape + batch_shape + (N_x,)``.

        Parameters
        ----------
        key
            A JAX random key.
        sample_shape
            Shape of independent draws, in front of the batch shape.

        Examples
        --------
        >>> import jax
        >>> import nn_uq_dist as nuq
        >>> nuq.Input.box([0.0, 1.0], 1.0).sample(jax.random.key(0), (10,)).shape
        (10, 2)
        """
        return self.mean + self.sample_deviation(key, sample_shape)

    def sample_deviation(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw ``f - mean``, without the rounding error that adding a large mean would cause."""
        return terms.draw_deviation(*checks.as_sampling(key, sample_shape), self.mean, self.terms)

    @property
    def num_standard_variables(self) -> tuple[int, int]:
        """How many uniform and how many normal variables the input is made of."""
        return terms.num_variables(self.terms)

    def deviation_at(self, uniform: Array, normal: Array) -> Array:
        """``A U + B N`` at given values of the standard variables.

        Parameters
        ----------
        uniform, normal
            Shapes ``(..., n)`` and ``(..., m)`` with the numbers of `num_standard_variables`.
        """
        return terms.deviation(uniform, normal, self.mean, self.terms)

    def deviation_at_points(self, points: Array) -> Array:
        """``f - mean`` at points of the unit cube, shape ``(..., n + m)``: for quasi-random points.

        The first ``n`` coordinates are probabilities of the uniform variables, the others of the
        normal ones.
        """
        # A point next to one may have rounded to it, where the normal variable is infinite.
        tiny, count = jnp.finfo(points.dtype).eps / 2, self.num_standard_variables[0]
        safe = jnp.clip(points, tiny, 1 - tiny)
        return self.deviation_at(2 * safe[..., :count] - 1, ndtri(safe[..., count:]))

    @property
    def is_vector(self) -> bool:
        """Whether the network takes the vector of ``N_x`` numbers itself."""
        return self.input_map is None

    @property
    def is_transformed(self) -> bool:
        """Whether `network_input` is nonlinear: shapes of linear networks are not exact then."""
        return self.input_map is not None and self.input_map.is_transformed

    @property
    def of_same_moments(self) -> "Input":
        """The input with each family replaced by a linear map of its standard variables.

        Means and standard deviations are those of the family.

        Raises
        ------
        ValueError
            If the variance of a known family is infinite.
        """
        if self.input_map is None:
            return self
        if checks.is_concrete(self.input_map):
            self.input_map.require_variance()
        return Input(self.mean, self.terms, self.input_map.of_same_moments)

    @property
    def remark(self) -> str:
        """What the linear model does not have of the input; ``""`` if it has all."""
        if self.input_map is None:
            return ""
        shaped, bent = self.input_map.names_of_shapes
        found = []
        if shaped:
            found.append(
                f"of {', '.join(shaped)} the linear model has the mean and the standard "
                f"deviation, but not the shape"
            )
        if bent:
            found.append(
                f"{', '.join(bent)} is a nonlinear transform, linearized with the network: not "
                f"even the moments of a linear network are exact"
            )
        return "; ".join(found)

    @property
    def varies_over_batch(self) -> bool:
        """Whether the map has parameters for each element of the batch."""
        return bool(self.batch_shape) and bool(jax.tree.leaves(self.input_map))

    @property
    def base(self) -> "Input":
        """The distribution of the vector, without the map."""
        return self if self.input_map is None else Input(self.mean, self.terms)

    def network_input(self, x: ArrayLike) -> Any:
        """Return what the network is called with: the vector itself, or what the map makes of it.

        Parameters
        ----------
        x
            Values of the ``N_x`` numbers, shape ``(..., *batch_shape, N_x)``, such as draws of
            `sample`.

        Returns
        -------
        Array or pytree of Array
            With the leading axes of `x` in front.

        Raises
        ------
        ValueError
            If the last axis is not ``N_x``, or the map differs over the batch and `x` has no batch
            axes.
        """
        if self.input_map is None:
            return x
        return self.input_map.at(jnp.asarray(x), self.batch_shape)

    @property
    def names(self) -> list[str]:
        """A name for each of the ``N_x`` numbers: keys of dicts and trees, else ``f[0]``, ..."""
        return self._map.names(self._taken_shapes, taken=False)

    @property
    def taken_names(self) -> list[str]:
        """Names of the numbers of `taken`."""
        return self._map.names(self._taken_shapes, taken=True)

    def taken(self, x: Array) -> Array:
        """Return the random numbers that the network takes, as vectors: all parts in order."""
        if self.input_map is None:
            return x
        return self.input_map.taken(self.network_input(x), jnp.shape(x)[:-1])

    def structured(self, numbers: Any, *, is_spread: bool = False) -> Any:
        """Return numbers of `taken`, or their spread, as the network takes them.

        Known parts are their values, and their spread is zero.
        """
        if self.input_map is None:
            return numbers
        return self.input_map.structured(numbers, self._taken_shapes, is_spread=is_spread)

    @property
    def _map(self) -> InputMap:
        """The map, also where the network takes the vector."""
        return self.input_map or InputMap.of_array(self.num_inputs)

    @property
    def example(self) -> Any:
        """Shapes and types of what the network takes, without the batch axes."""
        if self.input_map is None:
            return jax.ShapeDtypeStruct(self.mean.shape[-1:], self.mean.dtype)
        found, axes = jax.eval_shape(lambda f: f.network_input(f.mean), self), self.mean.ndim - 1
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[axes:], leaf.dtype), found)

    @property
    def _taken_shapes(self) -> list[tuple[int, ...]]:
        return [leaf.shape for leaf in jax.tree.leaves(self.example)]

    def __repr__(self) -> str:
        return described_line(self, self._facts)

    def _facts(self) -> tuple[str, dict[str, object]]:
        kinds = dict.fromkeys(term.kind for term in self.terms)
        boxed = sum(term.factor.shape[-1] for term in self.terms if term.kind == "box")
        words = " and ".join(kinds) or "known values"
        if boxed > self.num_inputs:
            words = words.replace("box", "sum of boxes")
        if self.input_map is not None:
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
