"""The increasing map that takes the linear output to the network's, from paired samples.

Averages of the network's quantile function over bins of normal scores have nearly the errors of
those of a control, whose distribution is known: its errors are subtracted, which is regression with
the coefficient 1. `_slope_prior.py` finds the map that they indicate.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.distributions import MonotoneSpline
from nn_uq_dist.paired_samples._slope_prior import Curve, CurveAverages, fit_curve
from nn_uq_dist.paired_samples.score_bins import (
    ScoreBins,
    by_outputs,
    differences,
    influence,
    sample_averages,
)
from nn_uq_dist.paired_samples.settled_knots import SPACINGS

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
# Least standard deviation of an average, in those of the output.
_LEAST_NOISE = 2e-5
# Draws of one product of influence functions.
_DRAWS_OF_PRODUCT = 50
# Standard deviation of differences of normal scores up to which ranks are the same.
_SAME_RANKS = 0.003
# Rounding errors of the largest output up to which a rest is none.
ROUNDINGS = 16.0


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


def map_from_draws(
    draws: FloatArray, linear: FloatArray, quantiles: LinearQuantiles, bins: ScoreBins
) -> MonotoneSpline:
    """Find the map from the network's draws alone, or through them where both ranks are the same.

    An increasing function of the linear output takes order statistics to order statistics. So it is
    known at the draws, without the noise of their quantiles.

    Parameters
    ----------
    draws, linear
        Outputs of the network and linear outputs, in units of their standard deviations, ``(n,
        J)``.
    quantiles
        Of the linear outputs.
    bins
        The bins.

    Examples
    --------
    >>> import numpy as np
    >>> from nn_uq_dist.paired_samples import LinearQuantiles, ScoreBins, map_from_draws
    >>> bins = ScoreBins.for_samples(400)
    >>> quantiles = LinearQuantiles(bins.nodes[None], bins.knots[None])
    >>> linear = np.random.default_rng(0).normal(size=(400, 1))
    >>> curve = map_from_draws(np.sinh(linear), linear, quantiles, bins)
    >>> print(curve(np.array([[1.0]])).round(3))  # sinh(1) = 1.1752
    [[1.175]]
    """
    averages = sample_averages(draws, bins).T

    def of_some(draws: FloatArray) -> tuple[FloatArray]:
        return (_covariance(influence(draws, bins), len(draws) - 1),)

    (noise,) = by_outputs(of_some, bins, len(draws), draws)
    noise = _shrunk(noise)
    model = CurveAverages(bins, *quantiles)
    curve = fit_curve(model, averages, noise, np.zeros_like(averages))
    knots, images, slopes = _spline(model, curve, quantiles).parameters
    for j in np.flatnonzero(_rank_differences(linear, draws) < _SAME_RANKS):
        images[j], slopes[j] = _through(np.sort(linear[:, j]), np.sort(draws[:, j]), knots[j])
    return MonotoneSpline(knots, images, slopes)


def _rank_differences(linear: FloatArray, draws: FloatArray) -> FloatArray:
    """Standard deviations of the differences of both normal scores; infinite for constants."""
    from scipy.special import ndtri

    ranks = (np.argsort(np.argsort(part, axis=0), axis=0) for part in (linear, draws))
    one, other = (ndtri((rank + 0.5) / len(draws)) for rank in ranks)
    difference = np.sqrt(np.mean((one - other) ** 2, axis=0))
    return np.where(np.ptp(linear, axis=0) > 0, difference, np.inf)


def _through(x: FloatArray, y: FloatArray, knots: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Values and slopes at the knots of a curve through points, straight beyond the outer ones."""
    from scipy.interpolate import PchipInterpolator

    x, kept = np.unique(x, return_index=True)
    y = y[kept]
    curve = PchipInterpolator(x, y)
    values, slopes = curve(np.clip(knots, x[0], x[-1])), curve(np.clip(knots, x[0], x[-1]), 1)
    some = min(SPACINGS, x.size) - 1
    for end, inner, beyond in ((0, some, knots < x[0]), (-1, -1 - some, knots > x[-1])):
        slope = (y[end] - y[inner]) / (x[end] - x[inner])
        values[beyond], slopes[beyond] = y[end] + slope * (knots[beyond] - x[end]), slope
    for k in range(1, values.size):  # equal draws
        values[k] = max(values[k], np.nextafter(values[k - 1], np.inf))
    return values, np.maximum(slopes, np.finfo(np.float64).tiny)


