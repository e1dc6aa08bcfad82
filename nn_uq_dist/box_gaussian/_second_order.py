r"""The correction of next order to the log density of expectation propagation.

The ratio of the density to that of expectation propagation has an expansion in the standardized
cumulants :math:`\kappa_l`, from the third on, of the laws of the uniforms in the box; the first two
cumulants are those of the normal law. With its correlations :math:`\rho` the second order is

.. math:: \sum_{l = 3, 4} \frac{1}{2\, l!} \sum_{i \ne j}
          \kappa_{l,i} \kappa_{l,j} \rho_{ij}^l

(M. Opper, U. Paquet and O. Winther, J. Mach. Learn. Res. 14, 2013). It is not stationary in the
sites, so its gradients would take as many passes again; `log_evidence` does not include it.

Pairs of uniforms that the outputs see in the same direction, those of a triangular input, are
corrected to all orders. The outputs depend on such a pair by a sum :math:`x = a u_i + b u_j` alone.
Given the sites of the others, its likelihood is normal, :math:`N(x; c, v)`, so the integral over
both intervals is that of a trapezoid times a normal density. Expectation propagation has two sites
there instead, whose product is not a function of the sum: its log density is off by up to .08 for a
single pair. The logarithm of the ratio of both integrals, added to the log density, is the
correction for one pair of factors in the same expansion.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from nn_uq_dist.basics._blocks import in_blocks
from nn_uq_dist.basics._row_algebra import matmul, norm
from nn_uq_dist.box_gaussian._evidence import BLOCK_SIZE, interval_terms, log_evidence, solve
from nn_uq_dist.box_gaussian._expectation_propagation import cavity
from nn_uq_dist.box_gaussian._gaussian_part import (
    Posterior,
    Problem,
    Sites,
    flattened,
    input_covariance,
    of_one_shape,
    undifferentiated,
)
from nn_uq_dist.box_gaussian._own_units import in_own_units
from nn_uq_dist.box_gaussian._tilted_moments import tilted_moments

type Pairs = tuple[tuple[int, int], ...]


def second_order(deviation: Array, weights: Array, covariance: Array | None) -> Array:
    """Correction of `log_evidence` at a point, which estimates its error.

    Parameters
    ----------
    deviation : Array, shape (..., d)
    weights : Array, shape (..., d, n)
    covariance : Array, shape (..., d, d), or None

    Returns
    -------
    Array, shape (...)
        Zero outside of the support, NaN where `log_evidence` is NaN.

    Raises
    ------
    NotImplementedError
        For derivatives.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from nn_uq_dist.box_gaussian import log_evidence, second_order
    >>> weights, covariance = jnp.array([[1.0, 1.0]]), jnp.array([[1e-4]])  # nearly a triangle
    >>> value = log_evidence(jnp.array([1.5]), weights, covariance)
    >>> better = value + second_order(jnp.array([1.5]), weights, covariance)
    >>> print(f"{jnp.exp(value):.3f} {jnp.exp(better):.3f}")  # of 0.125
    0.136 0.124
    """
    given = in_own_units(deviation, weights, covariance)
    return _both(given.deviation, given.weights, given.covariance)[1]


def corrected_log_evidence(
    deviation: Array, weights: Array, covariance: Array | None, pairs: Pairs = ()
) -> Array:
    """`log_evidence` with its second order, for outputs in their own units; without gradients.

    Of ``pairs`` of uniforms with parallel columns the correction is to all orders.
    """
    logs, correction = _both(deviation, weights, covariance, pairs)
    return logs + correction


def _both(
    deviation: Array, weights: Array, covariance: Array | None, pairs: Pairs = ()
) -> tuple[Array, Array]:
    if covariance is None and weights.shape[-1] <= weights.shape[-2]:
        # The density is exact, or an error is raised.
        exact = log_evidence(deviation, weights, covariance)
        return exact, jnp.zeros_like(exact)
    problem = of_one_shape(deviation, weights, covariance)
    shape = problem.deviation.shape[:-1]
    logs, correction = _of_points(undifferentiated(flattened(problem)), pairs)
    return logs.reshape(shape), correction.reshape(shape)


@partial(jax.jit, static_argnames="pairs")
def _of_points(problem: Problem, pairs: Pairs) -> tuple[Array, Array]:
    return in_blocks(partial(_of_block, pairs=pairs), problem, size=BLOCK_SIZE)


def _of_block(problem: Problem, pairs: Pairs) -> tuple[Array, Array]:
    logs, found = solve(problem)
    law, sites = found.law, found.sites
    hole = cavity(law, sites)
    cumulants = hole.skewness_and_kurtosis()
    spread = input_covariance(problem, sites, law.root)
    scale = jnp.sqrt(law.precision)
    correlation = jnp.clip(spread * scale[..., None] * scale[..., None, :], -1.0, 1.0)
    others = correlation * (1.0 - jnp.eye(spread.shape[-1], dtype=spread.dtype))
    of_pairs = jnp.zeros_like(scale[..., 0])
    if pairs:
        single = interval_terms(law, sites)
        ratios, is_known = _pair_correction(problem.weights, law, spread, sites, single, pairs)
        of_pairs = jnp.sum(ratios, axis=-1)
        i, j = np.array(pairs).T
        for places in ((..., i, j), (..., j, i)):
            others = others.at[places].multiply(jnp.where(is_known, 0.0, 1.0))
    terms = [
        jnp.sum(k * matmul(others**order, k[..., None])[..., 0], axis=-1) / (2.0 * factorial)
        for k, order, factorial in zip(cumulants, (3, 4), (6.0, 24.0), strict=True)
    ]
    total = jnp.where(jnp.isnan(logs), jnp.nan, terms[0] + terms[1] + of_pairs)
    return logs, jnp.where(jnp.isneginf(logs), 0.0, total)


def _pair_correction(
    weights: Array, law: Posterior, covariance: Array, sites: Sites, terms: Array, pairs: Pairs
) -> tuple[Array, Array]:
    """Compare the integrals over two intervals with those of their sites.

    Parameters
    ----------
    weights : Array, shape (..., d, n)
        The columns of a pair are parallel.
    law : Posterior
    covariance : Array, shape (..., n, n)
        Of the uniforms, under the sites.
    sites : Sites
    terms : Array, shape (..., n)
        Logarithms of the integrals over single intervals, relative to those of their sites.
    pairs : tuple of pairs of int

    Returns
    -------
    log_ratio : Array, shape (..., p)
        What is added to the log density for each pair; zero where it is not known.
    is_known : Array of bool, shape (..., p)
        False where the outputs do not see a variable of the pair, or see the sum so sharply that
        the covariance has no digits left.
    """
    i, j = np.array(pairs).T
    sizes = norm(weights.mT)
    a, b = sizes[..., i], sizes[..., j]
    sign = jnp.where(jnp.sum(weights[..., i] * weights[..., j], axis=-2) < 0, -1.0, 1.0)
    own = jnp.diagonal(covariance, axis1=-2, axis2=-1)
    first, second, shared = own[..., i], own[..., j], sign * covariance[..., i, j]
    means = law.mean[..., i], sign * law.mean[..., j]
    determinant = first * second - shared * shared
    eps = float(jnp.finfo(own.dtype).eps)
    is_known = (a > 0) & (b > 0) & (determinant > 1e3 * eps * first * second)
    is_known &= -shared > 1e2 * eps * jnp.sqrt(first * second)
    a, b, determinant = (jnp.where(is_known, part, 1.0) for part in (a, b, determinant))
    # Without the sites, what is left of the precision of the pair is that of the sum.
    precision = jnp.where(is_known, -shared / (determinant * a * b), 1.0)
    slope = ((second * means[0] - shared * means[1]) / determinant - sites.slope[..., i]) / a
    center = slope / precision
    gap = a * means[0] + b * means[1] - center
    ratio = _log_trapezoid(center, precision, a, b) - terms[..., i] - terms[..., j]
    ratio = ratio + 0.5 * (precision * gap * gap - jnp.log(determinant))
    is_known &= jnp.isfinite(ratio)
    return jnp.where(is_known, ratio, 0.0), is_known


def _log_trapezoid(center: Array, precision: Array, a: Array, b: Array) -> Array:
    """Log integral of the density of ``a u + b u'`` times ``exp(-precision gap^2/2)``."""
    wide, narrow = jnp.maximum(a, b), jnp.minimum(a, b)
    end, step = wide + narrow, wide - narrow

    def piece(distance: Array, width: Array) -> tuple[Array, Array]:
        """Log mass and mean of the normal factor on (0, width), its center at the distance."""
        point = jnp.clip(distance, 0.0, width)
        gap = distance - point
        found = tilted_moments(precision, precision * gap, -point, width - point)
        return found.log_mass - 0.5 * precision * gap * gap, point + found.mean

    total = piece(center + step, 2.0 * step)[0] - jnp.log(2.0 * wide)
    for distance in (end + center, end - center):
        mass, mean = piece(distance, 2.0 * narrow)
        # The density rises from zero at the end, so the mean tells its integral.
        total = jnp.logaddexp(total, mass + jnp.log(mean) - jnp.log(4.0 * wide * narrow))
    return total
