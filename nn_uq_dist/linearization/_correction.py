"""From paired draws with known values to the map that takes linear outputs to the network's."""

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray
from scipy.special import ndtri

from nn_uq_dist.basics import _checks
from nn_uq_dist.basics._known_values import FloatArray, evaluated_now
from nn_uq_dist.basics._nodes import MAXIMUM_DIMENSION, sobol_points
from nn_uq_dist.basics._row_algebra import binary_unit
from nn_uq_dist.distributions import MonotoneSpline
from nn_uq_dist.laws import OutputLaw
from nn_uq_dist.paired_samples import ScoreBins, Surface, estimate_map, fit_surface
from nn_uq_dist.paired_samples._quantile_map import LinearQuantiles
from nn_uq_dist.paired_samples._score_bins import sample_averages
from nn_uq_dist.sampling import PairedDraws

if TYPE_CHECKING:  # its method `corrected` needs this module
    from nn_uq_dist.linearization._linearized_network import Linearization

_FEWEST_PAIRS = 8
# Cheap draws of a surface for each draw of the network, and bounds on their number.
_SURFACE_DRAWS = 32
_FEWEST_SURFACE_DRAWS, _MOST_SURFACE_DRAWS = 2**15, 2**17
_BLOCK = 2**13
# Roundings of its mean that the standard deviation of a linear output must comprise: with fewer,
# the knots of a map cannot be told apart.
_FEWEST_STEPS = 50.0


def usable_pairs(pairs: PairedDraws) -> tuple[Any, Any, Any]:
    """Pairs whose outputs are finite, as matrices ``(n, J)`` in float64 if they are known."""
    network: Any = pairs.network
    linear: Any = pairs.linear
    inputs: Any = pairs.base_inputs
    count = network.shape[0]
    network, linear = network.reshape(count, -1), linear.reshape(count, -1)
    if _checks.is_concrete(network, linear):
        network, linear = np.asarray(network, np.float64), np.asarray(linear, np.float64)
        kept = np.isfinite(network).all(axis=1)
        # Randomizations keep their lengths: a gap is filled by the pair before it.
        if pairs.num_randomizations and not kept.all():
            rows = np.maximum.accumulate(np.where(kept, np.arange(count), 0))
            network, linear, inputs = network[rows], linear[rows], np.asarray(inputs)[rows]
        else:
            network, linear, inputs = network[kept], linear[kept], np.asarray(inputs)[kept]
        if not np.isfinite(network).all():
            network = network[:0]
    if network.shape[0] < _FEWEST_PAIRS:
        raise ValueError(
            f"pairs must hold at least {_FEWEST_PAIRS} draws with finite outputs, got "
            f"{network.shape[0]}; draw more, or check the network over the range of its input"
        )
    return network, linear, inputs


def at_once(*trees: Any) -> AbstractContextManager[Any]:
    """Compute with known numbers now, even while a function that closes over them is traced."""
    return evaluated_now() if _checks.is_concrete(*trees) else nullcontext()


def _stand_in(linearization: "Linearization", network: FloatArray) -> Array | None:
    """Scales of normal laws for outputs without sensitivity, as wide as the network's; else zero.

    None if there are no such outputs.
    """
    image = linearization.image()
    constant = np.asarray(image.is_constant)
    dtype = jnp.result_type(linearization.loc)
    loc = np.asarray(linearization.loc, np.float64)
    spread = network.std(axis=0).reshape(loc.shape)
    # An output whose linear part is lost in the rounding of its mean has no order to be mapped.
    own = np.asarray(image.standard_deviation, np.float64)
    lost = (own < _FEWEST_STEPS * float(jnp.finfo(dtype).eps) * np.abs(loc)) & (own < spread / 4)
    without = constant | lost
    if not without.any():
        return None
    # An output that is constant in all draws gets a negligible width.
    spread = np.maximum(spread, 1e-6 * np.maximum(np.abs(loc), 1))
    return jnp.asarray(np.where(without, spread, 0.0), dtype)


