r"""Distribution functions of weighted samples: probabilities, quantiles, distances from a law.

For pairs the weights are calibrated to the normal score ``u`` of the linear output, which is
standard normal: to the probabilities of strata of it (post-stratification), besides the two moments
of the output itself. At a point `y` that a question names, one more column is ``P(Y <= y | u)`` by
a line fitted near the point and its residuals `r`,

.. math:: c(u) = \frac 1 m \sum_r \mathbf 1[u \le t_r], \qquad a + b\,t_r + r = y, \qquad
    E\,c = \frac 1 m \sum_r \Phi(t_r),

whose mean value is exact, however good the line is.
"""

from typing import NamedTuple

import numpy as np

from nn_uq_dist.sampling._weighted_sample import Array, Mask, PairedEstimate, WeightedSample

# Strata: a quarter of the root of the number of draws, so that the draws in each grow faster; with
# more, rare events have larger errors. The outermost have this many draws.
_STRATA_PER_ROOT, _FEWEST_STRATA, _OUTERMOST_DRAWS = 0.25, 6, 25
# Number of quantiles that represent the residuals of a line.
_NUM_RESIDUALS = 16
# Pairs that a line is fitted to: this many times n^0.6, 32 of 100 and 500 of 10,000.
_WINDOW = 2.0
# Least slope of the line, in standard deviations of the output near the point: if it hardly follows
# its linear model, the residuals describe it.
_LEAST_SLOPE = 0.02
# Draws that say that the coefficient of this column is 1, as it is if the prediction is right: of a
# rare event the draws themselves tell it badly.
_PRIOR = 1.0
# Draws added to those that make an error: that none was seen does not make it impossible. Two for
# plain draws (A. Agresti and B. A. Coull, Amer. Statist. 52 (1998)), half a draw for pairs, whose
# differences are few where the linear model is good (A. Agresti and Y. Min, Biometrics 57 (2001)).
_ADDED_DRAWS, _ADDED_PAIRS = 2.0, 0.5
# The density at a quantile comes from the values this many standard errors to either side.
_REACH = 2.0
# Sets of random signs over which a noise floor is averaged; it is then accurate to 8%.
_NUM_SIGNS = 16


def strata_columns(scores: Array) -> Array:
    """Columns of mean value 0 for the strata of standard normal scores, ``(n,)`` to ``(k, n)``."""
    from scipy.special import ndtr, ndtri

    last = -ndtri(min(1 / 3, _OUTERMOST_DRAWS / scores.size))
    count = max(_FEWEST_STRATA, round(_STRATA_PER_ROOT * scores.size**0.5))
    edges = np.linspace(-last, last, count - 1)
    return (scores <= edges[:, None]) - ndtr(edges)[:, None]


