"""From paired draws with known values to the map that takes linear outputs to the network's."""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.basics.quadrature_nodes import MAXIMUM_DIMENSION, sobol_points
from nn_uq_dist.distributions import MonotoneSpline, OutputDistribution
from nn_uq_dist.linearization._linear_fit import require_enough
from nn_uq_dist.paired_samples import (
    Control,
    LinearQuantiles,
    ScoreBins,
    fit_surface,
    map_from_draws,
    map_from_pairs,
)
from nn_uq_dist.paired_samples.corrected_map import unexplained_share
from nn_uq_dist.paired_samples.score_bins import by_outputs, differences
from nn_uq_dist.paired_samples.settled_knots import settled_knots
from nn_uq_dist.sampling import PairedDraws
from nn_uq_dist.sampling.weighted_sample import Mask

# Draws of a surface that the noise of its averages is estimated from.
_NOISE_DRAWS = 4096
# Least ratio of the variances of averages of Sobol points and of independent draws.
_LEAST_RATIO = 0.01
# Roundings of its mean that the standard deviation of a linear output must comprise: with fewer,
# the knots of a map cannot be told apart.
_FEWEST_STEPS = 50.0
# Share of what is unexplained that makes the linear output softer. With 1 densities of outputs with
# hard ends are up to 1.2 times as far off, with .1 tails beyond 100 pairs are too thin.
_SOFTER = 0.3
# Cheap draws for each draw of the network, and bounds on their number.
_DRAWS_PER_PAIR = 32
_FEWEST_DRAWS, _MOST_DRAWS = 2**15, 2**17
# Equal parts, between which the noise of averages is estimated.
_PARTS = 4
_BLOCK = 2**13


def _own_scale(
    linearization: Any, linear: FloatArray, network: FloatArray
) -> tuple[Array | None, Mask]:
    """Standard deviations of the normals that linear outputs get, and where these stand in.

    They stand in for outputs without sensitivity, as wide as the network's. Others get one in
    proportion to what no function of the linear output explains: there the ends of its support are
    not those of the network's. None if there is nothing to add.
    """
    image = linearization.image()
    constant = np.asarray(image.is_constant)
    dtype = jnp.result_type(linearization.loc)
    loc = np.asarray(linearization.loc, np.float64)
    spread = _spread(network).reshape(loc.shape)
    eps = float(jnp.finfo(dtype).eps)
    # A linear output that varies by a few roundings of its mean takes a few values only: their
    # order says nothing of the network's output, which may vary by much more.
    sd = np.asarray(image.standard_deviation, np.float64)
    stands_in = constant | ((sd < _FEWEST_STEPS * eps * np.abs(loc)) & (sd < spread / 4))
    share = unexplained_share(linear, network, eps).reshape(loc.shape)
    if not (stands_in | (share > 0)).any():
        return None, stands_in.ravel()
    # An output that is constant in all draws gets a negligible width.
    spread = np.maximum(spread, 1e-6 * np.maximum(np.abs(loc), 1))
    scale = np.where(stands_in, spread, _SOFTER * share * sd)
    return jnp.asarray(scale, dtype), stands_in.ravel()


def _spread(network: FloatArray) -> FloatArray:
    """Standard deviations of finite draws; of equal ones they are zero, not a rounding."""
    return np.nanstd(network - np.nanmin(network, axis=0), axis=0)


def require_pairs(linearization: Any, pairs: Any) -> None:
    """Raise ``TypeError`` or ``ValueError`` unless these are pairs of this linearization."""
    if not isinstance(pairs, PairedDraws):
        raise TypeError(
            f"pairs must be PairedDraws, got {type(pairs).__name__}; pass "
            f"paired_draws(network, linearization, key, num_samples)"
        )
    other = pairs.linearization
    structures: list[Any] = [jax.tree.structure(each) for each in (other, linearization)]
    same = structures[0] == structures[1]
    if same and checks.is_concrete(other, linearization):
        leaves = zip(jax.tree.leaves(other), jax.tree.leaves(linearization), strict=True)
        same = all(a is b or np.array_equal(a, b) for a, b in leaves)
    if not same:
        raise ValueError(
            "pairs must be those of this linearization, got pairs of another one; pass "
            "paired_draws(network, linearization, key, num_samples)"
        )


