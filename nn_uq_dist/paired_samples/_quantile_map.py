"""The monotone map that takes draws of one law to draws of another, from paired samples."""

from typing import NamedTuple

import numpy as np

from nn_uq_dist.basics._known_values import FloatArray as Array
from nn_uq_dist.basics._summary_line import summary_line
from nn_uq_dist.paired_samples._increasing_values import increasing, smooth_slopes
from nn_uq_dist.paired_samples._score_bins import ScoreBins, influence, sample_averages
from nn_uq_dist.paired_samples._smoothing import Points, smooth

# Shrinkage of the noise covariance towards its diagonal: correlations of many averages estimated
# from few draws are unreliable.
_SHRINKAGE = 0.5
# Number of draws of its own that the noise of its neighbors is worth to a bin.
_DRAWS_OF_NEIGHBORS = 4.0
# Prior weights of coefficients of the control: zero, one for all bins, one for each bin. And the
# number of draws in a bin that do not count as evidence for its own coefficient.
_PRIOR, _FEWEST_INSIDE = np.array([0.02, 0.96, 0.02]), 4.0


class QuantileMap(NamedTuple):
    """Knots of the map from linear to network outputs.

    Attributes
    ----------
    linear, network
        Quantiles of both at the knots, ascending, shape ``(J, k)``.
    shift
        The correction at the knots, before the map was made to increase, ``(J, k)``.
    rest
        Averages over the bins of the correction that the control leaves, not smoothed, ``(J, m)``.
    standard_error
        Standard error of these averages, ``(J, m)``.
    flattened
        Share of the knots at which the estimated map would decrease, ``(J,)``.

    Examples
    --------
    >>> import numpy as np
    >>> from nn_uq_dist.paired_samples import QuantileMap
    >>> one = np.ones((1, 2))
    >>> print(QuantileMap(0 * one, one, one, one, 0.1 * one, np.zeros(1)).standard_error)
    [[0.1 0.1]]
    """

    linear: Array
    network: Array
    shift: Array
    rest: Array
    standard_error: Array
    flattened: Array

    def __repr__(self) -> str:
        return summary_line(self)


class LinearQuantiles(NamedTuple):
    """Quantiles of the linear law, shapes ``(q, J)``, ``(k, J)`` and ``(J,)``."""

    at_nodes: Array  # of `ScoreBins.nodes`
    at_centers: Array  # of `ScoreBins.centers`
    at_knots: Array  # of the map
    mean: Array
    sd: Array


def estimate_map(
    network: Array,
    control: Array,
    linear: LinearQuantiles,
    surface: Array | None,
    bins: ScoreBins,
    num_randomizations: int = 0,
) -> QuantileMap:
    """Estimate the map from pairs.

    Parameters
    ----------
    network, control
        Paired draws of the network's outputs and of outputs that predict them, both ``(n, J)``.
    linear
        Quantiles of the exactly known law.
    surface
        Quantile function of the control minus that of the linear law, averaged over the bins, shape
        ``(m, J)``; ``None`` if they are equal.
    bins
        The bins, with the knots of the map.
    num_randomizations
        As in `PairedDraws`: the noise of quasi-random draws is estimated between randomizations.

    Examples
    --------
    >>> import numpy as np
    >>> from nn_uq_dist.paired_samples import ScoreBins, estimate_map
    >>> from nn_uq_dist.paired_samples._quantile_map import LinearQuantiles
    >>> normal = np.random.default_rng(0).normal(size=(400, 1))
    >>> bins = ScoreBins.for_samples(400)
    >>> scores = (bins.nodes, bins.centers, bins.knots)
    >>> linear = LinearQuantiles(*(z[:, None] for z in scores), np.zeros(1), np.ones(1))
    >>> found = estimate_map(1 + 2 * normal, normal, linear, None, bins)
    >>> print(np.interp([-1.0, 0.0, 1.0], found.linear[0], found.network[0]).round(1))
    [-1.  1.  3.]
    """
    knots = bins.knots
    known = bins.averages(linear.at_nodes)
    if surface is not None:
        known = known + surface
    found, residual = _controlled(network, control, known, bins)
    count, size = network.shape[0], bins.centers.size
    spare = size if count > 2 * size else 1
    noise = np.einsum("knj,lnj->jkl", residual, residual) / (count * max(count - spare, 1))
    ratio = np.ones(network.shape[1])
    if num_randomizations > 1:
        ratio = _noise_ratio(network, control, num_randomizations)
        noise = noise * ratio[:, None, None]
    diagonal = np.diagonal(noise, axis1=-2, axis2=-1)
    noise = (1 - _SHRINKAGE) * noise + _SHRINKAGE * np.eye(size) * diagonal[:, None, :]

    info = np.finfo(np.float64)
    floor = 8 * float(info.eps) * (linear.sd + np.abs(linear.mean)) + float(info.tiny) ** 0.5
    at_centers, at_knots = (
        ((values - linear.mean) / (linear.sd + floor)).T
        for values in (linear.at_centers, linear.at_knots)
    )
    difference = (found - known).T
    # The bins themselves, then the knots.
    wanted = Points(
        np.concatenate([bins.centers, knots]), np.concatenate([at_centers, at_knots], axis=-1)
    )
    smoothed = smooth(difference, noise, Points(bins.centers, at_centers), wanted, floor)
    at_bins, shift = smoothed[:, :size], smoothed[:, size:]
    shift = shift + _tail_residuals(difference - at_bins, bins, knots)
    if surface is not None:
        # The knots beyond the last bin have its shift.
        shift = shift + np.concatenate([surface[[0, 0]], surface, surface[[-1, -1]]]).T
    shift = _at_centers(shift)
    base = linear.at_knots.T
    quantiles = hold_in_interval(base + shift, network, knots, ratio)
    certain = -np.log(diagonal + floor[:, None] ** 2) @ _hats(knots, bins.centers)
    mapped, flattened = increasing(base, quantiles)
    mapped = smooth_slopes(base, mapped, quantiles, certain, knots)
    # The smoothing uses the noise as estimated: with more noise it would shrink the tails.
    error = np.sqrt(_steadied(diagonal, count * bins.widths))
    return QuantileMap(base, mapped, shift, difference, error, flattened)