def require_pairs(linearization: "Linearization", pairs: Any) -> None:
    if not isinstance(pairs, PairedDraws):
        raise TypeError(
            f"pairs must be PairedDraws, got {type(pairs).__name__}; pass "
            f"paired_draws(network, linearization, key, num_samples)"
        )
    other = pairs.linearization
    structures = {jax.tree.structure(each) for each in (other, linearization)}
    same = len(structures) == 1
    if same and _checks.is_concrete(other, linearization):
        leaves = zip(jax.tree.leaves(other), jax.tree.leaves(linearization), strict=True)
        same = all(a is b or np.array_equal(a, b) for a, b in leaves)
    if not same:
        raise ValueError(
            "pairs must be those of this linearization, got pairs of another one; pass "
            "paired_draws(network, linearization, key, num_samples)"
        )


class _Controls(NamedTuple):
    """Predictions of the network's outputs: at the pairs, and at many more random inputs.

    Attributes
    ----------
    at_pairs
        Shape ``(n, J)``.
    many
        Predictions and linear outputs at the same random inputs, both ``(m, J)``; ``None`` if the
        prediction is the linear output itself.
    unexplained
        Share of the variance of the differences that the surface does not explain, ``(J,)``.
    """

    at_pairs: FloatArray
    many: tuple[FloatArray, FloatArray] | None
    unexplained: FloatArray


class Correction(NamedTuple):
    """The map and its estimated errors; arrays as in `CorrectedLinearization`."""

    transform: MonotoneSpline
    scores: NDArray[Any]
    shift: NDArray[Any]
    standard_error: NDArray[Any]
    unexplained: NDArray[Any]
    flattened: NDArray[Any]
    own_scale: Array | None


def correction(
    linearization: "Linearization", pairs: PairedDraws, num_draws: int | None
) -> Correction:
    """Estimate the map of each output.

    Parameters
    ----------
    linearization, pairs
        With known values.
    num_draws
        Draws of the polynomial; None for a multiple of the pairs.
    """
    usable = usable_pairs(pairs)
    own_scale = _stand_in(linearization, usable[0])
    law = linearization.marginals(own_scale)
    found = _controls(linearization, pairs, usable, own_scale, num_draws)
    return _mapped(law, usable[0], found, own_scale, pairs.num_randomizations)


def _controls(
    linearization: Any,
    pairs: PairedDraws,
    usable: tuple[Any, Any, Any],
    own_scale: Array | None,
    num_draws: int | None,
) -> _Controls:
    """The linear outputs, plus a polynomial where that helps."""
    network, linear, inputs = usable
    alone = linear
    own: FloatArray | None = None
    if own_scale is not None:
        own = np.asarray(own_scale, np.float64).reshape(-1)
        normal = jax.random.normal(jax.random.fold_in(pairs.key, 2**32 - 4), linear.shape)
        alone = linear + own * np.asarray(normal, np.float64)
    none = _Controls(alone, None, np.ones(network.shape[1]))
    law = linearization.input
    if num_draws == 0 or law.batch_shape:
        return none
    bounded = law.normal_scale is None
    scale = np.asarray(law.half_range if bounded else law.standard_deviation, np.float64)
    scale = np.where(scale > 0, scale, 1)
    center = np.asarray(law.loc, np.float64)

    def standard(values: Any) -> FloatArray:
        found: FloatArray = (np.asarray(values, np.float64) - center) / scale
        return found

    importance = _importance(standard(inputs), linear)
    surface = fit_surface(standard(inputs), network - linear, importance, is_bounded=bounded)
    if surface is None:
        return none
    if num_draws is None:
        wanted = _SURFACE_DRAWS * len(network)
        num_draws = int(np.clip(wanted, _FEWEST_SURFACE_DRAWS, _MOST_SURFACE_DRAWS))
    many = _many(linearization, pairs, surface, standard, num_draws)
    # A polynomial predicts an output without sensitivity better without its stand-in.
    is_used = surface.unexplained < 1
    if own is not None:
        _add_stand_in(*many, own, is_used)
    at_pairs = np.where(is_used, linear, alone) + surface.left_out
    return _Controls(at_pairs, many, surface.unexplained)


