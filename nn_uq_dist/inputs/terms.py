r"""Independent terms of a random input, and what follows from them: moments, columns, draws.

An input is a mean plus terms: uniform or normal variables times a vector or a matrix, in some of
its rows. Whatever an input is made from, only the functions here compute with it.
"""

import dataclasses
import math
import operator
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from numpy.typing import NDArray

from nn_uq_dist.basics.checks import float_dtype
from nn_uq_dist.basics.concrete import one_program
from nn_uq_dist.basics.pytree import register_frozen
from nn_uq_dist.basics.row_algebra import (
    binary_unit,
    gram,
    joined,
    matmul,
    matvec,
    namespace,
    norm,
    squares_in_units,
)
from nn_uq_dist.basics.summary_line import summary_line

UNIFORM_VARIANCE = 1 / 3  # of a uniform random variable on (-1, 1)


@register_frozen
@dataclasses.dataclass(frozen=True, eq=False)
class InputTerm:
    r"""A matrix times independent standard variables: one term of a random input.

    `nn_uq_dist.Input` adds them to a mean.

    Parameters
    ----------
    factor
        The matrix, shape ``(..., rows, n)``, or the diagonal of one, ``(..., n)``, not negative;
        batch axes in front.
    is_uniform
        Whether the ``n`` variables are uniform on (-1, 1); standard normal otherwise.
    is_diagonal
        Whether `factor` is a diagonal.
    start
        The first input that the rows belong to.

    Examples
    --------
    An error that three inputs share:

    >>> import jax.numpy as jnp
    >>> import nn_uq_dist as nuq
    >>> nuq.inputs.InputTerm(jnp.ones((3, 1)), is_uniform=True)
    InputTerm(factor=float32[3, 1], is_uniform=True, is_diagonal=False, start=0)
    """

    factor: Array
    is_uniform: bool = dataclasses.field(metadata={"static": True})
    is_diagonal: bool = dataclasses.field(default=False, metadata={"static": True})
    start: int = dataclasses.field(default=0, metadata={"static": True})

    def __repr__(self) -> str:
        return summary_line(self)

    @property
    def stop(self) -> int:
        """The input after the last one that the rows belong to."""
        return self.start + np.shape(self.factor)[-1 if self.is_diagonal else -2]

    @property
    def kind(self) -> str:
        """What the term is, in a few words."""
        if self.is_uniform:
            return "box" if self.is_diagonal else "shared uniform"
        return "independent normal" if self.is_diagonal else "correlated normal"


type Terms = tuple[InputTerm, ...]


def num_variables(terms: Terms) -> tuple[int, int]:
    """How many uniform and how many normal variables there are."""
    sizes = [(term.is_uniform, term.factor.shape[-1]) for term in terms]
    return sum(n for uniform, n in sizes if uniform), sum(n for uniform, n in sizes if not uniform)


@one_program
def columns(jacobian: Any, terms: Terms) -> tuple[Array | None, Array | None]:
    """Columns of the uniform and of the normal variables under a linear map, None without any.

    Of known inputs there is one normal column of zeros: NaN where the map holds NaN.
    """
    if not terms:
        return None, jacobian[..., :1] * 0
    moved: dict[bool, list[Array]] = {True: [], False: []}
    for term in terms:
        rows, factor = jacobian[..., term.start : term.stop], term.factor
        image = rows * factor[..., None, :] if term.is_diagonal else matmul(rows, factor)
        moved[term.is_uniform].append(image)
    return joined(moved[True]), joined(moved[False])


def root(uniform: Any, normal: Any) -> Any:
    """Columns of variables of variance one, of those of uniform and of normal ones."""
    scaled = None if uniform is None else uniform * math.sqrt(UNIFORM_VARIANCE)
    return joined([scaled, normal])


@one_program
def standard_deviation(mean: Array, terms: Terms) -> Array:
    """Standard deviations of the inputs, in shape as their means."""
    xp = namespace(mean)

    def size(term: InputTerm) -> Array:
        rows: Array = term.factor if term.is_diagonal else norm(term.factor)
        return math.sqrt(_unit(term)) * rows

    return _combined(terms, size, mean, lambda a, b: norm(xp.stack([a, b], axis=-1)))


@one_program
def covariance(mean: Array, terms: Terms) -> tuple[Array, Array]:
    """Covariance of the inputs in units of each, no square of which may underflow, and these."""
    unit = binary_unit(standard_deviation(mean, terms))
    identity = namespace(mean).eye(mean.shape[-1], dtype=mean.dtype)
    return gram(root(*columns(identity / unit[..., None], terms))), unit


