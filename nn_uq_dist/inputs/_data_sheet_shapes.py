"""Distributions of certificates: those that NumPyro lacks, as steps, and what makes inputs of them.

A step takes standard variables, normal or uniform, to values.
"""

import dataclasses
import math
from typing import Any, Self

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import erf, ndtr
from jax.typing import ArrayLike

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.pytree import register_frozen
from nn_uq_dist.inputs import parameter_checks
from nn_uq_dist.inputs._random_vector import RandomVector
from nn_uq_dist.inputs.input_map import FromNormalScores, InputMap
from nn_uq_dist.inputs.terms import InputTerm


@register_frozen
@dataclasses.dataclass(frozen=True, eq=False)
class Arcsine:
    """What a sine takes at a random time, between two ends."""

    low: Any
    high: Any

    @property
    def mean(self) -> Array:
        """The middle."""
        return (self.low + self.high) / 2

    @property
    def standard_deviation(self) -> Array:
        """The half-width over the root of two."""
        return (self.high - self.low) / math.sqrt(8)

    def from_normal_score(self, z: Array) -> Array:
        """Value with this normal score."""
        share = jnp.sin(math.pi / 2 * erf(z / math.sqrt(2)))
        return self.mean + share * (self.high - self.low) / 2


@register_frozen
@dataclasses.dataclass(frozen=True, eq=False)
class Trapezoid:
    """A density that rises to a flat top and falls: each of the three parts may have no width."""

    low: Any
    start: Any
    stop: Any
    high: Any

    @property
    def _parts(self) -> tuple[tuple[Any, ...], ...]:
        """Probabilities, means and variances of a triangle, a rectangle and a triangle."""
        rise, top, fall = self.start - self.low, self.stop - self.start, self.high - self.stop
        total = rise + 2 * top + fall
        shares = rise / total, 2 * top / total, fall / total
        means = self.start - rise / 3, (self.start + self.stop) / 2, self.stop + fall / 3
        return shares, means, (rise**2 / 18, top**2 / 12, fall**2 / 18)

    @property
    def mean(self) -> Array:
        """Mean, from the low end."""
        shares, means, _ = self._parts
        return self.low + sum(p * (m - self.low) for p, m in zip(shares, means, strict=True))

    @property
    def standard_deviation(self) -> Array:
        """By the law of total variance: no difference of squares."""
        parts = zip(*self._parts, strict=True)
        return jnp.sqrt(sum(p * (v + (m - self.mean) ** 2) for p, m, v in parts))

    def from_normal_score(self, z: Array) -> Array:
        """Value with this normal score."""
        (left, top, right), *_ = self._parts
        below, above = ndtr(z), ndtr(-z)
        rising = self.low + (self.start - self.low) * _root(below, left)
        falling = self.high - (self.high - self.stop) * _root(above, right)
        share = (below - left) / jnp.where(top > 0, top, 1)
        middle = self.start + (self.stop - self.start) * jnp.clip(share, 0, 1)
        return jnp.where(below < left, rising, jnp.where(above < right, falling, middle))


def _root(probability: Array, whole: Array) -> Array:
    """Root of a share of a triangle, with a finite slope also outside and without one."""
    inside = (probability < whole) & (probability > 0)
    return jnp.sqrt(jnp.where(inside, probability / jnp.where(inside, whole, 1), 1))


@register_frozen
@dataclasses.dataclass(frozen=True, eq=False)
class InexactBox:
    """Uniform between ends that are known up to an equal error: of ``2 n`` uniforms on (-1, 1)."""

    mean: Array
    half_width: Array
    inexactness: Array

    def __call__(self, x: Array) -> Array:
        """The value for uniforms of the place, and then of the half-width."""
        place, width = jnp.split(x, 2, axis=-1)
        return self.mean + (self.half_width + self.inexactness * width) * place

    @property
    def of_same_moments(self) -> "InexactBox":
        """The box of the same variance."""
        half = jnp.sqrt(self.half_width**2 + self.inexactness**2 / 3)
        return InexactBox(self.mean, half, jnp.zeros_like(half))


class DataSheetInput(RandomVector):
    """What makes an `nn_uq_dist.Input` from the statements of data sheets and certificates."""

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
        boxes = [InputTerm(width, is_uniform=True, is_diagonal=True) for width in half_widths]
        return cls.of_parts(mean, boxes).checked_for_rounding()

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
        return cls.of_parts(jnp.zeros_like(step.mean), [unit], InputMap.of_array(shape[-1], step))

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
        return cls.of_parts(vector, [unit], InputMap.of_array(vector.shape[-1], step))
