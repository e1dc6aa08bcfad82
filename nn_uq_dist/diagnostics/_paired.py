"""What pairs add to the table of `summary`: sharper statistics and a sharper distance."""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.diagnostics._estimates import Distance
from nn_uq_dist.sampling._control_variates import standard_error
from nn_uq_dist.sampling._linear_law import LinearLaw
from nn_uq_dist.sampling._paired_draws import PairedDraws
from nn_uq_dist.sampling._paired_statistics import paired_statistics

Array = NDArray[np.float64]

# Sets of random signs over which the noise floor is averaged; it is then accurate to 8%.
_NUM_SIGNS = 16
# Points among the linear outputs at which their law is evaluated, besides the grid of the law.
_NUM_POINTS = 2048


class Paired:
    """Estimates of every output from pairs.

    Parameters
    ----------
    pairs
        Pairs of the outputs; the law that they are compared with need not be their linear law.
    levels
        Levels of the quantiles.
    tail_points
        Lower points, then as many upper ones, a column for each output of each point of a batch.
    grid, cdf
        Points that cover the laws, and the distribution functions there, columns alike.

    Attributes
    ----------
    statistics
        Value, standard error and worth of the moments (mean, sd, skewness, excess kurtosis), the
        quantiles, and the probabilities below the lower points and above the upper ones, shape
        ``(statistics, outputs, 3)``.
    """

    def __init__(
        self, pairs: PairedDraws, levels: Array, tail_points: Array, grid: Array, cdf: Array
    ) -> None:
        found = paired_statistics(pairs)
        shape = pairs.network.shape[1:]
        lower, upper = np.split(tail_points.reshape(-1, *shape), 2)
        below = found.exceedance(lower)
        parts = [
            *(found.mean, found.sd, found.skewness, found.excess_kurtosis),
            found.quantile(levels),
            below._replace(value=1 - below.value),
            found.exceedance(upper),
        ]
        outputs = math.prod(shape)
        self.statistics = np.concatenate(
            [np.stack(part, axis=-1).reshape(-1, outputs, 3) for part in parts]
        )
        self._network, self._linear = (
            np.asarray(part, np.float64).reshape(len(part), -1)
            for part in (pairs.network, pairs.linear)
        )
        # The linear law may reach beyond the other one.
        between = (np.arange(_NUM_POINTS) + 0.5) / _NUM_POINTS
        points = np.concatenate([grid, np.quantile(self._linear, between, axis=0)])
        self._points = np.sort(points, axis=0)
        self._below = LinearLaw(pairs).cdf(self._points)
        self._grid, self._cdf = grid, cdf
        self._num_randomizations = pairs.num_randomizations

    def kolmogorov_smirnov(self, j: int) -> Distance:
        """Controlled distance of an output from its law."""
        points = self._points[:, j]
        law = np.interp(points, self._grid[:, j], self._cdf[:, j], left=0, right=1)
        # The difference of two laws is smoother than either.
        difference = self._below[:, j] - law
        return controlled_kolmogorov_smirnov(
            self._network[:, j],
            self._linear[:, j],
            lambda y: np.interp(y, points, difference, left=0, right=0),
            self._num_randomizations,
        )


def controlled_kolmogorov_smirnov(
    network: Array,
    linear: Array,
    difference: Callable[[Array], Array],
    num_randomizations: int,
) -> Distance:
    r"""Largest difference between the controlled distribution function of a network and a law.

    ``F_l(y) + mean_i (1[y_i <= y] - 1[l_i <= y]) - F(y)``, with ``F_l`` the distribution function
    of the linear law: only the differences within pairs are left to chance.

    Parameters
    ----------
    network, linear
        Outputs, shape ``(n,)``; pairs whose network output is not finite are used for ``l`` only.
    difference
        ``F_l - F``.
    num_randomizations
        Sobol sequences that the pairs consist of, 0 for independent ones.

    Returns
    -------
    Distance
        The standard error is that of the mean where the distance is attained. The noise floor is
        the mean largest value of ``mean_i s_i (d_i(y) - mean d(y))``, with `d` the difference of
        the indicators and `s` random signs: the floor for independent pairs, an upper bound for
        Sobol points. If the network hardly follows its linear model, both may exceed those of plain
        draws; then the plain distance is better.

    References
    ----------
    A. W. van der Vaart and J. A. Wellner, Weak Convergence and Empirical Processes (1996),
    section 2.9: multipliers.
    """
    used = np.isfinite(network)
    count = len(network)
    points = np.concatenate([network[used], linear])
    steps = np.concatenate([np.full(used.sum(), 1 / used.sum()), np.full(count, -1 / count)])
    order = np.argsort(points, kind="stable")
    points, steps = points[order], steps[order]
    last = np.append(np.diff(points) > 0, True)  # jumps at one point count as one
    after = np.cumsum(steps)[last]
    before = np.concatenate([[0.0], after[:-1]])
    law = difference(points[last])
    gaps = np.abs(np.stack([before + law, after + law]))
    widest = int(np.argmax(gaps.max(axis=0)))
    at = points[last][widest]
    counted = np.where(used, network < at, False), linear < at
    if gaps[1, widest] >= gaps[0, widest]:
        counted = np.where(used, network <= at, False), linear <= at
    found = np.where(used, counted[0] - counted[0].sum() / used.sum(), 0) * (count / used.sum())
    indicators = found - counted[1]
    error = standard_error((indicators - indicators.mean()) / count, num_randomizations)
    pair = np.concatenate([np.flatnonzero(used), np.arange(count)])[order]
    generator = np.random.default_rng(0)
    floors = []
    for _ in range(_NUM_SIGNS):
        signs = generator.choice([-1.0, 1.0], count)
        signed = np.cumsum(steps * (signs - signs.mean())[pair])[last]
        floors.append(np.abs(signed).max())
    return Distance(float(gaps.max()), error, float(np.mean(floors)))