@one_program
def variance(mean: Array, terms: Terms) -> tuple[Array, Array]:
    """Variances of the inputs in squares of units, and these units."""
    return squares_in_units(standard_deviation(mean, terms))


def cross_covariance(rows: Array, terms: Terms) -> Array:
    """Covariances of linear outputs ``(..., N_y, N_x)`` with the inputs, no matrix of inputs."""

    def of_term(term: InputTerm) -> Array:
        moving = rows[..., term.start : term.stop]
        if term.is_diagonal:
            return _unit(term) * (moving * term.factor[..., None, :] ** 2)
        return _unit(term) * matmul(matmul(moving, term.factor), term.factor.mT)

    return _combined(terms, of_term, rows)


@one_program
def half_width(mean: Array, terms: Terms) -> Array:
    """Half-widths of the supports of uniform terms, in shape as the means."""

    def sums(term: InputTerm) -> Array:
        size: Array = abs(term.factor)
        return size if term.is_diagonal else size.sum(axis=-1)

    return _combined(terms, sums, mean)


def are_independent(terms: Terms, among: NDArray[np.bool_]) -> bool:
    """Whether no term makes one of these inputs depend on another input; of known values only."""
    return all(
        term.is_diagonal or _has_independent_rows(term, among[term.start : term.stop])
        for term in terms
    )


def _has_independent_rows(term: InputTerm, among: NDArray[np.bool_]) -> bool:
    rows = np.asarray(term.factor)
    if term.is_uniform:
        # Inputs that share a uniform variable depend on each other, uncorrelated ones as well.
        is_shared = np.count_nonzero(rows, axis=-2, keepdims=True) > 1
        return not np.any((rows != 0) & is_shared & among[:, None])
    for matrix in rows.reshape(-1, *rows.shape[-2:]):
        moving = np.flatnonzero(np.any(matrix != 0, axis=-1))
        chosen = moving[among[moving]]
        # More vectors than dimensions are never orthogonal: no matrix of inputs times inputs.
        if len(chosen) > matrix.shape[-1]:
            return False
        if np.any((matrix[chosen] @ matrix[moving].T)[chosen[:, None] != moving]):
            return False
    return True


@partial(jax.jit, static_argnames="sample_shape")
def draw_deviation(key: Array, sample_shape: tuple[int, ...], mean: Array, terms: Terms) -> Array:
    """Draws of the inputs about their means, shape ``sample_shape + mean.shape``."""
    # Each part has its own key, so adding one part leaves the draws of the other unchanged.
    key_uniform, key_normal = jax.random.split(key)
    num_uniform, num_normal = num_variables(terms)
    shape = (*sample_shape, *mean.shape[:-1])
    uniform = jax.random.uniform(key_uniform, (*shape, num_uniform), mean.dtype, minval=-1)
    normal = jax.random.normal(key_normal, (*shape, num_normal), mean.dtype)
    return deviation(uniform, normal, mean, terms)


def deviation(uniform: Array, normal: Array, mean: Array, terms: Terms) -> Array:
    """Inputs about their means, at given values of the standard variables."""
    lead = np.broadcast_shapes(np.shape(uniform)[:-1], np.shape(normal)[:-1], np.shape(mean)[:-1])
    ends = {True: 0, False: 0}

    def of_term(term: InputTerm) -> Array:
        start = ends[term.is_uniform]
        ends[term.is_uniform] = stop = start + term.factor.shape[-1]
        values = jnp.asarray(uniform if term.is_uniform else normal)[..., start:stop]
        values = jnp.broadcast_to(values, (*lead, stop - start))
        return term.factor * values if term.is_diagonal else matvec(term.factor, values)

    dtype = float_dtype(mean, uniform, normal)
    return _combined(terms, of_term, jnp.zeros((*lead, mean.shape[-1]), dtype))


def _combined(
    terms: Iterable[InputTerm],
    of_term: Callable[[InputTerm], Array],
    like: Array,
    combine: Callable[[Array, Array], Array] = operator.add,
) -> Array:
    """Combine what the terms give for the inputs that they move, zero for the others.

    Parameters
    ----------
    terms, of_term
        The terms, and what one of them gives.
    like
        An array like the result, whose last axes are the inputs.
    combine
        Makes one array of that of some terms and what another term gives.
    """
    total: Any = namespace(like).zeros_like(like)
    for term in terms:
        where = (..., slice(term.start, term.stop))
        new = combine(total[where], of_term(term))
        if isinstance(total, np.ndarray):
            total[where] = new
        else:
            total = lax.dynamic_update_slice_in_dim(total, new, term.start, axis=-1)
    return total


def _unit(term: InputTerm) -> float:
    """Variance of a standard variable."""
    return UNIFORM_VARIANCE if term.is_uniform else 1.0
