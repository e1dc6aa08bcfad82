r"""Distribution functions of weighted samples: probabilities, quantiles, distances.

For pairs the normal score `u` of the linear output is standard normal. At a point `y` that a
question names, the regression gets one more column, ``P(Y <= y | u)`` by a line fitted near the
point and its residuals `r`:

.. math:: c(u) = \frac 1 m \sum_r \mathbf 1[u \le t_r], \qquad a + b\,t_r + r = y, \qquad
    E\,c = \frac 1 m \sum_r \Phi(t_r).

Its mean value is exact, however good the line is (model-assisted estimation: C.-E. Sarndal, B.
Swensson and J. Wretman, Model Assisted Survey Sampling (1992)). In a trained network strata of `u`,
the same for all points, had 80% of its gain at the median and nothing beyond the 99% point.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.sampling.weighted_sample import Mask, PairedEstimate, WeightedSample

# Number of quantiles that represent the residuals of a line.
_NUM_RESIDUALS = 16
# Pairs that a line is fitted to: this many times n^0.6, 32 of 100 and 500 of 10,000.
_WINDOW = 2.0
# Least slope of the line, in standard deviations of the output near the point: if it hardly follows
# its linear model, the residuals describe it.
_LEAST_SLOPE = 0.02
# Draws that say that the coefficient of this column is 1, as it is if the line is right: of a rare
# event the draws themselves tell it badly.
_PRIOR = 1.0
# Draws added to those that make an error: that none was seen does not make it impossible. Two for
# plain draws (A. Agresti and B. A. Coull, Amer. Statist. 52 (1998)); for pairs half a draw for a
# difference to either side (A. Agresti and Y. Min, Biometrics 57 (2001)).
_ADDED_DRAWS, _ADDED_PAIRS = 2.0, 1.0
# Points around a quantile, up to this many plain standard errors of its level away.
_NUM_NEAR, _SPAN = 9, 3.0
# The density at a quantile comes from the values this many standard errors to either side.
_NUM_ERRORS = 2.0
# Draws of pairs at which distribution functions are compared.
_NUM_POINTS = 64
# Numbers of events and of columns at a time.
_MOST_NUMBERS = 2**15
# Sets of random signs over which a noise floor is averaged; it is then accurate to 8%.
_NUM_SIGNS = 16

# From points, to a column of mean value 0 for each.
type Columns = Callable[[FloatArray], FloatArray]


def conditional_columns(scores: FloatArray, y: FloatArray, used: Mask) -> Columns:
    """A function of points ``(p,)``: columns ``P(Y <= point | u)`` minus their mean values.

    Parameters
    ----------
    scores
        Normal scores of the linear output, shape ``(n,)``.
    y, used
        The output, and the draws that the lines are fitted to.

    Returns
    -------
    Callable
        It returns an array of shape ``(p, n)``.
    """
    by_score = np.argsort(scores)
    order, in_order, ascending = by_score[used[by_score]], scores[by_score], np.sort(y[used])
    size = min(order.size, int(np.ceil(_WINDOW * order.size**0.6)))
    chosen = ((np.arange(_NUM_RESIDUALS) + 0.5) / _NUM_RESIDUALS * size).astype(int)
    shares = 1 - np.arange(_NUM_RESIDUALS + 1) / _NUM_RESIDUALS
    tiny = np.finfo(np.float64).tiny

    def columns(points: FloatArray) -> FloatArray:
        first = np.searchsorted(ascending, points) - size // 2
        near = order[np.clip(first, 0, order.size - size)[:, None] + np.arange(size)]
        u, value = scores[near], y[near]
        from_mean = u - u.mean(axis=1, keepdims=True)
        slope = np.sum(from_mean * value, axis=1) / np.maximum(np.sum(from_mean**2, axis=1), tiny)
        slope = np.maximum(slope, _LEAST_SLOPE * value.std(axis=1) + tiny)
        # Where lines through the draws attain the point: the residuals need no intercept.
        roots = np.sort(u + (points[:, None] - value) / slope[:, None], axis=1)[:, chosen]
        ends = np.searchsorted(in_order, roots, side="right")
        lengths = np.diff(ends, axis=1, prepend=0, append=scores.size)
        levels = shares - ndtr(roots).mean(axis=1)[:, None]
        predicted = np.empty((points.size, scores.size))
        for row, steps in zip(predicted, zip(levels, lengths, strict=True), strict=True):
            row[by_score] = np.repeat(*steps)
        return predicted

    return columns


def below(
    sample: WeightedSample, y: FloatArray, points: FloatArray, columns: Columns | None
) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Probabilities ``P(Y < y) / 2 + P(Y <= y) / 2``, and what the regression leaves of each draw.

    These are the probabilities of `exceedances`, in the middles of steps: for some points at a
    time, so that many points need little memory.
    """
    size = max(1, _MOST_NUMBERS // y.size)
    for start in range(0, points.size, size):
        some = points[start : start + size]
        events = np.add(y < some[:, None], y <= some[:, None], dtype=np.float64)
        events *= 0.5
        yield _regressed(sample, events, columns and columns(some))


def _regressed(
    sample: WeightedSample, events: FloatArray, columns: FloatArray | None
) -> tuple[FloatArray, FloatArray]:
    """Shares of events, and what the regression leaves of their influence functions."""
    share = sample.mean(events)
    left = sample.residuals(sample.of_all(events - share[..., None]))
    if columns is not None:
        column = sample.residuals(columns)
        slope = (np.vecdot(left, column) + _PRIOR) / (np.vecdot(column, column) + _PRIOR)
        share = share - slope * (columns @ sample.weights)
        left -= slope[..., None] * column
    return np.clip(share, 0, 1), left


def proportion(
    sample: WeightedSample, events: Mask | FloatArray, columns: FloatArray | None = None
) -> PairedEstimate:
    """Probabilities of events.

    Parameters
    ----------
    sample
        The weighted sample.
    events
        Shape ``(..., n)``.
    columns
        One more column for each event, of mean value 0, that predicts its indicator.
    """
    share, left = _regressed(sample, events.astype(np.float64), columns)
    count, is_plain = int(sample.used.sum()), sample.num_columns == 0
    error = proportion_error(sample.error(left) ** 2, count, is_plain=is_plain)
    plain = proportion_error(share * (1 - share) / count, count, is_plain=is_plain)
    return PairedEstimate(share, error, count * (plain / error) ** 2)


def proportion_error(variance: FloatArray, count: int, *, is_plain: bool = True) -> FloatArray:
    """Standard error of a proportion, never zero."""
    added = _ADDED_DRAWS if is_plain else _ADDED_PAIRS
    error: FloatArray = np.sqrt(variance + added / count**2)
    return error


def exceedances(
    sample: WeightedSample, y: FloatArray, points: FloatArray, columns: Columns | None = None
) -> PairedEstimate:
    """Probabilities ``P(Y > y)`` at points, shape ``(p,)``; `conditional_columns` for pairs."""
    return proportion(sample, y > points[:, None], columns and -columns(points))


def quantiles(
    sample: WeightedSample, y: FloatArray, levels: FloatArray, columns: Columns | None = None
) -> PairedEstimate:
    """Quantiles, shape ``(q,)``: values at which the distribution function attains levels.

    It goes through the middles of its steps, linear between them (``method="hazen"`` of
    ``numpy.quantile``, with weights); negative weights are made up for by the next ones. With
    `conditional_columns` the function of `exceedances` is inverted within three plain standard
    errors. Its difference to the function of the draws is taken for linear between points of equal
    probability, not equally spaced ones, as the density may jump. The standard error is that of the
    probability over the density, for which the values two standard errors of the probability below
    and above serve (R. S. Woodruff, J. Amer. Statist. Assoc. 47 (1952)). NaN where less than one
    draw is expected beyond.
    """
    draws = y[sample.used]
    order = np.argsort(draws, kind="stable")
    draws, weights = draws[order], sample.weights[sample.used][order]
    ranks = np.maximum.accumulate((np.cumsum(weights) - weights / 2) / weights.sum())
    plain = levels * (1 - levels) / draws.size
    error = proportion_error(plain, draws.size, is_plain=sample.num_columns == 0)
    worth = np.full(levels.shape, float(draws.size))
    # A column for each level: ranks of the draws, and what the distribution function is there.
    places = probabilities = np.broadcast_to(ranks[:, None], (draws.size, levels.size))

    def rank_of(levels: FloatArray) -> FloatArray:
        rows = zip(levels, probabilities.T, places.T, strict=True)
        return np.array([np.interp(*row) for row in rows])

    def attained(levels: FloatArray) -> FloatArray:
        return np.interp(rank_of(levels), ranks, draws)

    def near(middle: FloatArray, width: FloatArray) -> tuple[FloatArray, FloatArray]:
        places = np.linspace(middle - width, middle + width, _NUM_NEAR)
        places = np.clip(places, ranks[0], ranks[-1])
        parts = below(sample, y, np.interp(places.ravel(), ranks, draws), columns)
        shares = np.concatenate([share for share, _ in parts]).reshape(places.shape)
        return places, np.maximum.accumulate(shares, axis=0)

    if columns is not None:
        places, probabilities = near(levels, _SPAN * error)
        # Between two of these points the functions differ by a Brownian bridge, which may be more
        # than the error: so the level is sought again, within three of its standard deviations.
        bridge = np.sqrt(2 * _SPAN * error / (_NUM_NEAR - 1) / draws.size) / 2
        _, error, worth = exceedances(sample, y, attained(levels), columns)
        places, probabilities = near(rank_of(levels), _SPAN * np.fmax(error, bridge))
    # Not beyond the support, where there is no density.
    low = np.maximum(levels - _NUM_ERRORS * error, levels / 4)
    high = np.minimum(levels + _NUM_ERRORS * error, 1 - (1 - levels) / 4)
    value, left, right = attained(levels), attained(low), attained(high)
    is_enough = draws.size * np.minimum(levels, 1 - levels) >= 1
    error = np.where(is_enough, error * (right - left) / (high - low), np.nan)
    return PairedEstimate(value, error, worth)


class Distance(NamedTuple):
    """A distance of draws from a distribution, its error, and its expected value if they agree."""

    value: float
    standard_error: float
    noise_floor: float


def kolmogorov_smirnov(probabilities: FloatArray) -> Distance:
    """Largest difference between the distribution functions of plain draws and of a distribution.

    Parameters
    ----------
    probabilities
        ``F(y)`` of the distribution at the draws, shape ``(n,)``.

    Returns
    -------
    Distance
        The standard error is that of the empirical function where the distance is attained, valid
        when the distributions differ. The noise floor is the mean of the Kolmogorov distribution.
        All three are NaN if a probability is NaN.
    """
    count, distribution = probabilities.size, np.sort(probabilities)
    ranks = np.arange(count + 1) / count
    gaps = np.maximum(ranks[1:] - distribution, distribution - ranks[:-1])
    widest = int(np.argmax(gaps))  # stops at the first NaN
    if np.isnan(gaps[widest]):
        return Distance(np.nan, np.nan, np.nan)
    level = ranks[widest + int(ranks[widest + 1] - distribution[widest] == gaps[widest])]
    error = proportion_error(level * (1 - level) / count, count)
    return Distance(float(gaps[widest]), float(error), kolmogorov_noise_floor(count))


def kolmogorov_noise_floor(count: int) -> float:
    """Mean Kolmogorov-Smirnov distance between this many draws and their own distribution."""
    return float(np.sqrt(np.pi / 2) * np.log(2) / np.sqrt(count))


def paired_kolmogorov_smirnov(
    sample: WeightedSample, y: FloatArray, probabilities: FloatArray, columns: Columns | None
) -> Distance:
    """The same distance from pairs, by the function of `exceedances`, at the middles of its steps.

    At most 64 of the draws are looked at. The noise floor is the mean largest value of the same
    function with each draw's part of the error multiplied by a random sign, which for Sobol points
    is an upper bound (A. W. van der Vaart and J. A. Wellner, Weak Convergence and Empirical
    Processes (1996), section 2.9: multipliers).
    """
    order = np.flatnonzero(sample.used)
    order = order[np.argsort(y[order])]
    chosen = np.linspace(0, order.size - 1, min(order.size, _NUM_POINTS)).round().astype(int)
    points = order[chosen]
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (_NUM_SIGNS, y.size))
    parts = [
        (share, left @ (sample.enlarged * signs).T)
        for share, left in below(sample, y, y[points], columns)
    ]
    share, noise = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    gaps = np.abs(share - probabilities[points])
    widest = np.argmax(gaps)
    error = exceedances(sample, y, y[points[[widest]]], columns).standard_error
    return Distance(float(gaps[widest]), float(error[0]), float(np.abs(noise).max(axis=0).mean()))