def unexplained_share(linear: FloatArray, network: FloatArray, eps: float) -> FloatArray:
    """What no smooth function of the linear output explains, in standard deviations, ``(J,)``.

    From the distances of draws to the lines between their neighbors (T. Gasser, L. Sroka and C.
    Jennen-Steinmetz, Biometrika 73 (1986)); 0 where these may be roundings, which are `eps` at one.
    Outputs that are NaN do not count.
    """
    order = np.argsort(linear, axis=0, kind="stable")
    x, y = (np.take_along_axis(part, order, axis=0) for part in (linear, network))
    width = x[2:] - x[:-2]
    place = (x[1:-1] - x[:-2]) / np.where(width > 0, width, 1)
    beside = y[1:-1] - place * y[2:] - (1 - place) * y[:-2]
    squares = beside**2 / (1 + place**2 + (1 - place) ** 2)
    count = np.maximum(np.isfinite(squares).sum(axis=0), 1)
    rest = np.sqrt(np.nansum(squares, axis=0) / count)
    total = np.nanstd(network - np.nanmin(network, axis=0), axis=0)
    share = np.minimum(rest / np.where(total > 0, total, 1), 1)
    return np.where(rest > ROUNDINGS * eps * np.nanmax(np.abs(network), axis=0), share, 0)


def map_from_pairs(
    draws: FloatArray,
    control: Control,
    linear: LinearQuantiles,
    log_slopes: FloatArray,
    bins: ScoreBins,
    finite: NDArray[np.bool_] | None = None,
    num_randomizations: int = 0,
) -> MonotoneSpline:
    """Find the map from pairs.

    Parameters
    ----------
    draws
        Finite outputs of the network in some unit, shape ``(m, J)``.
    control
        What predicts them, in the same unit: it is subtracted with the coefficient 1.
    linear
        Quantiles of the linear outputs.
    log_slopes
        Log slopes of the maps without a correction, ``(J,)``.
    bins
        The bins.
    finite
        The pairs whose network outputs these are, shape ``(n,)``; all by default.
    num_randomizations
        As in `PairedDraws`: the noise of quasi-random draws is estimated between randomizations.

    Examples
    --------
    >>> import numpy as np
    >>> from nn_uq_dist.paired_samples import Control, LinearQuantiles, ScoreBins, map_from_pairs
    >>> bins = ScoreBins.for_samples(400)
    >>> linear = np.random.default_rng(0).normal(size=(400, 1))
    >>> control = Control(1 + 2 * linear, 1 + 2 * bins.centers[:, None])
    >>> quantiles = LinearQuantiles(bins.nodes[None], bins.knots[None])
    >>> curve = map_from_pairs(1 + 2 * linear, control, quantiles, np.log([2.0]), bins)
    >>> print(curve(np.array([[0.0], [1.0]])).round(2).ravel())
    [1. 3.]
    """
    count, size = len(control.at_pairs), bins.centers.size
    inside = len(draws) * bins.widths
    spare = count - (size if count > 2 * size else 1)

    def of_some(draws: FloatArray, *control: FloatArray) -> tuple[FloatArray, FloatArray]:
        averages, residuals = _controlled(draws, Control(*control), bins, finite)
        return averages.T, _covariance(residuals, spare)

    averages, noise = by_outputs(of_some, bins, count, draws, control.at_pairs, control.averages)
    diagonal = np.diagonal(noise, axis1=1, axis2=2)
    ratio = np.ones((len(noise), 1))
    is_whole = len(draws) == count
    # Sequences without some of their points are taken for independent ones.
    if num_randomizations > 1 and is_whole:
        ratio = _noise_ratio(draws, control.at_pairs, num_randomizations)[:, None]
        # Few draws of each randomization in a bin are not more even than independent ones.
        ratio = ratio + (1 - ratio) / (1 + inside / num_randomizations)
    # By standard deviations: a variance may be tiny by chance, and its inverse infinite.
    scale = np.sqrt(ratio * _steadied(diagonal, inside))
    scale = scale / np.where(diagonal > 0, np.sqrt(diagonal), 1)
    noise = _shrunk(noise * scale[:, :, None] * scale[:, None])
    model = CurveAverages(bins, *linear)
    reference = np.broadcast_to(log_slopes[:, None], averages.shape)
    if control.noise is not None:
        of_control = (control.noise.T**2 + _LEAST_NOISE**2)[..., None] * np.eye(size)
        if is_whole:  # else the distribution of the control has another shape
            reference = fit_curve(model, control.averages.T, of_control, reference).log_slopes
        noise = noise + of_control
    return _spline(model, fit_curve(model, averages, noise, reference), linear)


