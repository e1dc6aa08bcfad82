r"""Starts of searches for posteriors: points near their modes, and how much these may lack.

Each start minimizes :math:`|z - z_0|^2 + |r(z) + e|^2` with :math:`z_0` from the distribution
before, `r` the misfit in units of the noise, and :math:`e` standard normal: for a linear network
the minima are draws of the posterior (randomized maximum likelihood: D. S. Oliver et al. 1996; Y.
Chen and D. S. Oliver, Math. Geosci. 44, 2012). So they find several modes, and roughly as often as
these weigh.
"""

import dataclasses
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.inference._importance_weights import kmeans_plus_plus, tempered
from nn_uq_dist.inference._standard_space import StandardSpace
from nn_uq_dist.inference._student_mixture import SquaredDistances, StudentMixture, monomials

# Starts that are added at once. Half of the first are among the draws that all observations share,
# far from each other, as the best may all be in one mode.
_NUM_STARTS = 128
_MOST_STEPS = 15
# Relative decrease of the sum of squares below which a start has arrived.
_TOLERANCE = 3e-3
_DAMPING, _CHANGE = 0.1, 5.0
# Least eigenvalue of a precision over its trace: rounding would leave none at smaller ones.
_ROUNDING = 1e-13
# Standard deviations of the squared distance of two draws within which they are neighbors,
# and how many times as far by the precision of the other: with 1, 18% in place of 92% converge for
# 12 outputs of leaky ReLU, as precisions jump at kinks; a sine's next mode is 10,000 times as far.
_NEIGHBORS, _FAR = 4.0, 1000.0
# Starts of a mode up to which it was found by chance.
_SELDOM = 2
# Largest share of the posterior in modes without a start.
MOST_MISSING = 0.02
# Log densities below the largest, in standard deviations of that of a normal posterior, at which a
# start is at no mode that matters.
_START_ERRORS, _START_MARGIN = 3.0, 6.0
# Log densities below this count as -inf, as NaN does: rounded by more than a hundredth, they cannot
# be told apart. Those of outputs that are 1e7 standard deviations of the noise from what was
# observed are.
_LOWEST = -0.01 / np.finfo(float).eps


@dataclasses.dataclass(frozen=True, eq=False)
class Observation:
    """What was observed: outputs ``(N_y,)``, and a matrix that whitens their noise."""

    outputs: FloatArray
    whitening: FloatArray  # (N_y, N_y)

    def misfits(self, outputs: FloatArray) -> FloatArray:
        """Misfits of outputs ``(n, N_y)``, in units of the noise."""
        return (outputs - self.outputs) @ self.whitening.T

    @property
    def log_scale(self) -> float:
        """Log density of the noise at zero."""
        constant = 0.5 * len(self.outputs) * math.log(2 * math.pi)
        return float(np.linalg.slogdet(self.whitening)[1]) - constant


