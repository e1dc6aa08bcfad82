"""The monotone map that takes draws of one law to draws of another, from paired samples."""

from typing import Any, NamedTuple, cast

import numpy as np
from jax import Array, lax

from nn_uq_dist.basics._row_algebra import namespace
from nn_uq_dist.paired_samples._quantile_averages import influence, sample_averages
from nn_uq_dist.paired_samples._score_bins import ScoreBins
from nn_uq_dist.paired_samples._smoothing import Points, smooth

# Of the noise covariance, what is taken from its diagonal alone: estimated correlations of many
# averages from few draws are too good to be true.
_SHRINKAGE = 0.5
# Least slopes of the map: a point mass has none. A flat piece in the tails would make outputs that
# are possible all but impossible; there the map stays nearer to the linear law.
_LEAST_SLOPE, _LEAST_TAIL_SLOPE, _TAIL_PIECES = 0.02, 0.2, 3


class QuantileMap(NamedTuple):
    """Knots of the map from linear to network outputs.

    Attributes
    ----------
    linear, network
        Quantiles of both at the knots, ascending, shape ``(J, k)``.
    shift
        The correction at the knots, before the map was made to increase, ``(J, k)``.
    rest
        Averages over the bins of what the control leaves to correct, not smoothed, ``(J, m)``.
    standard_error
        Of these averages, ``(J, m)``.
    flattened
        Share of the knots at which the map would have fallen, ``(J,)``.

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


class LinearQuantiles(NamedTuple):
    """Quantiles of the linear law, shapes ``(q, J)``, ``(k, J)`` and ``(J,)``."""

    at_nodes: Array  # of `ScoreBins.nodes`
    at_centers: Array  # of `ScoreBins.centers`
    at_knots: Array  # of the map
    mean: Array
    sd: Array


class SurfaceShift(NamedTuple):
    """What a control adds to the quantile function of the linear law, from many draws of both."""

    averages: Array  # over the bins, (m, J)
    at_knots: Array  # of the map, (k, J)


def estimate_map(
    network: Array,
    control: Array,
    linear: LinearQuantiles,
    surface: SurfaceShift | None,
    bins: ScoreBins,
    knots: np.ndarray,
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
        How the law of the control differs from it; ``None`` if it does not.
    bins
        The bins.
    knots
        Normal scores of the knots, ascending, shape ``(k,)``.
    num_randomizations
        As of `PairedDraws`: the noise of quasi-random draws is that between randomizations.

    Examples
    --------
    >>> import numpy as np
    >>> from nn_uq_dist.paired_samples import ScoreBins, estimate_map
    >>> from nn_uq_dist.paired_samples._quantile_map import LinearQuantiles
    >>> normal = np.random.default_rng(0).normal(size=(400, 1))
    >>> bins = ScoreBins.for_samples(400)
    >>> scores = (bins.nodes, bins.centers, bins.knots)
    >>> linear = LinearQuantiles(*(z[:, None] for z in scores), np.zeros(1), np.ones(1))
    >>> found = estimate_map(1 + 2 * normal, normal, linear, None, bins, bins.knots)
    >>> print(np.interp([-1.0, 0.0, 1.0], found.linear[0], found.network[0]).round(1))
    [-1.  1.  3.]
    """
    xp = namespace(network, control)
    known = bins.averages(linear.at_nodes)
    if surface is not None:
        known = known + surface.averages
    found, residual = _controlled(network, control, known, bins, xp)
    count, size = network.shape[0], bins.centers.size
    spare = size if count > 2 * size else 1
    noise = xp.einsum("knj,lnj->jkl", residual, residual) / (count * max(count - spare, 1))
    if num_randomizations > 1:
        noise = noise * _noise_ratio(network, control, num_randomizations, xp)
    diagonal = xp.diagonal(noise, axis1=-2, axis2=-1)
    identity = np.eye(size, dtype=network.dtype)
    noise = (1 - _SHRINKAGE) * noise + _SHRINKAGE * identity * diagonal[:, None, :]

    info = np.finfo(network.dtype)
    floor = 8 * float(info.eps) * (linear.sd + xp.abs(linear.mean)) + float(info.tiny) ** 0.5
    at_centers, at_knots = (
        ((values - linear.mean) / (linear.sd + floor)).T
        for values in (linear.at_centers, linear.at_knots)
    )
    difference = (found - known).T
    # The bins themselves, then the knots.
    wanted = Points(
        np.concatenate([bins.centers, knots]), xp.concatenate([at_centers, at_knots], axis=-1)
    )
    smoothed = smooth(difference, noise, Points(bins.centers, at_centers), wanted, floor)
    at_bins, shift = smoothed[:, :size], smoothed[:, size:]
    shift = shift + _tail_residuals(difference - at_bins, bins, knots, xp)
    if surface is not None:
        shift = shift + surface.at_knots.T
    base = linear.at_knots.T
    mapped, flattened = _increasing(base, base + shift, xp)
    return QuantileMap(base, mapped, shift, difference, xp.sqrt(diagonal), flattened)


