"""The correlation of normal scores for the joint law of a linearization, and its repair."""

from typing import Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from jax.typing import ArrayLike

from nn_uq_dist.basics._checks import is_concrete
from nn_uq_dist.basics._summary_line import summary_line
from nn_uq_dist.gaussian_copula._correlation_checks import require_positive_definite
from nn_uq_dist.gaussian_copula._nataf import nataf_correlation
from nn_uq_dist.gaussian_copula._nearest_correlation import checked_floor, nearest_correlation

Method = Literal["nataf", "linear"]


class CopulaCorrelation(NamedTuple):
    """Result of `Linearization.copula_correlation`.

    Attributes
    ----------
    matrix : Array, shape (..., N_y, N_y)
        Correlation of the normal scores, as `Linearization.gaussian_copula` uses it.
    target : Array, shape (..., N_y, N_y)
        Correlation of the outputs under the linear law, noise included.
    attainable : Array of bool, shape (..., N_y, N_y)
        False where no Gaussian copula can give the outputs that correlation.
    moved : Array, shape (...)
        Largest change that the repair made to an entry.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from nn_uq_dist import InputLaw, Linearization
    >>> lin = Linearization([0.0, 0.0], [[1.0, 2.0], [2.0, 1.0]], InputLaw(jnp.zeros(2), 1.0))
    >>> fit = lin.copula_correlation()
    >>> print(fit.target[0, 1].round(3), fit.matrix[0, 1].round(3), fit.moved)
    0.8 0.804 0.0
    """

    matrix: Array
    target: Array
    attainable: Array
    moved: Array

    def __repr__(self) -> str:
        return summary_line(self)


def copula_correlation(
    marginals: dist.Distribution,
    target: Array,
    method: object,
    min_eigenvalue: ArrayLike | None,
) -> CopulaCorrelation:
    """Match the correlation of the scores to ``target``, and put a floor under its eigenvalues."""
    # Compare as text: a matrix passed by mistake must not be compared entry by entry.
    if str(method) not in get_args(Method):
        raise ValueError(
            f"correlation must be 'nataf' or 'linear', got {method!r}; for a matrix of your own "
            f"use GaussianCopulaJoint(lin.marginals(), matrix)"
        )
    floor = None if min_eigenvalue is None else checked_floor(min_eigenvalue, target.dtype)
    if method == "nataf":
        matched, attainable = nataf_correlation(marginals, target)
    else:
        matched, attainable = target, jnp.ones(target.shape, bool)
    if floor is None:
        matrix = matched
    elif method == "nataf":
        matrix = nearest_correlation(matched, floor)
    else:
        matrix = _shrunk(matched, floor)
    if floor is None or (is_concrete(floor) and floor == 0):
        require_positive_definite(
            "the correlation of the outputs",
            matrix,
            "pass min_eigenvalue > 0 to allow repair, noise_scale > 0, or fewer outputs",
        )
    return CopulaCorrelation(matrix, target, attainable, _largest_change(matrix, matched))


@jax.jit
def _shrunk(correlation: Array, floor: Array) -> Array:
    """``(1 - floor) R + floor I``: smooth, and enough for a semidefinite ``R``."""
    diagonal = jnp.eye(correlation.shape[-1], dtype=bool)
    return jnp.where(diagonal, 1, (1 - floor) * correlation)


@jax.jit
def _largest_change(matrix: Array, before: Array) -> Array:
    return jnp.max(jnp.abs(matrix - before), axis=(-2, -1))