def conditional_columns(scores: Array, y: Array, used: Mask, points: Array) -> Array:
    """Columns ``P(Y <= point | u)`` minus their mean values, shape ``(p, n)``."""
    from scipy.special import ndtr

    order = np.flatnonzero(used)[np.argsort(scores[used], kind="stable")]
    size = min(order.size, int(np.ceil(_WINDOW * order.size**0.6)))
    levels = (np.arange(_NUM_RESIDUALS) + 0.5) / _NUM_RESIDUALS
    columns = np.empty((points.size, y.size))
    ranks = np.searchsorted(np.sort(y[used]), points)
    for column, point, rank in zip(columns, points, ranks, strict=True):
        start = int(np.clip(rank - size // 2, 0, order.size - size))
        near = order[start : start + size]
        u, value = scores[near] - scores[near].mean(), y[near] - y[near].mean()
        spread = float(value.std()) or 1.0
        slope = max(float(u @ value) / (float(u @ u) or 1.0), _LEAST_SLOPE * spread)
        residuals = np.quantile(value - slope * u, levels)
        at = scores[near].mean() + (point - y[near].mean() - residuals[::-1]) / slope
        column[:] = 1 - np.searchsorted(at, scores) / levels.size - ndtr(at).mean()
    return columns


def proportion(
    sample: WeightedSample, events: Mask | Array, columns: Array | float = 0.0
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
    share = sample.mean(events)
    influence = sample.of_all(events - share[..., None])
    left, column = sample.residuals(influence), sample.residuals(columns + 0 * influence)
    slope = (np.sum(left * column, axis=-1) + _PRIOR) / (np.sum(column**2, axis=-1) + _PRIOR)
    share = np.clip(share - slope * (columns * sample.weights).sum(axis=-1), 0, 1)
    variance = sample.error(left - slope[..., None] * column) ** 2
    error = proportion_error(sample, variance)
    plain = proportion_error(sample, share * (1 - share) / sample.used.sum())
    return PairedEstimate(share, error, sample.used.sum() * (plain / error) ** 2)


def proportion_error(sample: WeightedSample, variance: Array) -> Array:
    """Standard error of a proportion, never zero."""
    added = _ADDED_PAIRS if len(sample.basis) else _ADDED_DRAWS
    error: Array = np.sqrt(variance + added / sample.used.sum() ** 2)
    return error


def below(
    sample: WeightedSample, y: Array, points: Array, scores: Array | None = None
) -> PairedEstimate:
    """Probabilities ``P(Y <= y)`` at points, shape ``(p,)``; scores as for `quantiles`."""
    columns: Array | float = 0.0
    if scores is not None:
        columns = conditional_columns(scores, y, sample.used, points)
    return proportion(sample, y <= points[:, None], columns)


def quantiles(
    sample: WeightedSample, y: Array, levels: Array, scores: Array | None = None
) -> PairedEstimate:
    """Quantiles, shape ``(q,)``: values at which the distribution function attains levels.

    It goes through the middles of its steps, linear between them (``method="hazen"`` of
    ``numpy.quantile``, with weights); negative weights are made up for by the next ones. With
    normal scores of the linear outputs it is shifted by what the column at the uncorrected quantile
    changes. The standard error is that of the probability over the density, for which the values
    two standard errors of the probability below and above serve (R. S. Woodruff, J. Amer. Statist.
    Assoc. 47 (1952)). NaN where less than one draw is expected beyond.
    """
    draws = y[sample.used]
    order = np.argsort(draws, kind="stable")
    draws, weights = draws[order], sample.weights[sample.used][order]
    ranks = np.maximum.accumulate((np.cumsum(weights) - weights / 2) / weights.sum())

    def attained(at: Array) -> Array:
        return np.interp(at, ranks, draws)

    share, error = levels, proportion_error(sample, levels * (1 - levels) / draws.size)
    worth, found = np.full(levels.shape, float(draws.size)), levels
    if scores is not None:
        events = y <= attained(levels)[:, None]
        columns = conditional_columns(scores, y, sample.used, attained(levels))
        share, error, worth = proportion(sample, events, columns)
        found = sample.mean(events)
    # Not beyond the support, where there is no density.
    low = np.maximum(levels - _REACH * error, levels / 4)
    high = np.minimum(levels + _REACH * error, 1 - (1 - levels) / 4)
    value, left, right = (attained(at + found - share) for at in (levels, low, high))
    is_enough = draws.size * np.minimum(levels, 1 - levels) >= 1
    error = np.where(is_enough, error * (right - left) / (high - low), np.nan)
    return PairedEstimate(value, error, worth)


class Distance(NamedTuple):
    """A distance between a law and draws, its error, and its expected value if they agree."""

    value: float
    standard_error: float
    noise_floor: float


def kolmogorov_smirnov(sample: WeightedSample, probabilities: Array) -> Distance:
    """Largest difference between the distribution functions of a sample and of a law.

    Parameters
    ----------
    sample
        The weighted sample.
    probabilities
        ``F(y)`` of the law at the draws, shape ``(n,)``; those that are not used do not matter.

    Returns
    -------
    Distance
        The standard error is that of the sample's function where the distance is attained, valid
        when the laws differ. The noise floor of plain draws is the mean of the Kolmogorov law; else
        the mean largest value of the same function with each draw's part of the error multiplied by
        a random sign, which for Sobol points is an upper bound (A. W. van der Vaart and J. A.
        Wellner, Weak Convergence and Empirical Processes (1996), section 2.9: multipliers). All
        three are NaN if a probability is NaN.
    """
    order = np.flatnonzero(sample.used)
    order = order[np.argsort(probabilities[order], kind="stable")]
    law = probabilities[order]
    after = np.cumsum(sample.weights[order]) / sample.weights[order].sum()
    last = np.append(np.diff(law) > 0, True)  # draws at one point count as one
    law, after = law[last], after[last]
    before = np.append(0.0, after[:-1])
    gaps = np.maximum(np.abs(after - law), np.abs(law - before))
    widest = int(np.argmax(gaps))  # stops at the first NaN
    at = law[widest]
    is_below = np.abs(at - before[widest]) > np.abs(after[widest] - at)
    events = probabilities < at if is_below else probabilities <= at
    if np.isnan(gaps[widest]):
        return Distance(np.nan, np.nan, np.nan)
    floor = kolmogorov_noise_floor(order.size)
    if len(sample.basis):
        signs = np.random.default_rng(0).choice([-1.0, 1.0], (_NUM_SIGNS, sample.used.size))
        parts = sample.of_all(sample.residuals(signs * sample.enlarged))[:, order]
        sums = np.cumsum(parts - parts.mean(axis=1, keepdims=True), axis=1)
        floor = float(np.abs(sums[:, last]).max(axis=1).mean())
    return Distance(float(gaps[widest]), float(proportion(sample, events).standard_error), floor)


def kolmogorov_noise_floor(count: int) -> float:
    """Mean Kolmogorov-Smirnov distance between this many draws and their own law."""
    return float(np.sqrt(np.pi / 2) * np.log(2) / np.sqrt(count))