def _tail_residuals(residual: Array, bins: ScoreBins, knots: np.ndarray, xp: Any) -> Array:
    """What the smoothing has taken from the two outermost bins at each end, at the knots.

    To the smoothing rare large differences are noise, but they carry the standard deviation. It
    fades out towards the middle, and towards the last knot.
    """
    centers = bins.centers
    lower = np.concatenate([knots[:1], centers[:3]])
    values = [xp.zeros_like(residual[:, 0]), residual[:, 0], residual[:, 1]]
    upper = [xp.zeros_like(residual[:, 0]), residual[:, -1], residual[:, -2]]
    fading = _hats(knots, lower), _hats(-knots, np.concatenate([-knots[-1:], -centers[:-4:-1]]))
    total: Array = sum(
        (
            part[:, None] * hat.astype(residual.dtype)
            for parts, hats in zip((values, upper), fading, strict=True)
            for part, hat in zip(parts, hats, strict=False)
        ),
        xp.zeros((residual.shape[0], knots.size), residual.dtype),
    )
    return total


def _hats(at: np.ndarray, corners: np.ndarray) -> np.ndarray:
    """Piecewise linear functions, one at each corner and zero at the others."""
    return np.stack([np.interp(at, corners, row) for row in np.eye(corners.size)])


def _controlled(
    network: Array, control: Array, known: Any, bins: ScoreBins, xp: Any
) -> tuple[Array, Array]:
    """Averages for the network by regression on those of the control, and the residuals."""
    xp = namespace(network, control)
    ordered = xp.sort(network, axis=0), xp.sort(control, axis=0)
    of_network, of_control = (sample_averages(part, bins) for part in ordered)
    a, b = influence(network, ordered[0], bins), influence(control, ordered[1], bins)
    # One coefficient for all bins: one for each would be fitted to the noise of the tails.
    square = xp.sum(b * b, axis=(0, 1))
    slope = xp.sum(a * b, axis=(0, 1)) / xp.where(square > 0, square, 1)
    found = of_network - slope * (of_control - known)
    return found, a - slope * b


def _noise_ratio(network: Array, control: Array, num_randomizations: int, xp: Any) -> Array:
    """Variance of quasi-random averages over that of independent ones, at most 1, ``(J, 1, 1)``."""
    # Bins that a part alone can fill.
    coarse = ScoreBins.for_samples(network.shape[0] // num_randomizations)
    parts = zip(
        xp.split(network, num_randomizations), xp.split(control, num_randomizations), strict=True
    )
    found = xp.stack(
        [
            sample_averages(xp.sort(a, axis=0), coarse)
            - sample_averages(xp.sort(b, axis=0), coarse)
            for a, b in parts
        ]
    )
    between = xp.mean(xp.var(found, axis=0, ddof=1), axis=0) / num_randomizations
    ordered = xp.sort(network, axis=0), xp.sort(control, axis=0)
    difference = influence(network, ordered[0], coarse) - influence(control, ordered[1], coarse)
    independent = xp.mean(xp.mean(difference**2, axis=1), axis=0) / network.shape[0]
    ratio = between / xp.where(independent > 0, independent, 1)
    clipped: Array = xp.clip(ratio, 0.02, 1.0)[:, None, None]
    return clipped


def _increasing(linear: Array, wanted: Array, xp: Any) -> tuple[Array, Array]:
    """The wanted values, raised and lowered as little as makes them increase; share of falls."""
    xp = namespace(linear, wanted)
    slopes = np.full(linear.shape[-1] - 1, _LEAST_SLOPE)
    slopes[:_TAIL_PIECES] = slopes[-_TAIL_PIECES:] = _LEAST_TAIL_SLOPE
    steps = slopes.astype(linear.dtype) * (linear[:, 1:] - linear[:, :-1])
    least = xp.concatenate([xp.zeros_like(linear[:, :1]), xp.cumsum(steps, axis=-1)], axis=-1)
    rest = wanted - least
    from_left = running_maximum(rest)
    from_right = -running_maximum(-rest[:, ::-1])[:, ::-1]
    flattened = xp.mean(1.0 * (rest[:, 1:] < rest[:, :-1]), axis=-1)
    mapped: Array = least + (from_left + from_right) / 2
    return mapped, flattened


def running_maximum(rows: Array) -> Array:
    """Largest entry so far along the last axis."""
    largest: Any = (
        np.maximum.accumulate(rows, axis=-1)
        if namespace(rows) is np
        else lax.cummax(rows, axis=rows.ndim - 1)
    )
    return cast(Array, largest)