def _steadied(variance: Array, inside: Array) -> Array:
    """Variances of the averages; those from few draws are raised towards their neighbors.

    A variance from two draws may be tiny by chance.
    """
    each = variance * inside
    padded = np.concatenate([each[:, 1:2], each, each[:, -2:-1]], axis=-1)
    beside = (padded[:, :-2] + padded[:, 2:]) / 2
    mixed = (inside * each + _DRAWS_OF_NEIGHBORS * beside) / (inside + _DRAWS_OF_NEIGHBORS)
    raised: Array = np.where(each > 0, np.maximum(mixed, each), each) / inside
    return raised


def _tail_residuals(residual: Array, bins: ScoreBins, knots: Array) -> Array:
    """The part of the two outermost bins at each end that the smoothing removed, at the knots.

    The smoothing treats rare large differences as noise, but they matter for the standard
    deviation. The part fades out towards the middle, and towards the last knot.
    """
    centers = bins.centers
    lower = _hats(knots, np.concatenate([knots[:1], centers[:3]]))
    upper = _hats(-knots, np.concatenate([-knots[-1:], -centers[:-4:-1]]))
    fading = np.concatenate([lower[1:3], upper[1:3]])
    found: Array = residual[:, [0, 1, -1, -2]] @ fading
    return found


def _hats(at: Array, corners: Array) -> Array:
    """Piecewise linear functions: each is 1 at its corner and 0 at the others."""
    return np.stack([np.interp(at, corners, row) for row in np.eye(corners.size)])


def _controlled(
    network: Array, control: Array, known: Array, bins: ScoreBins
) -> tuple[Array, Array]:
    """Averages for the network by regression on those of the control, and the residuals."""
    ordered = np.sort(network, axis=0), np.sort(control, axis=0)
    of_network, of_control = (sample_averages(part, bins) for part in ordered)
    a, b = influence(network, ordered[0], bins), influence(control, ordered[1], bins)
    slope = _coefficients(a, b, network.shape[0] * bins.widths)
    found = of_network - slope * (of_control - known)
    return found, a - slope[:, None] * b