def _spline(model: CurveAverages, curve: Curve, linear: LinearQuantiles) -> MonotoneSpline:
    logs = np.pad(curve.log_slopes, ((0, 0), (2, 2)), mode="edge")
    values = model.values(curve)
    for k in range(1, values.shape[1]):  # of a plateau, rises may be lost in rounding
        values[:, k] = np.maximum(values[:, k], np.nextafter(values[:, k - 1], np.inf))
    return MonotoneSpline(linear.at_knots, values, np.exp(logs))


def _covariance(residuals: FloatArray, spare: int) -> FloatArray:
    """Covariance of averages from influence functions ``(m, n, J)``, shape ``(J, m, m)``."""
    rows = np.moveaxis(residuals, -1, 0).copy()  # products of strided rows take long
    # In parts below the size at which BLAS starts threads: for so many small products they wait for
    # each other, a hundred times as long where other programs run.
    total = np.zeros(())
    for start in range(0, rows.shape[2], _DRAWS_OF_PRODUCT):
        part = rows[:, :, start : start + _DRAWS_OF_PRODUCT]
        total = total + part @ part.mT
    return total / (residuals.shape[1] * max(spare, 1))


def _shrunk(noise: FloatArray) -> FloatArray:
    diagonal = np.diagonal(noise, axis1=1, axis2=2)
    alone = (_SHRINKAGE * diagonal + _LEAST_NOISE**2)[..., None] * np.eye(noise.shape[-1])
    return (1 - _SHRINKAGE) * noise + alone


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
    return raised * (1 + doubtful / inside) / inside


def _controlled(
    draws: FloatArray, control: Control, bins: ScoreBins, finite: NDArray[np.bool_] | None
) -> tuple[FloatArray, FloatArray]:
    """Averages for the network less the errors of those of the control, and influence functions.

    An average of finite outputs is a ratio, whose influence function is zero at the other draws.
    The control has all of them, as its known averages have: so what is missing makes no bias.
    """
    of_control = influence(control.at_pairs, bins)
    of_network = np.zeros_like(of_control)
    of_network[:, slice(None) if finite is None else finite] = influence(draws, bins)
    of_network *= len(control.at_pairs) / len(draws)
    error = sample_averages(control.at_pairs, bins) - control.averages
    return sample_averages(draws, bins) - error, of_network - of_control


def _noise_ratio(network: FloatArray, control: FloatArray, num_randomizations: int) -> FloatArray:
    """Ratio of the variances of quasi-random and independent averages, at most 1, ``(J,)``."""
    # Bins that each part alone can fill.
    coarse = ScoreBins.for_samples(network.shape[0] // num_randomizations)
    _, *variances = differences(network, control, coarse, num_randomizations)
    between, independent = (np.mean(part, axis=0) for part in variances)
    between, independent = between / num_randomizations, independent / network.shape[0]
    ratio = between / np.where(independent > 0, independent, 1)
    return np.clip(ratio, 0.02, 1.0)
