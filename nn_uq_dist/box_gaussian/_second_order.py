r"""The correction of next order to the log density of expectation propagation.

The ratio of the density to that of expectation propagation has an expansion in the standardized
cumulants :math:`\kappa_l`, from the third on, of the laws of the uniforms in the box; the first two
cumulants are those of the normal law. With its correlations :math:`\rho` the second order is

.. math:: \sum_{l = 3, 4} \frac{1}{2\, l!} \sum_{i \ne j}
          \kappa_{l,i} \kappa_{l,j} \rho_{ij}^l

(M. Opper, U. Paquet and O. Winther, J. Mach. Learn. Res. 14, 2013). It is not stationary in the
sites, so its gradients would take as many passes again; `log_evidence` does not include it.
"""

import jax
import jax.numpy as jnp
from jax import Array

from nn_uq_dist.basics._blocks import in_blocks
from nn_uq_dist.basics._row_algebra import matmul
from nn_uq_dist.box_gaussian._evidence import BLOCK_SIZE, log_evidence, solve
from nn_uq_dist.box_gaussian._expectation_propagation import cavity
from nn_uq_dist.box_gaussian._gaussian_part import (
    Problem,
    flattened,
    input_covariance,
    of_one_shape,
    undifferentiated,
)
from nn_uq_dist.box_gaussian._own_units import in_own_units


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


def corrected_log_evidence(deviation: Array, weights: Array, covariance: Array | None) -> Array:
    """`log_evidence` with its second order, for outputs in their own units; without gradients."""
    logs, correction = _both(deviation, weights, covariance)
    return logs + correction


def _both(deviation: Array, weights: Array, covariance: Array | None) -> tuple[Array, Array]:
    if covariance is None and weights.shape[-1] <= weights.shape[-2]:
        # The density is exact, or an error is raised.
        exact = log_evidence(deviation, weights, covariance)
        return exact, jnp.zeros_like(exact)
    problem = of_one_shape(deviation, weights, covariance)
    shape = problem.deviation.shape[:-1]
    logs, correction = _of_points(undifferentiated(flattened(problem)))
    return logs.reshape(shape), correction.reshape(shape)


@jax.jit
def _of_points(problem: Problem) -> tuple[Array, Array]:
    return in_blocks(_of_block, problem, size=BLOCK_SIZE)


def _of_block(problem: Problem) -> tuple[Array, Array]:
    logs, found = solve(problem)
    law, sites = found.law, found.sites
    hole = cavity(law, sites)
    cumulants = hole.skewness_and_kurtosis()
    spread = input_covariance(problem, sites, law.root)
    scale = jnp.sqrt(law.precision)
    correlation = jnp.clip(spread * scale[..., None] * scale[..., None, :], -1.0, 1.0)
    others = correlation * (1.0 - jnp.eye(spread.shape[-1], dtype=spread.dtype))
    terms = [
        jnp.sum(k * matmul(others**order, k[..., None])[..., 0], axis=-1) / (2.0 * factorial)
        for k, order, factorial in zip(cumulants, (3, 4), (6.0, 24.0), strict=True)
    ]
    total = jnp.where(jnp.isnan(logs), jnp.nan, terms[0] + terms[1])
    return logs, jnp.where(jnp.isneginf(logs), 0.0, total)
