"""The tables of a joint summary: calibration, correlations."""

from functools import partial
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.basics.chunks import in_padded_chunks
from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.diagnostics import _verdict
from nn_uq_dist.diagnostics.arguments import NetworkDraws
from nn_uq_dist.diagnostics.output_functions import LARGEST_SCORE, POINTS_PER_CALL, Tails
from nn_uq_dist.distributions import JointDistribution
from nn_uq_dist.sampling import PairedDraws, paired_statistics
from nn_uq_dist.sampling.distribution_functions import kolmogorov_noise_floor, kolmogorov_smirnov


def rosenblatt_scores(joint: JointDistribution, tails: Tails) -> FloatArray:
    """Normal scores of each output given those before it, shape ``(n, N_y)``.

    Draws beyond the support have infinite scores; they are clipped at 38 so that means stay finite.
    """
    arrays = (tails.points, tails.normal_scores())
    white = in_padded_chunks(partial(_rosenblatt, joint), *arrays, size=POINTS_PER_CALL)
    # Given an impossible value, the other outputs have no distribution.
    is_impossible = np.isnan(white) & tails.is_outside.any(axis=1, keepdims=True)
    white = np.where(is_impossible, np.inf, white)
    return np.where(np.isinf(white), np.copysign(LARGEST_SCORE, white), white)


@jax.jit
def _rosenblatt(joint: JointDistribution, value: jax.Array, scores: jax.Array) -> jax.Array:
    return joint.rosenblatt_from_scores(value, scores)


def prefix(kind: str) -> str:
    """The name of a joint distribution in names of columns."""
    return kind.replace(" ", "_")


def calibration_columns(white: FloatArray, white_linear: FloatArray, kind: str) -> dict[str, Any]:
    """Columns of the table of calibration, from the scores of the network's and of linear draws.

    If the joint distribution is right, they are independent and standard normal.
    """
    size = white.shape[1]
    distance, p_value = from_uniform(white)
    of_linear, linear_p_value = from_uniform(white_linear)
    described = np.hstack([white, np.sum(white**2, axis=1, keepdims=True) / size])
    return {
        "ks": distance,
        "noise_floor": kolmogorov_noise_floor(len(white)),
        f"{prefix(kind)}_ks": of_linear,
        f"{prefix(kind)}_noise_floor": kolmogorov_noise_floor(len(white_linear)),
        "dominates": [
            _verdict.dominating_part(*numbers, kind, size + 1)
            for numbers in zip(distance, p_value, of_linear, linear_p_value, strict=True)
        ],
        "p_value": p_value,
        "mean": described.mean(axis=0),
        "sd": described.std(axis=0, ddof=1),
    }


def from_uniform(white: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Distances of the outputs and of the radius from uniform, and their p-values.

    A p-value is that of the most significant of three tests, times three: Kolmogorov and Smirnov's,
    a mean of 0, a variance of 1. For the radius the second is that of a mean of `N_y`, and there is
    no third.
    """
    from scipy.special import chdtr, chdtrc, gammainc, ndtr
    from scipy.stats import kstwo

    count, size = white.shape
    radius = np.sum(white**2, axis=1, keepdims=True)
    uniform = np.hstack([ndtr(white), gammainc(size / 2, radius / 2)])
    distance = np.array([kolmogorov_smirnov(column).value for column in uniform.T])
    p_value = kstwo.sf(distance, count)
    of_mean = 2 * ndtr(-np.abs(white.mean(axis=0)) * np.sqrt(count))
    squares, freedom = np.sum((white - white.mean(axis=0)) ** 2, axis=0), count - 1
    of_sd = 2 * np.minimum(chdtr(freedom, squares), chdtrc(freedom, squares))
    total = radius.sum()
    of_radius = 2 * min(chdtr(count * size, total), chdtrc(count * size, total))
    least = np.minimum(p_value, np.append(np.minimum(of_mean, of_sd), of_radius))
    return distance, np.minimum(3 * least, 1.0)


def correlation_matrices(
    draws: NetworkDraws, complete: NDArray[Any], linear: FloatArray, joint: FloatArray, kind: str
) -> dict[str, FloatArray]:
    """Correlation matrices of the three distributions, and their differences.

    Pairs carry more information than the complete rows of their draws.
    """
    worth: dict[str, FloatArray] = {}
    if isinstance(draws, PairedDraws):
        network, error, worth["worth"] = paired_statistics(draws).correlation
    else:
        network, error = sample_correlation(complete)
    return {
        "monte_carlo": network,
        "standard_error": error,
        **worth,
        "linear": linear,
        prefix(kind): joint,
        "linearization_error": linear - network,
        f"{prefix(kind)}_error": joint - linear,
    }


def sample_correlation(draws: NDArray[Any]) -> tuple[FloatArray, FloatArray]:
    r"""Correlation matrix of the rows, and the standard errors of its entries.

    To first order in ``1/n`` a correlation `r` is the average of its influence function
    ``z_i z_j - r (z_i^2 + z_j^2) / 2`` of the standardized draw, whose variance needs only the
    fourth moments. These are taken from the sample: no normality is assumed. For normal draws the
    standard error is the textbook ``(1 - r^2) / sqrt(n)`` (H. Cramer, Mathematical Methods of
    Statistics (1946)). Both are NaN for constant columns.
    """
    count = len(draws)
    x = draws.astype(np.float64)
    largest = np.abs(x).max(axis=0)
    x /= np.where(largest > 0, largest, 1)  # the squares of small numbers would be zero
    z = x - x.mean(axis=0)
    scale = z.std(axis=0)
    # The spread of a constant column is only rounding error.
    scale = np.where(scale > 4 * np.finfo(np.float64).eps, scale, np.nan)
    z /= scale
    square = z * z
    r, m22, m31 = (part.T @ other / count for part, other in
                   ((z, z), (square, square), (square * z, z)))  # fmt: skip
    m40 = np.diag(m22)
    variance = m22 - r * (m31 + m31.T) + r**2 / 4 * (m40[:, None] + 2 * m22 + m40)
    error = np.sqrt(np.maximum(variance, 0) / count)
    r = np.clip(r, -1, 1)
    np.fill_diagonal(error, np.where(np.isnan(scale), np.nan, 0))
    np.fill_diagonal(r, np.where(np.isnan(scale), np.nan, 1))
    return r, error