def _add_stand_in(
    control: FloatArray, linear: FloatArray, own_scale: FloatArray, is_used: NDArray[np.bool_]
) -> None:
    """Give linear outputs their stand-ins, and controls that are nothing but linear outputs."""
    count = len(linear)
    # Each output is compared by itself, so its values need no random order, nor any noise.
    normal = ndtri((np.arange(count) + 0.5) / count)
    for j in np.flatnonzero(own_scale):
        linear[:, j] += own_scale[j] * normal
        if not is_used[j]:
            control[:, j] += own_scale[j] * normal


def _importance(standard: FloatArray, linear: FloatArray) -> FloatArray:
    """Squared correlations of each input with the linear outputs, summed over the outputs."""
    x, y = standard - standard.mean(axis=0), linear - linear.mean(axis=0)
    x_scale, y_scale = np.linalg.norm(x, axis=0), np.linalg.norm(y, axis=0)
    x, y = x / np.where(x_scale > 0, x_scale, 1), y / np.where(y_scale > 0, y_scale, 1)
    found: FloatArray = np.sum((x.T @ y) ** 2, axis=1)
    return found


def _many(
    linearization: "Linearization",
    pairs: PairedDraws,
    surface: Surface,
    standard: Any,
    num_draws: int,
) -> tuple[FloatArray, FloatArray]:
    """Many draws of the control and of the linear outputs, without network evaluations."""
    # Not one of the keys of the network's draws, which `fold_in` numbers from 0 to 2**31.
    key = jax.random.fold_in(pairs.key, 2**32 - 1)
    dimension = linearization.num_coordinates
    blocks = -(-num_draws // _BLOCK)
    spread = None
    if dimension <= MAXIMUM_DIMENSION:
        # Evenly, so that the noise of these draws is far below that of the network's.
        spread = sobol_points(key, blocks * _BLOCK, 1, dimension).reshape(blocks, _BLOCK, -1)
    control, linear = [], []
    for number in range(blocks):
        size = min(_BLOCK, num_draws - number * _BLOCK)
        if spread is None:
            points = jax.random.uniform(jax.random.fold_in(key, number), (_BLOCK, dimension))
        else:
            points = spread[number]
        inputs, outputs = _pairs_at(linearization, points.astype(linearization.input.dtype))
        outputs = np.asarray(outputs, np.float64)
        linear.append(outputs[:size])
        control.append(outputs[:size] + surface.predict(standard(inputs)[:size]))
    return np.concatenate(control), np.concatenate(linear)


@jax.jit
def _pairs_at(linearization: "Linearization", points: Array) -> tuple[Array, Array]:
    return linearization.pairs_at(points)


def _mapped(
    law: OutputLaw,
    network: FloatArray,
    found: _Controls,
    own_scale: Array | None,
    num_randomizations: int,
) -> Correction:
    """The map of each output, with the batch shape of `law`."""
    bins = ScoreBins.for_samples(len(network))
    surface: FloatArray | None = None
    if found.many is not None:
        of_control, of_linear = (
            sample_averages(np.sort(part, axis=0), bins) for part in found.many
        )
        surface = of_control - of_linear
    quantiles = _quantiles(law, bins)
    result = estimate_map(network, found.at_pairs, quantiles, surface, bins, num_randomizations)
    dtype = jnp.result_type(law.mean)

    def shaped(rows: FloatArray) -> NDArray[Any]:
        return rows.astype(dtype).reshape(*law.batch_shape, -1)

    # Rounding to the type of the outputs may merge knots, as in the far tail of the linear law.
    x, y = _resolved(shaped(result.linear), shaped(result.network))
    averages = result.rest if surface is None else result.rest + surface.T
    return Correction(
        MonotoneSpline(x, y),
        bins.centers.astype(dtype),
        shaped(averages),
        shaped(result.standard_error),
        shaped(found.unexplained).reshape(law.batch_shape),
        shaped(result.flattened).reshape(law.batch_shape),
        own_scale,
    )


def _quantiles(law: OutputLaw, bins: ScoreBins) -> LinearQuantiles:
    """Quantiles of the linear law, outputs along one axis."""
    parts = bins.nodes, bins.centers, bins.knots
    scores = np.concatenate(parts)
    column = scores.reshape(-1, *(1,) * len(law.batch_shape))
    values, mean, sd = (
        np.asarray(part, np.float64)
        for part in (
            law.from_normal_score(column.astype(jnp.result_type(law.mean))),
            law.mean.reshape(-1),
            law.standard_deviation.reshape(-1),
        )
    )
    values = values.reshape(scores.size, -1)
    first, second = parts[0].size, parts[0].size + parts[1].size
    return LinearQuantiles(values[:first], values[first:second], values[second:], mean, sd)


def _resolved(x: NDArray[Any], y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Knots and images that the type tells apart; those that it does not move beyond the last one.

    There the map is a straight line, with or without them. To push them apart in place would move
    an output that saturates far from zero by as many roundings as there are knots. Of images that
    are equal, the first and the last knot are kept, one step of a grid apart.
    """
    (x_steps, x_gap), (y_steps, y_gap) = _grid(x), _grid(y)
    rise = np.diff(y_steps, axis=-1)
    before = np.concatenate([np.full_like(rise[..., :1], np.inf), rise], axis=-1)
    after = np.concatenate([rise, np.full_like(rise[..., :1], np.inf)], axis=-1)
    is_low = y_steps <= y_steps[..., y_steps.shape[-1] // 2, None]
    # Low plateaus rise toward their ends, high ones from below their beginnings, if there is room.
    kept = np.where(is_low, (before > 0) | (after > 1), (after > 0) | (before > 2))
    moved = np.where(is_low, before == 0, 0.0) - np.where(is_low, 0.0, after == 0)
    distinct = (np.diff(x_steps, axis=-1) > 0)[..., :-1] & (x_steps < x_steps[..., -1:])[..., 1:-1]
    end = np.ones_like(distinct[..., :1])
    kept = kept & np.concatenate([end, distinct, end], axis=-1)
    x, y = _at_steps(x, x_steps, x_gap), _at_steps(y, y_steps + moved, y_gap)
    order = np.argsort(~kept, axis=-1, stable=True)
    last = np.sum(kept, axis=-1, keepdims=True) - 1
    beyond = np.arange(kept.shape[-1]) - last

    def spread(part: NDArray[Any]) -> NDArray[Any]:
        part = np.take_along_axis(part, order, -1)
        final, inner = (np.take_along_axis(part, last - shift, -1) for shift in (0, 1))
        return np.where(beyond > 0, final + (beyond * (final - inner)).astype(part.dtype), part)

    return spread(x), spread(y)


def _grid(knots: NDArray[Any]) -> tuple[NDArray[Any], Any]:
    """Steps of a grid from the first knot, and its gap: some two roundings of the largest knot."""
    width = np.max(np.abs(knots), axis=-1, keepdims=True)
    gap: Any = binary_unit(2 * jnp.finfo(knots.dtype).eps * width)
    steps = np.maximum.accumulate(np.round((knots - knots[..., :1]) / gap), axis=-1)
    # Without any rise, that of one step.
    final = np.maximum(steps[..., -1:], 1)
    return np.concatenate([steps[..., :-1], final], axis=-1), gap


def _at_steps(knots: NDArray[Any], steps: NDArray[Any], gap: Any) -> NDArray[Any]:
    rounded: NDArray[Any] = (knots[..., :1] + gap * steps).astype(knots.dtype)
    return rounded
