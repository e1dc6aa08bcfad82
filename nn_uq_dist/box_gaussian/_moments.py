"""Given some outputs: moments of the inputs behind them and of other outputs.

The normal distribution from expectation propagation has standard deviations that are off by 5 to
16% if few outputs with little noise are near the corners of the box. The distribution of one input
alone is, up to a constant, the joint density with that input held fixed, which is far more accurate
(B. Cseke and T. Heskes, J. Mach. Learn. Res. 12, 2011): its moments are taken by quadrature.
Correlations remain those of the normal distribution. The same works for other outputs with a normal
part; without one the density is too rough at corners, and nothing is gained.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from nn_uq_dist.basics.quadrature_nodes import legendre
from nn_uq_dist.basics.row_algebra import matmul, matvec, solve_lower
from nn_uq_dist.basics.summary_line import summary_line
from nn_uq_dist.box_gaussian._expectation_propagation import fixed_point
from nn_uq_dist.box_gaussian._gaussian_part import (
    batch_shape,
    input_covariance,
    normal_factor,
    undifferentiated,
    whitened,
)
from nn_uq_dist.box_gaussian._log_density import corrected_log_evidence

# Of the quadrature, how far it looks in standard deviations, and how far the log density falls.
_NODES = 20
_REACH = 6.5
_FALL = 14.0


class OwnDensity(NamedTuple):
    """What the density of each entry alone says of its moments.

    Attributes
    ----------
    shift, factor : Array, shape (..., n)
        To be added to the mean, and to multiply the standard deviation.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from nn_uq_dist.box_gaussian import OwnDensity
    >>> OwnDensity(jnp.zeros(2), jnp.ones(2)).factor.shape
    (2,)
    """

    shift: Array
    factor: Array


def by_own_density(
    mean: Array,
    scale: Array,
    log_density: Callable[[Array], Array],
    ends: tuple[ArrayLike, ArrayLike],
) -> OwnDensity:
    """Mean and variance of each entry from its own density, up to a constant, relative to others.

    Parameters
    ----------
    mean, scale : Array, shape (..., n)
        Mean and standard deviation, roughly: where to look.
    log_density : callable
        Maps values of all entries, shape ``(..., n)``, to the log density of each alone.
    ends : tuple of array_like
        Ends of the supports.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from nn_uq_dist.box_gaussian import by_own_density
    >>> ends = -jnp.inf, jnp.inf
    >>> change = by_own_density(jnp.zeros(1), jnp.ones(1), lambda x: -((x - 0.5) ** 2) / 2, ends)
    >>> print(change.shift.round(2), change.factor.round(2))
    [0.5] [1.]
    """
    low = jnp.maximum(mean - _REACH * scale, ends[0])
    high = jnp.minimum(mean + _REACH * scale, ends[1])
    points, logs = _nodes_that_matter(log_density, low, high)
    mass = legendre(_NODES, mean)[1] * jnp.exp(logs - jnp.max(logs, axis=0))
    mass = mass / jnp.sum(mass, axis=0)
    # Relative to the mean, so that variances are not differences, and in units of the scale, whose
    # square may underflow.
    gap = (points - mean) / scale
    shift = jnp.sum(mass * gap, axis=0)
    factor = jnp.sqrt(jnp.sum(mass * (gap - shift) ** 2, axis=0))
    # An entry that the known outputs determine has no density of its own.
    has_density = jnp.isfinite(shift) & jnp.isfinite(factor)
    return OwnDensity(
        jnp.where(has_density, shift * scale, 0.0), jnp.where(has_density, factor, 1.0)
    )


def _nodes_that_matter(
    log_density: Callable[[Array], Array], low: Array, high: Array
) -> tuple[Array, Array]:
    """Gauss-Legendre nodes between the points where the density ends, and its logarithms there.

    With little noise a density may end within hundredths of its standard deviation, which only
    nodes next to the ends resolve. So the ends are sought twice: among points from `low` to `high`,
    and among points between the outermost one that matters and its neighbor.
    """
    nodes = 0.5 * (1.0 + legendre(_NODES, low)[0])
    share = np.linspace(0, 1, _NODES // 2, dtype=low.dtype).reshape(-1, *(1,) * low.ndim)

    def look(ends: tuple[Array, ...], is_last: Array) -> tuple[tuple[Array, ...], Any]:
        # The density matters from `first` to `last`, not below `low` or above `high`; the largest
        # log density found so far is `top`.
        low, first, last, high, top = ends
        around = jnp.concatenate([low + (first - low) * share, last + (high - last) * share])
        points = jnp.where(is_last, low + (high - low) * nodes, around)
        logs = lax.map(log_density, points)
        logs = jnp.where(jnp.isnan(logs), -jnp.inf, logs)
        top = jnp.maximum(top, jnp.max(logs, axis=0))
        matters = logs > top - _FALL
        start = jnp.argmax(matters, axis=0)
        stop = _NODES - 1 - jnp.argmax(matters[::-1], axis=0)

        places = jnp.stack([start - 1, start, stop, stop + 1])
        around = jnp.take_along_axis(points, jnp.clip(places, 0, _NODES - 1), axis=0)
        return (*around, top), (points, logs)

    middle = 0.5 * (low + high)
    ends: tuple[Array, ...] = (low, middle, middle, high, jnp.full_like(low, -jnp.inf))
    _, (points, logs) = lax.scan(look, ends, jnp.array([False, False, True]))
    return points[-1], logs[-1]


class Moments(NamedTuple):
    """Mean (..., n) and covariance (..., n, n).

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from nn_uq_dist.box_gaussian import Moments
    >>> Moments(jnp.zeros(2), jnp.eye(2)).covariance.shape
    (2, 2)
    """

    mean: Array
    covariance: Array

    def __repr__(self) -> str:
        return summary_line(self)

    def corrected(
        self, log_density: Callable[[Array], Array], ends: tuple[ArrayLike, ArrayLike]
    ) -> "Moments":
        """Means and variances by the densities of single entries, correlations as they are."""
        scale = jnp.sqrt(jnp.diagonal(self.covariance, axis1=-2, axis2=-1))
        shift, factor = by_own_density(self.mean, scale, log_density, ends)
        spread = factor[..., None] * self.covariance * factor[..., None, :]
        return Moments(self.mean + shift, spread)


def uniform_moments(deviation: Array, weights: Array, normal_weights: Array | None) -> Moments:
    """Moments of the uniforms given outputs by the passes alone, shape (..., n); or NaN.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from nn_uq_dist.box_gaussian import uniform_moments
    >>> moments = uniform_moments(jnp.array([0.5]), jnp.array([[1.0]]), jnp.array([[1e-2]]))
    >>> print(moments.mean.round(2))
    [0.5]
    """
    problem = undifferentiated(whitened(deviation, weights, normal_weights)[0])
    solution = fixed_point(problem)
    spread = input_covariance(problem, solution.sites, solution.gaussian.root)
    valid = (solution.converged & ~solution.outside)[:, None]
    shape = (*batch_shape(deviation, weights, normal_weights), weights.shape[-1])
    return Moments(
        jnp.where(valid, solution.gaussian.mean, jnp.nan).reshape(shape),
        jnp.where(valid[..., None], spread, jnp.nan).reshape(*shape, shape[-1]),
    )


class Regression(NamedTuple):
    r"""Other outputs as ``columns u + gain r`` plus a normal part, given deviations ``r`` of some.

    Attributes
    ----------
    columns : Array, shape (..., e, n)
        :math:`W_r - G W_k`.
    gain : Array, shape (..., e, d), or None
        :math:`G = S_{0,rk} S_{0,kk}^{-1}`; None without a normal part.
    spread : Array, shape (..., e, e), or None
        :math:`S_{0,rr} - G S_{0,kr}`.
    """

    columns: Array
    gain: Array | None
    spread: Array | None

    def of_inputs(self, inputs: Array, deviation: Array) -> Array:
        """The part explained by the uniforms and the known outputs."""
        explained = matvec(self.columns, inputs)
        return explained if self.gain is None else explained + matvec(self.gain, deviation)


def regression(weights: Array, normal_weights: Array | None, known: int) -> Regression:
    """Regression of the other outputs on the first ``known`` ones, by their normal parts.

    Parameters
    ----------
    weights : Array, shape (..., d + e, n)
    normal_weights : Array, shape (..., d + e, m), or None
    known : int
        ``d``.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from nn_uq_dist.box_gaussian import regression
    >>> others = regression(jnp.array([[1.0], [2.0]]), jnp.array([[1.0, 0.0], [0.5, 1.0]]), 1)
    >>> print(others.columns, others.gain)
    [[1.5]] [[0.5]]
    """
    seen, others = weights[..., :known, :], weights[..., known:, :]
    if normal_weights is None:
        return Regression(others, None, None)
    factor = normal_factor(weights, normal_weights, known)
    below, left = factor[..., known:, :known], factor[..., known:, known:]
    gain = solve_lower(factor[..., :known, :known], below.mT, transposed=True).mT
    return Regression(others - matmul(gain, seen), gain, matmul(left, left.mT))


def output_moments(deviation: Array, weights: Array, normal_weights: Array | None) -> Moments:
    """`moments_given_outputs` by the passes alone.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from nn_uq_dist.box_gaussian._moments import output_moments
    >>> weights = jnp.array([[1.0, 1.0], [1.0, 0.0]])  # a sum, and one of its two terms
    >>> bool(jnp.allclose(output_moments(jnp.array([1.0]), weights, None).mean, 0.5, atol=1e-3))
    True
    """
    known = deviation.shape[-1]
    seen = None if normal_weights is None else normal_weights[..., :known, :]
    uniforms = uniform_moments(deviation, weights[..., :known, :], seen)
    others = regression(weights, normal_weights, known)
    spread = matmul(matmul(others.columns, uniforms.covariance), others.columns.mT)
    mean = others.of_inputs(uniforms.mean, deviation)
    return Moments(mean, spread if others.spread is None else spread + others.spread)


@jax.jit
def posterior_moments(deviation: Array, weights: Array, normal_weights: Array | None) -> Moments:
    """Mean and covariance of the uniforms behind observed outputs, each from its own density.

    Parameters
    ----------
    deviation : Array, shape (..., d)
    weights : Array, shape (..., d, n)
    normal_weights : Array, shape (..., d, m), or None

    Returns
    -------
    Moments
        NaN where the passes have not converged.

    Raises
    ------
    NotImplementedError
        For derivatives.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from nn_uq_dist.box_gaussian import posterior_moments
    >>> weights, noise = jnp.array([[1.0, 1.0]]), jnp.array([[0.1]])
    >>> moments = posterior_moments(jnp.array([1.5]), weights, noise)
    >>> print(f"{moments.mean[0]:.3f}")  # two inputs of sum 1.5, neither beyond 1
    0.740
    """
    moments = uniform_moments(deviation, weights, normal_weights)
    # A uniform is removed by a zero weight, so that all problems have the same shape.
    one_left = 1.0 - jnp.eye(weights.shape[-1], dtype=weights.dtype)
    others = weights[..., None, :, :] * one_left[:, None, :]

    def log_density(inputs: Array) -> Array:
        rest = deviation[..., None, :] - inputs[..., None] * weights.mT
        normal = None if normal_weights is None else normal_weights[..., None, :, :]
        return corrected_log_evidence(rest, others, normal)

    return moments.corrected(log_density, (-1.0, 1.0))


@jax.jit
def moments_given_outputs(
    deviation: Array, weights: Array, normal_weights: Array | None
) -> Moments:
    """Mean and covariance of other outputs given the first ones; means relative to the prior means.

    Parameters
    ----------
    deviation : Array, shape (..., d)
        Deviations of the known outputs.
    weights : Array, shape (..., d + e, n)
        Weights of all outputs, the known ones first, in units near their own size.
    normal_weights : Array, shape (..., d + e, m), or None

    Returns
    -------
    Moments
        Moments of the other outputs, ``e`` of them; NaN where the passes have not converged.

    Raises
    ------
    NotImplementedError
        For derivatives.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from nn_uq_dist.box_gaussian import moments_given_outputs
    >>> weights, noise = jnp.array([[1.0, 1.0], [1.0, 0.0]]), 0.1 * jnp.eye(2)
    >>> moments = moments_given_outputs(jnp.array([1.5]), weights, noise)
    >>> print(f"{moments.mean[0]:.3f}")  # one of two terms of the sum 1.5, observed with noise
    0.740
    """
    known = deviation.shape[-1]
    moments = output_moments(deviation, weights, normal_weights)
    # Means of the uniforms from their own densities do not reproduce the known outputs, which
    # matters if an output is nearly determined. So each output also uses its own density.
    if normal_weights is None:
        return moments
    rows = np.array([[*range(known), j] for j in range(known, weights.shape[-2])])
    uniforms, normals = weights[..., rows, :], normal_weights[..., rows, :]

    def log_density(outputs: Array) -> Array:
        seen = jnp.broadcast_to(deviation[..., None, :], (*outputs.shape, known))
        values = jnp.concatenate([seen, outputs[..., None]], axis=-1)
        return corrected_log_evidence(values, uniforms, normals)

    return moments.corrected(log_density, (-np.inf, np.inf))