def posterior_starts(
    space: StandardSpace,
    seen: Observation,
    shared: tuple[FloatArray, FloatArray],
    rng: np.random.Generator,
    most_runs: float,
) -> tuple[list[StudentMixture], float]:
    """Two mixtures, each around every other start, and what share of the posterior they may lack.

    There are more starts while modes are missing. Those that may be at no mode that matters are
    left out. The mixtures know nothing of each other.

    Parameters
    ----------
    space
        Keeps all outputs.
    shared
        Standard normal points and their outputs, of which good ones for an observation are starts:
        they lie in regions that are narrow, and that few random starts lead to.
    most_runs
        Runs of the network from which on there are no more starts.
    """
    d, missing, before = space.num_variables, 1.0, space.num_runs
    starts: list[tuple[FloatArray, FloatArray, FloatArray]] = []
    while missing > MOST_MISSING and space.num_runs - before < most_runs:
        random = rng.standard_normal((_NUM_STARTS, d + len(seen.outputs)))
        if not starts:
            # The others from a wider distribution: modes far out matter for variances. Of many
            # inputs no single one does, and wider starts would be far from all modes.
            random[_NUM_STARTS // 2 :, :d] *= 1 + 1 / d
            logs = finite_logs(-0.5 * np.sum(seen.misfits(shared[1]) ** 2, axis=1))
            if np.isfinite(logs).any():
                weights = tempered(logs, _NUM_STARTS)
                rows = kmeans_plus_plus(shared[0], weights, _NUM_STARTS // 2, rng)
                random[: len(rows), :d] = shared[0][rows]

        def misfits(z: FloatArray) -> tuple[FloatArray, FloatArray]:
            outputs, jacobians = space.outputs_and_jacobians(z)
            return seen.misfits(outputs), seen.whitening @ jacobians

        starts.append(randomized_modes(misfits, random[:, :d], random[:, d:]))
        points, precisions, logs = map(np.concatenate, zip(*starts, strict=True))
        lowest = logs.max() - d - _START_ERRORS * math.sqrt(2 * d) - _START_MARGIN
        good = np.flatnonzero((logs >= lowest) & np.isfinite(logs))
        if good.size:
            missing = missing_share(points[good], precisions[good], logs[good])
    mixtures = []
    for rows in (good[good % 2 == 0], good[good % 2 == 1]):
        if rows.size:
            means, scales = points[rows], covariances(precisions[rows])
        else:
            means, scales = np.zeros((1, d)), np.eye(d)[None]
        mixtures.append(StudentMixture.of(np.ones(len(means)), means, scales))
    return mixtures, missing


def finite_logs(logs: FloatArray) -> FloatArray:
    """Log densities, -inf where they are NaN or so low that they cannot be told apart."""
    return np.where(logs > _LOWEST, logs, -np.inf)


def randomized_modes(
    misfits: Callable[[FloatArray], tuple[FloatArray, FloatArray]],
    prior: FloatArray,
    noise: FloatArray,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Minima, their Gauss-Newton precisions, and their log densities.

    Levenberg-Marquardt steps for all starts at once; those that have arrived run no more.

    Parameters
    ----------
    misfits
        Misfits ``(n, N_y)`` in units of the noise and their Jacobians ``(n, N_y, d)``, at points
        ``(n, d)``.
    prior, noise
        Random numbers of each start, shapes ``(n, d)`` and ``(n, N_y)``.

    Returns
    -------
    points : array, shape (n, d)
    precisions : array, shape (n, d, d)
    log_densities : array, shape (n,)
        Of the posterior, up to a constant; -inf where the network or its Jacobian is not finite.
    """
    count, d = prior.shape

    def evaluated(
        z: FloatArray, index: NDArray[np.intp]
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        misfit, jacobian = misfits(z)
        cost = _cost(z - prior[index], misfit + noise[index])
        has_slope = np.isfinite(np.sum(jacobian**2, axis=(1, 2)))
        return misfit, jacobian, np.where(has_slope, cost, np.inf)

    z, damping = prior.copy(), np.full(count, _DAMPING)
    misfit, jacobian, cost = map(np.array, evaluated(z, np.arange(count)))
    active = np.flatnonzero(np.isfinite(cost))
    for _ in range(_MOST_STEPS):
        if active.size == 0:
            break
        matrix = _precision(jacobian[active])
        slope = z[active] - prior[active]
        slope = slope + np.einsum("noi,no->ni", jacobian[active], misfit[active] + noise[active])
        diagonal = np.einsum("nii->ni", matrix) * damping[active, None]
        step = np.linalg.solve(matrix + diagonal[:, :, None] * np.eye(d), slope[..., None])[..., 0]
        new = z[active] - step
        new_misfit, new_jacobian, new_cost = evaluated(new, active)
        better = new_cost < cost[active]
        arrived = better & (cost[active] - new_cost < _TOLERANCE * (1 + new_cost))
        rows = active[better]
        z[rows], cost[rows] = new[better], new_cost[better]
        misfit[rows], jacobian[rows] = new_misfit[better], new_jacobian[better]
        damping[active] *= np.where(better, 1 / _CHANGE, _CHANGE)
        active = active[~arrived]
    log_density = -_cost(z, misfit)
    return z, _precision(jacobian), np.where(np.isfinite(cost), log_density, -np.inf)


def missing_share(points: FloatArray, precisions: FloatArray, log_densities: FloatArray) -> float:
    """Share of the posterior in modes that no start has reached, as the starts tell.

    The share of probability, or of the variance of an input, if that is larger. The modes that one
    start alone has reached weigh about as much as those that none has (I. J. Good, Biometrika 40,
    1953). Modes that two have reached are counted, too: a start reaches heavy modes only somewhat
    more often than others. Starts are at one mode if a chain of neighbors links them, whose
    distances are those of draws of a normal distribution; modes weigh as normal ones.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    d = points.shape[1]
    # Each in the precision of its row.
    squares = SquaredDistances(precisions, points)(points, monomials(points))
    most = 2 * (d + _NEIGHBORS * np.sqrt(2 * d))
    near = squares < most
    # At an extreme of the network the precision is none, and all other starts are near.
    near &= (squares < _FAR * most).T
    labels = connected_components(csr_array(near), directed=False)[1]
    numbers = np.bincount(labels)
    # The height of a mode, by its best start, times the volume of its starts in the middle: at an
    # extreme one of them may have a volume without bound.
    heights = np.full(len(numbers), -np.inf)
    np.maximum.at(heights, labels, log_densities)
    log_volumes = -0.5 * np.linalg.slogdet(precisions)[1]
    order = np.lexsort((log_volumes, labels))
    logs = heights + log_volumes[order][np.cumsum(numbers) - 1 - numbers // 2]
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    # Starts of a mode share its weight.
    each = (weights / numbers)[labels]
    spread = each[:, None] * (points - each @ points) ** 2
    within = np.einsum("n,nii->i", each, covariances(precisions))
    seldom = numbers <= _SELDOM
    of_variance = spread[seldom[labels]].sum(axis=0) / (spread.sum(axis=0) + within)
    return float(max(weights[seldom].sum(), of_variance.max()))


def covariances(precisions: FloatArray) -> FloatArray:
    """Inverses, symmetric and with no negative eigenvalue, whatever the rounding."""
    values, vectors = np.linalg.eigh(precisions)
    return (vectors / np.maximum(values, 1.0)[:, None, :]) @ vectors.mT


def _cost(deviation: FloatArray, misfit: FloatArray) -> FloatArray:
    cost = 0.5 * (np.sum(deviation**2, axis=1) + np.sum(misfit**2, axis=1))
    return np.where(np.isnan(cost), np.inf, cost)


def _precision(jacobian: FloatArray) -> FloatArray:
    of_misfit = jacobian.mT @ jacobian
    of_prior = np.maximum(_ROUNDING * np.einsum("nii->n", of_misfit), 1)
    return of_prior[:, None, None] * np.eye(jacobian.shape[2]) + of_misfit
