"""Distributions of metrology that NumPyro lacks, as steps from standard variables to values."""

import dataclasses
import math
from typing import Any

import jax.numpy as jnp
from jax import Array
from jax.scipy.special import erf, ndtr

from nn_uq_dist.basics.pytree import register_frozen


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
