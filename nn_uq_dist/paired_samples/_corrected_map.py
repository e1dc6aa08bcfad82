"""The increasing map that takes the linear output to the network's, from paired samples.

Averages of the network's quantile function over bins of normal scores are regressed on those of a
control, whose distribution is known; `_monotone_fit.py` finds the map that they indicate.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.distributions import MonotoneSpline
from nn_uq_dist.paired_samples._monotone_fit import Curve, CurveAverages, fit_curve
from nn_uq_dist.paired_samples.score_bins import ScoreBins, influence, sample_averages

# Shrinkage of the noise covariance towards its diagonal: correlations of many averages estimated
# from few draws are unreliable.
_SHRINKAGE = 0.5
# Number of draws of its own that the noise of its neighbors is worth to a bin.
_DRAWS_OF_NEIGHBORS = 4.0
# Number of draws in a bin with which its noise is taken for twice as large: for each pair, and at
# most. Without it tails of nearly linear networks bend (trained operators, 1000 Sobol points: error
# of a probability of .001 half as large again); as much for 100 pairs shrinks true differences (KS
# 1.15 times as large).
_DOUBTFUL, _MOST_DOUBTFUL = 0.004, 4.0
# Prior weights of coefficients of the control: zero, one for all bins, one for each bin. And the
# number of draws in a bin that do not count as evidence for its own coefficient.
_PRIOR, _FEWEST_INSIDE = np.array([0.02, 0.96, 0.02]), 4.0
# Least standard deviation of an average, in those of the output.
_LEAST_NOISE = 2e-5


class LinearQuantiles(NamedTuple):
    """Quantiles of the linear outputs in units of their standard deviations, outputs in front.

    Examples
    --------
    >>> from nn_uq_dist.paired_samples import LinearQuantiles, ScoreBins
    >>> bins = ScoreBins.for_samples(100)
    >>> LinearQuantiles(bins.nodes[None], bins.knots[None]).at_knots.shape
    (1, 19)
    """

    at_nodes: FloatArray  # of `ScoreBins.nodes`, (J, q)
    at_knots: FloatArray  # of `ScoreBins.knots`, (J, k)

    def of(self, outputs: NDArray[np.intp]) -> "LinearQuantiles":
        """Those of some outputs."""
        return LinearQuantiles(self.at_nodes[outputs], self.at_knots[outputs])


class Control(NamedTuple):
    """What predicts the network's outputs, and averages of its quantile function over the bins.

    Attributes
    ----------
    at_pairs
        Predictions at the pairs, shape ``(n, J)``.
    averages
        Known averages, ``(m, J)``.
    noise
        Standard deviations of their errors, ``(m, J)``; ``None`` if they are exact.

    Examples
    --------
    >>> import numpy as np
    >>> from nn_uq_dist.paired_samples import Control, ScoreBins
    >>> bins = ScoreBins.for_samples(100)
    >>> linear = np.random.default_rng(0).normal(size=(100, 1))
    >>> Control(linear, bins.centers[:, None]).noise is None
    True
    """

    at_pairs: FloatArray
    averages: FloatArray
    noise: FloatArray | None = None


def map_from_draws(draws: FloatArray, linear: LinearQuantiles, bins: ScoreBins) -> MonotoneSpline:
    """Find the map from the network's draws alone.

    Parameters
    ----------
    draws
        Outputs in units of their standard deviations, shape ``(n, J)``.
    linear
        Quantiles of the linear outputs.
    bins
        The bins.

    Examples
    --------
    >>> import numpy as np
    >>> from nn_uq_dist.paired_samples import LinearQuantiles, ScoreBins, map_from_draws
    >>> bins = ScoreBins.for_samples(400)
    >>> linear = LinearQuantiles(bins.nodes[None], bins.knots[None])
    >>> found = map_from_draws(np.random.default_rng(0).normal(size=(400, 1)), linear, bins)
    >>> print(found(np.array([[0.0]])).round(1))
    [[-0.]]
    """
    ordered = np.sort(draws, axis=0)
    averages = sample_averages(ordered, bins).T
    noise = _shrunk(_covariance(influence(draws, ordered, bins), len(draws) - 1))
    model = CurveAverages(bins, *linear)
    return _spline(model, fit_curve(model, averages, noise, np.zeros_like(averages)), linear)


def map_from_pairs(
    draws: FloatArray,
    control: Control,
    linear: LinearQuantiles,
    log_slopes: FloatArray,
    bins: ScoreBins,
    num_randomizations: int = 0,
) -> MonotoneSpline:
    """Find the map from pairs.

    Parameters
    ----------
    draws
        Outputs of the network in some unit, shape ``(n, J)``.
    control
        What predicts them.
    linear
        Quantiles of the linear outputs.
    log_slopes
        Log slopes of the maps without a correction, ``(J,)``.
    bins
        The bins.
    num_randomizations
        As in `PairedDraws`: the noise of quasi-random draws is estimated between randomizations.

    Examples
    --------
    >>> import numpy as np
    >>> from nn_uq_dist.paired_samples import Control, LinearQuantiles, ScoreBins, map_from_pairs
    >>> bins = ScoreBins.for_samples(400)
    >>> linear = np.random.default_rng(0).normal(size=(400, 1))
    >>> control = Control(linear, bins.centers[:, None])
    >>> quantiles = LinearQuantiles(bins.nodes[None], bins.knots[None])
    >>> found = map_from_pairs(1 + 2 * linear, control, quantiles, np.log([2.0]), bins)
    >>> print(found(np.array([[0.0], [1.0]])).round(2).ravel())
    [1. 3.]
    """
    averages, residuals = _controlled(draws, control, bins)
    count, size = len(draws), bins.centers.size
    inside = count * bins.widths
    noise = _covariance(residuals, count - (size if count > 2 * size else 1))
    diagonal = np.diagonal(noise, axis1=1, axis2=2)
    ratio = np.ones((len(noise), 1))
    if num_randomizations > 1:
        ratio = _noise_ratio(draws, control.at_pairs, num_randomizations)[:, None]
        # Few draws of each randomization in a bin are not more even than independent ones.
        ratio = ratio + (1 - ratio) / (1 + inside / num_randomizations)
    # By standard deviations: a variance may be tiny by chance, and its inverse infinite.
    scale = np.sqrt(ratio * _steadied(diagonal, inside))
    scale = scale / np.where(diagonal > 0, np.sqrt(diagonal), 1)
    noise = _shrunk(noise * scale[:, :, None] * scale[:, None])
    model = CurveAverages(bins, *linear)
    reference = np.broadcast_to(log_slopes[:, None], averages.T.shape)
    if control.noise is not None:
        of_control = (control.noise.T**2 + _LEAST_NOISE**2)[..., None] * np.eye(size)
        reference = fit_curve(model, control.averages.T, of_control, reference).log_slopes
        noise = noise + of_control
    return _spline(model, fit_curve(model, averages.T, noise, reference), linear)


def _spline(model: CurveAverages, curve: Curve, linear: LinearQuantiles) -> MonotoneSpline:
    logs = np.pad(curve.log_slopes, ((0, 0), (2, 2)), mode="edge")
    values = model.values(curve)
    for k in range(1, values.shape[1]):  # of a plateau, rises may be lost in rounding
        values[:, k] = np.maximum(values[:, k], np.nextafter(values[:, k - 1], np.inf))
    return MonotoneSpline(linear.at_knots, values, np.exp(logs))


def _covariance(residuals: FloatArray, spare: int) -> FloatArray:
    """Covariance of averages from influence functions ``(m, n, J)``, shape ``(J, m, m)``."""
    rows = np.moveaxis(residuals, -1, 0)
    found: FloatArray = rows @ rows.mT / (residuals.shape[1] * max(spare, 1))
    return found


def _shrunk(noise: FloatArray) -> FloatArray:
    diagonal = np.diagonal(noise, axis1=1, axis2=2)
    own = (_SHRINKAGE * diagonal + _LEAST_NOISE**2)[..., None] * np.eye(noise.shape[-1])
    found: FloatArray = (1 - _SHRINKAGE) * noise + own
    return found


def _steadied(variance: FloatArray, inside: FloatArray) -> FloatArray:
    """Variances of averages, larger where few draws tell them, and not far below their neighbors'.

    A variance from two draws may be tiny by chance, and then bends the tail of the map.
    """
    each = variance * inside
    padded = np.concatenate([each[:, 1:2], each, each[:, -2:-1]], axis=-1)
    beside = (padded[:, :-2] + padded[:, 2:]) / 2
    mixed = (inside * each + _DRAWS_OF_NEIGHBORS * beside) / (inside + _DRAWS_OF_NEIGHBORS)
    raised = np.where(each > 0, np.maximum(mixed, each), each)
    doubtful = min(_DOUBTFUL * inside.sum(), _MOST_DOUBTFUL)
    found: FloatArray = raised * (1 + doubtful / inside) / inside
    return found


def _controlled(
    draws: FloatArray, control: Control, bins: ScoreBins
) -> tuple[FloatArray, FloatArray]:
    """Averages for the network by regression on those of the control, and the residuals."""
    ordered = np.sort(draws, axis=0), np.sort(control.at_pairs, axis=0)
    of_network, of_control = (sample_averages(part, bins) for part in ordered)
    a, b = influence(draws, ordered[0], bins), influence(control.at_pairs, ordered[1], bins)
    slope = _coefficients(a, b, len(draws) * bins.widths)
    return of_network - slope * (of_control - control.averages), a - slope[:, None] * b


def _coefficients(a: FloatArray, b: FloatArray, num_inside: FloatArray) -> FloatArray:
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
    found: FloatArray = np.sum(weights * slopes, axis=0) / np.sum(weights, axis=0)
    return found


def _noise_ratio(network: FloatArray, control: FloatArray, num_randomizations: int) -> FloatArray:
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
    clipped: FloatArray = np.clip(ratio, 0.02, 1.0)
    return clipped