def _coefficients(a: Array, b: Array, num_inside: Array) -> Array:
    """Coefficients of the control in each bin, shape ``(m, J)``, from influence functions.

    A smooth map needs one coefficient for all bins, and with few draws in a bin, a coefficient of
    its own would be fitted to their noise. But where the network saturates, its quantiles hardly
    scatter, and the control would only add noise. So three choices are averaged: zero, one
    coefficient for all bins, and one for each bin, weighted by the likelihood of the residuals.
    """
    own, scatter = np.sum(a * b, axis=1), np.sum(b * b, axis=1)
    total = np.sum(scatter, axis=0)
    common = np.sum(own, axis=0) / np.where(total > 0, total, 1)
    own = own / np.where(scatter > 0, scatter, 1)
    slopes = np.stack([np.zeros_like(own), common + np.zeros_like(own), own])
    left = np.stack([np.sum((a - slope[:, None] * b) ** 2, axis=1) for slope in slopes])
    tiny = np.finfo(np.float64).tiny ** 0.5
    surplus = np.maximum(num_inside - _FEWEST_INSIDE, 1)[:, None]
    ratio = (left + tiny) / (np.min(left, axis=0) + tiny)
    weights = _PRIOR[:, None, None] * ratio ** (-surplus / 2)
    found: Array = np.sum(weights * slopes, axis=0) / np.sum(weights, axis=0)
    return found


def _noise_ratio(network: Array, control: Array, num_randomizations: int) -> Array:
    """Ratio of the variances of quasi-random and independent averages, at most 1, ``(J,)``."""
    # Bins that each part alone can fill.
    coarse = ScoreBins.for_samples(network.shape[0] // num_randomizations)
    parts = zip(
        np.split(network, num_randomizations), np.split(control, num_randomizations), strict=True
    )
    found = np.stack(
        [
            sample_averages(np.sort(a, axis=0), coarse)
            - sample_averages(np.sort(b, axis=0), coarse)
            for a, b in parts
        ]
    )
    between = np.mean(np.var(found, axis=0, ddof=1), axis=0) / num_randomizations
    ordered = np.sort(network, axis=0), np.sort(control, axis=0)
    difference = influence(network, ordered[0], coarse) - influence(control, ordered[1], coarse)
    independent = np.mean(np.mean(difference**2, axis=1), axis=0) / network.shape[0]
    ratio = between / np.where(independent > 0, independent, 1)
    clipped: Array = np.clip(ratio, 0.02, 1.0)
    return clipped


def _at_centers(averages: Array) -> Array:
    """Values at the knots from averages over the bins around them, to second order.

    Not for the outermost bins, whose widths differ, and the knots beyond, which have no averages.
    """
    inner = averages[:, 3:-3]
    bend = averages[:, 2:-4] - 2 * inner + averages[:, 4:-2]
    return np.concatenate([averages[:, :3], inner - bend / 24, averages[:, -3:]], axis=-1)


# Half the length of the interval in standard deviations of a rank. With three, the draws would move
# quantiles of an exactly linear network: the worst of many quantiles exceeds three.
_REACH = 4.0
# Lower bound of the ratio, which is an average over ranks; single ranks scatter more.
_LEAST_RATIO = 0.25
# How far beyond the draws a tail may reach, in units of the span of the outermost draws.
_BEYOND_DRAWS, _SPACINGS = 10.0, 5


def hold_in_interval(wanted: Array, network: Array, scores: Array, ratio: Array) -> Array:
    """Clip quantiles to order statistics some ranks above and below.

    An error of regression and smoothing that is small in units of the output can be a large error
    in probability if many outputs are nearly equal, as for a unit that saturates.

    Parameters
    ----------
    wanted
        Quantiles, shape ``(J, k)``.
    network
        Draws, ``(n, J)``.
    scores
        Normal scores of the quantiles, ``(k,)``.
    ratio
        Variance of a rank divided by that for independent draws, ``(J,)``.
    """
    from scipy.special import ndtr

    count = network.shape[0]
    middle = count * ndtr(scores)
    scale = np.sqrt(middle * (1 - middle / count))
    reach = 1 + _REACH * scale[:, None] * np.sqrt(np.maximum(ratio, _LEAST_RATIO))
    below, above = (np.floor(middle[:, None] + s * reach).astype(int) for s in (-1, 1))
    ordered = np.sort(network, axis=0)
    low, high = (
        np.take_along_axis(ordered, np.clip(rank, 0, count - 1), axis=0) for rank in (below, above)
    )
    span = min(_SPACINGS, count - 1)
    least = ordered[0] - _BEYOND_DRAWS * (ordered[span] - ordered[0])
    most = ordered[-1] + _BEYOND_DRAWS * (ordered[-1] - ordered[-1 - span])
    low, high = np.where(below < 0, least, low), np.where(above > count - 1, most, high)
    held: Array = np.clip(wanted, low.T, high.T)
    return held