class _Outputs(NamedTuple):
    """Outputs, finite for the same draws: linear ones in units of their own, the network's in its.

    Attributes
    ----------
    columns
        Their numbers among all outputs, ``(J,)``.
    finite
        The draws for which they are, ``(n,)``.
    quantiles
        Of the linear outputs.
    network
        These draws, ``(m, J)``.
    mean, sd
        Of the linear outputs, or of what stands in for them, ``(J,)``.
    stands_in
        Whether a normal distribution without draws stands in for the linear output, ``(J,)``.
    offset, scale
        The linear output in the network's unit is ``offset + scale * linear``, both ``(J,)``.
    averages
        Of the linear outputs over the bins, ``(m, J)``.
    """

    columns: NDArray[np.intp]
    finite: Mask
    quantiles: LinearQuantiles
    network: FloatArray
    mean: FloatArray
    sd: FloatArray
    stands_in: Mask
    offset: FloatArray
    scale: FloatArray
    averages: FloatArray

    def standardized(self, linear: FloatArray) -> FloatArray:
        """Draws of the linear outputs in their unit; without draws their mean, 0."""
        return np.where(self.stands_in, 0.0, (linear - self.mean) / self.sd)


def correction(pairs: PairedDraws) -> tuple[MonotoneSpline, Any, Array | None]:
    """Estimate the map of each output: three attributes of `CorrectedLinearization`.

    Parameters
    ----------
    pairs
        With known values.
    """
    linearization, count = pairs.linearization, pairs.num_samples
    network = np.asarray(pairs.network, np.float64).reshape(count, -1)
    finite = np.isfinite(network)
    require_enough(min(finite.sum(axis=0), default=0))
    network = np.where(finite, network, np.nan)
    linear = np.asarray(pairs.linear, np.float64).reshape(count, -1)
    own_scale, stands_in = _own_scale(linearization, linear, network)
    distribution = linearization.marginals(own_scale)
    # Quantiles of the deviations, as those far from zero have few digits.
    centered = linearization.moved(-linearization.loc, 0.0)
    deviation = centered.marginals(own_scale)
    moments = (distribution.mean, distribution.standard_deviation, deviation.mean)
    mean, sd, shift = (np.asarray(part, np.float64).ravel() for part in moments)
    center, unit = np.nanmean(network, axis=0), _spread(network)
    unit = np.where(unit > 0, unit, sd)
    draws, offset, scale = (network - center) / unit, (mean - center) / unit, sd / unit
    bins = ScoreBins.for_samples(count)
    if own_scale is None:
        quantiles = of_linear = _quantiles(deviation, shift, sd, bins)
    else:  # the draws have no such part; both at once are one program
        kept = jnp.where(stands_in.reshape(own_scale.shape), own_scale, 0)
        both = centered.marginals(jnp.stack([own_scale, kept]))
        of_both = _quantiles(both, np.tile(shift, 2), np.tile(sd, 2), bins)
        halves = np.arange(2 * sd.size).reshape(2, -1)
        quantiles, of_linear = (of_both.of(half) for half in halves)
    averages = np.where(stands_in, 0, bins.averages(of_linear.at_nodes.T))
    images, slopes = np.empty((2, *quantiles.at_knots.shape))
    unexplained = np.ones(sd.size)

    cheap_draws = cache(lambda: _cheap_draws(pairs))
    masks, group = np.unique(finite, axis=1, return_inverse=True)
    for k, used in enumerate(masks.T):
        columns = np.flatnonzero(group == k)
        of_all: Any = (mean, sd, stands_in, offset, scale, averages)
        chosen = (array[..., columns] for array in of_all)
        outputs = _Outputs(columns, used, quantiles.of(columns), draws[used][:, columns], *chosen)
        maps = _paired_maps(outputs, bins, pairs, cheap_draws)
        images[columns], slopes[columns], unexplained[columns] = maps

    knots = (
        mean[:, None] + sd[:, None] * quantiles.at_knots,
        center[:, None] + unit[:, None] * images,
        slopes / scale[:, None],
    )
    dtype = jnp.result_type(distribution.mean)
    shape = distribution.batch_shape
    ends = np.broadcast_to(np.stack(distribution.bounds), (2, *shape)).reshape(2, -1)
    rows = [
        settled_knots(each, network[finite[:, j], j], ends[:, j], bins.knots, dtype)
        for j, each in enumerate(zip(*knots, strict=True))
    ]
    splines = (np.reshape(part, (*shape, -1)).astype(dtype) for part in zip(*rows, strict=True))
    return MonotoneSpline(*splines), unexplained.astype(dtype).reshape(shape), own_scale


def _paired_maps(
    outputs: _Outputs,
    bins: ScoreBins,
    pairs: PairedDraws,
    cheap_draws: Callable[[], tuple[FloatArray, FloatArray]],
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Values and slopes at the knots, ``(J, k)``, and the `unexplained` shares, ``(J,)``.

    Outputs that saturate, or grow exponentially, are no polynomials of the inputs, but increasing
    functions of them are. So the draws give a first map; moved back by it, outputs may be
    predicted better than as they are. Each output is taken as it is predicted better.
    """
    columns, finite, quantiles, network, *_, offset, scale, of_linear = outputs
    size = scale.size
    raw = np.asarray(pairs.linear, np.float64).reshape(pairs.num_samples, -1)[:, columns]
    linear = outputs.standardized(raw)
    first = map_from_draws(network, linear[finite], quantiles, bins)
    ends = quantiles.at_knots[:, [0, -1]].T

    def inverse(values: FloatArray) -> FloatArray:
        # Where the map is flat, what lies beyond its ends would come back from far away.
        return np.clip(first.inv(values), *ends)

    back = inverse(network)
    straight = offset + scale * linear
    predicted = np.concatenate([straight, linear], axis=1)
    differences = np.concatenate([network, back], axis=1) - predicted[finite]
    surface = None
    if not pairs.linearization.batch_shape:
        distribution = pairs.linearization.input
        inputs = _standardized(distribution, pairs.base_inputs)
        importance, is_bounded = _importance(inputs, raw), distribution.normal_scale is None
        surface = fit_surface(inputs[finite], differences, importance, is_bounded=is_bounded)
    if surface is not None:
        predicted[finite] += surface.left_out
        predicted[~finite] += surface.predict(inputs[~finite])
    straight, bent = np.split(predicted[finite], 2, axis=1)
    errors = back - np.stack([inverse(straight), bent])
    is_bent = np.less(*np.mean(errors**2, axis=1)[::-1])
    column = np.arange(size) + size * is_bent
    offset, scale = np.where(is_bent, 0, offset), np.where(is_bent, 1, scale)

    averages = offset + scale * of_linear
    noise = None
    if surface is not None:
        x, many = cheap_draws()
        predictions = surface.predict(x, column)
        lines = outputs.mean, outputs.sd, outputs.stands_in, offset, scale

        def of_some(
            many: FloatArray, predicted: FloatArray, mean: Any, sd: Any, stands_in: Any, *line: Any
        ) -> tuple[FloatArray, ...]:
            many = line[0] + line[1] * np.where(stands_in, 0.0, (many - mean) / sd)
            return tuple(part.T for part in _difference(many + predicted, many, bins))

        rows = by_outputs(of_some, bins, _NOISE_DRAWS, many[:, columns], predictions, *lines)
        added, noise = (row.T for row in rows)
        averages = averages + added
    control = Control(predicted[:, column], averages, noise)
    draws = np.where(is_bent, back, network)
    _, images, slopes = map_from_pairs(
        draws, control, quantiles, np.log(scale), bins, finite, pairs.num_randomizations
    ).parameters
    values, slopes = images.T, slopes.T
    images = np.where(is_bent, first(values), values)
    slopes = slopes * np.where(is_bent, np.exp(first.log_abs_det_jacobian(values, images)), 1)
    unexplained = np.ones(size) if surface is None else surface.unexplained[column]
    return images.T, slopes.T, unexplained


def _difference(
    one: FloatArray, other: FloatArray, bins: ScoreBins
) -> tuple[FloatArray, FloatArray]:
    """Differences of the averages of cheap draws, and standard deviations of their errors.

    Sobol points of few inputs are much more even than independent ones. How much, the few parts
    tell for all bins together, not for each bin. Noise that is overestimated smooths away what the
    surface has found.
    """
    mean, between, independent = differences(one, other, bins, _PARTS, _NOISE_DRAWS)
    between, independent = between / _PARTS, independent / len(one)
    ratio = np.mean(between / np.where(independent > 0, independent, 1), axis=0)
    return mean, np.sqrt(np.clip(ratio, _LEAST_RATIO, 1) * independent)


def _cheap_draws(pairs: PairedDraws) -> tuple[FloatArray, FloatArray]:
    """Inputs as the surfaces take them, ``(m, N_x)``, and linear outputs, ``(m, N_y)``.

    In `_PARTS` parts of a Sobol sequence, each of which is even by itself: as independent sequences
    they would be less even together, and the corrected distribution up to a tenth farther off.
    """
    linearization, distribution = pairs.linearization, pairs.linearization.input
    wanted = np.clip(_DRAWS_PER_PAIR * pairs.num_samples, _FEWEST_DRAWS, _MOST_DRAWS)
    blocks = _PARTS * int(np.ceil(wanted / (_PARTS * _BLOCK)))
    # Not one of the keys of the network's draws, which `fold_in` numbers from 0 to 2**31.
    key = jax.random.fold_in(pairs.key, 2**32 - 1)
    dimension = linearization.num_coordinates
    if dimension <= MAXIMUM_DIMENSION:
        # Evenly, so that the noise of these draws is far below that of the network's.
        points = sobol_points(key, blocks * _BLOCK, 1, dimension)
    else:
        points = np.asarray(jax.random.uniform(key, (blocks * _BLOCK, dimension)))
    points = points.reshape(blocks, _BLOCK, -1).astype(distribution.dtype)
    pairs_at = jax.jit(type(linearization).pairs_at)
    parts = [pairs_at(linearization, block) for block in points]
    inputs, linear = (np.concatenate(part) for part in zip(*parts, strict=True))
    return _standardized(distribution, inputs), linear


def _standardized(distribution: Any, inputs: Any) -> FloatArray:
    """Inputs minus their means, in units of their half-ranges or standard deviations."""
    is_bounded = distribution.normal_scale is None
    width = distribution.half_width if is_bounded else distribution.standard_deviation
    arrays = (np.asarray(part, np.float64) for part in (width, distribution.mean, inputs))
    width, loc, values = arrays
    return (values - loc) / np.where(width > 0, width, 1)


def _importance(standard: FloatArray, linear: FloatArray) -> FloatArray:
    """Squared correlations of each input with the linear outputs, summed over the outputs."""

    def unit(columns: FloatArray) -> FloatArray:
        centered = columns - columns.mean(axis=0)
        scale = np.linalg.norm(centered, axis=0)
        return centered / np.where(scale > 0, scale, 1)

    return np.sum((unit(standard).T @ unit(linear)) ** 2, axis=1)


def _quantiles(
    distribution: OutputDistribution, mean: FloatArray, sd: FloatArray, bins: ScoreBins
) -> LinearQuantiles:
    """Standardized quantiles of the linear outputs."""
    scores = np.concatenate([bins.nodes, bins.knots])
    column = scores.reshape(-1, *(1,) * len(distribution.batch_shape))
    values = distribution.from_normal_score(column.astype(jnp.result_type(distribution.mean)))
    rows = (np.asarray(values, np.float64).reshape(scores.size, -1) - mean) / sd
    at_nodes, at_knots = np.split(rows.T, [bins.nodes.size], axis=1)
    # In the far tail of a bounded output single precision may not tell them apart.
    apart = 1e-9 * np.arange(bins.knots.size)
    return LinearQuantiles(at_nodes, np.maximum.accumulate(at_knots, axis=1) + apart)
