"""From paired draws to the map that takes linear outputs to those of the network."""

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from numpy.typing import NDArray
from scipy.special import ndtri

from nn_uq_dist.basics import _checks
from nn_uq_dist.basics._known_values import FloatArray, evaluated_now
from nn_uq_dist.basics._row_algebra import binary_unit, namespace
from nn_uq_dist.basics._sobol import MAXIMUM_DIMENSION, sobol_points
from nn_uq_dist.distributions import MonotoneSpline
from nn_uq_dist.laws import OutputLaw
from nn_uq_dist.paired_samples import ScoreBins, Surface, estimate_map, fit_surface
from nn_uq_dist.paired_samples._increasing_values import running_maximum
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


def usable_pairs(pairs: PairedDraws) -> tuple[Array, Array, Array]:
    """Pairs whose outputs are finite, as matrices ``(n, J)`` in float64 if they are known."""
    network: Any = pairs.network
    linear: Any = pairs.linear
    inputs: Any = pairs.inputs
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


def stand_in(linearization: "Linearization", pairs: PairedDraws, network: Any) -> Array | None:
    """Scales of normal laws for outputs without sensitivity, as wide as the network's; else zero.

    None if there are no such outputs, or values are traced.
    """
    if not _checks.is_concrete(linearization, pairs):
        return None
    image = linearization.image(pairs.noise_scale)
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


class Controls(NamedTuple):
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

    at_pairs: Any
    many: tuple[Any, Any] | None
    unexplained: Any


class Correction(NamedTuple):
    """The map and its estimated errors; arrays as in `CorrectedLinearization`."""

    transform: MonotoneSpline
    scores: Array
    shift: Array
    standard_error: Array
    unexplained: Array
    flattened: Array


def controls(
    linearization: "Linearization",
    pairs: PairedDraws,
    usable: tuple[Array, Array, Any],
    own_scale: Array | None,
    num_draws: int | None,
) -> Controls:
    """The linear outputs, plus a polynomial where that helps.

    Parameters
    ----------
    usable
        What `usable_pairs` returns.
    own_scale
        As of `stand_in`.
    num_draws
        Draws of the polynomial; None for a multiple of the pairs.
    """
    network, linear, inputs = usable
    alone: Any = linear
    own: FloatArray | None = None
    if own_scale is not None:
        own = np.asarray(own_scale, np.float64).reshape(-1)
        normal = jax.random.normal(jax.random.fold_in(pairs.key, 2**32 - 4), linear.shape)
        alone = linear + own * np.asarray(normal, np.float64)
    none = Controls(alone, None, jnp.ones(network.shape[1]))
    is_known = isinstance(network, np.ndarray)
    law = linearization.input
    if num_draws == 0 or not is_known or law.batch_shape:
        return none
    if not _checks.is_concrete(linearization, pairs.key):
        return none
    bounded = law.normal_scale is None
    scale = np.asarray(law.half_range if bounded else law.variance**0.5, np.float64)
    scale = np.where(scale > 0, scale, 1)
    center = np.asarray(law.loc, np.float64)

    def standard(values: Any) -> FloatArray:
        found: FloatArray = (np.asarray(values, np.float64) - center) / scale
        return found

    known, target = np.asarray(linear), np.asarray(network)
    importance = _importance(standard(inputs), known)
    surface = fit_surface(standard(inputs), target - known, importance, is_bounded=bounded)
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
    at_pairs = np.where(is_used, known, alone) + surface.left_out
    return Controls(at_pairs, many, surface.unexplained)


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
        outputs = np.asarray(outputs, np.float64) + _noise(pairs, key, blocks + number, outputs)
        linear.append(outputs[:size])
        control.append(outputs[:size] + surface.predict(standard(inputs)[:size]))
    return np.concatenate(control), np.concatenate(linear)


@jax.jit
def _pairs_at(linearization: "Linearization", points: Array) -> tuple[Array, Array]:
    return linearization.pairs_at(points)


def _noise(pairs: PairedDraws, key: Array, number: int, outputs: Array) -> Any:
    if pairs.noise_scale is None:
        return 0.0
    normal = jax.random.normal(jax.random.fold_in(key, number), outputs.shape)
    return np.asarray(pairs.noise_scale, np.float64) * np.asarray(normal, np.float64)


def correction(
    law: OutputLaw, network: Array, found: Controls, num_randomizations: int
) -> Correction:
    """The map of each output, with the batch shape of `law`."""
    bins = ScoreBins.for_samples(network.shape[0])
    is_known = isinstance(network, np.ndarray)
    surface: Any = None
    if found.many is not None:
        of_control, of_linear = (
            sample_averages(np.sort(part, axis=0), bins) for part in found.many
        )
        surface = of_control - of_linear
    quantiles = _quantiles(law, bins, as_numpy=is_known)
    result = estimate_map(network, found.at_pairs, quantiles, surface, bins, num_randomizations)

    # NumPy for known numbers: JAX would compile each step.
    xp, dtype = np if is_known else jnp, jnp.result_type(law.mean)

    def shaped(rows: Any) -> Array:
        found: Array = xp.asarray(rows, dtype).reshape(*law.batch_shape, -1)
        return found

    # Rounding to the type of the outputs may merge knots, as in the far tail of the linear law.
    x, y = _resolved(shaped(result.linear), shaped(result.network))
    averages = result.rest if surface is None else result.rest + surface.T
    return Correction(
        MonotoneSpline(x, y),
        xp.asarray(bins.centers, dtype),
        shaped(averages),
        shaped(result.standard_error),
        jnp.asarray(found.unexplained, dtype).reshape(law.batch_shape),
        shaped(result.flattened).reshape(law.batch_shape),
    )


def _quantiles(law: OutputLaw, bins: ScoreBins, *, as_numpy: bool) -> LinearQuantiles:
    """Quantiles of the linear law, outputs along one axis."""
    parts = bins.nodes, bins.centers, bins.knots
    scores = np.concatenate(parts)
    dtype = jnp.result_type(law.mean)
    column = scores.reshape(-1, *(1,) * len(law.batch_shape)).astype(dtype)
    values: Any = law.from_normal_score(column).reshape(scores.size, -1)
    mean: Any
    sd: Any
    mean, sd = law.mean.reshape(-1), law.standard_deviation.reshape(-1)
    if as_numpy:
        values, mean, sd = (np.asarray(part, np.float64) for part in (values, mean, sd))
    first, second = parts[0].size, parts[0].size + parts[1].size
    return LinearQuantiles(values[:first], values[first:second], values[second:], mean, sd)


def _resolved(x: Array, y: Array) -> tuple[Array, Array]:
    """Knots and images that the type tells apart; those that it does not move beyond the last one.

    There the map is a straight line, with or without them. To push them apart in place would move
    an output that saturates far from zero by as many roundings as there are knots. Of images that
    are equal, the first and the last knot are kept, one step of a grid apart.
    """
    xp: Any = namespace(x, y)
    (x_steps, x_gap), (y_steps, y_gap) = _grid(x), _grid(y)
    rise = xp.diff(y_steps, axis=-1)
    before = xp.concatenate([xp.full_like(rise[..., :1], np.inf), rise], axis=-1)
    after = xp.concatenate([rise, xp.full_like(rise[..., :1], np.inf)], axis=-1)
    is_low = y_steps <= y_steps[..., y_steps.shape[-1] // 2, None]
    # Low plateaus rise toward their ends, high ones from below their beginnings, if there is room.
    kept = xp.where(is_low, (before > 0) | (after > 1), (after > 0) | (before > 2))
    moved = xp.where(is_low, before == 0, 0.0) - xp.where(is_low, 0.0, after == 0)
    distinct = (xp.diff(x_steps, axis=-1) > 0)[..., :-1] & (x_steps < x_steps[..., -1:])[..., 1:-1]
    end = xp.ones_like(distinct[..., :1])
    kept = kept & xp.concatenate([end, distinct, end], axis=-1)
    x, y = _at_steps(x, x_steps, x_gap), _at_steps(y, y_steps + moved, y_gap)
    order = xp.argsort(~kept, axis=-1, stable=True)
    last = xp.sum(kept, axis=-1, keepdims=True) - 1
    beyond = np.arange(kept.shape[-1]) - last

    def spread(part: Array) -> Array:
        part = xp.take_along_axis(part, order, -1)
        final, inner = (xp.take_along_axis(part, last - shift, -1) for shift in (0, 1))
        return xp.where(beyond > 0, final + (beyond * (final - inner)).astype(part.dtype), part)

    return spread(x), spread(y)


def _grid(knots: Array) -> tuple[Array, Array]:
    """Steps of a grid from the first knot, and its gap: some two roundings of the largest knot."""
    xp: Any = namespace(knots)
    width = xp.max(xp.abs(knots), axis=-1, keepdims=True)
    gap = binary_unit(2 * jnp.finfo(knots.dtype).eps * width)
    steps = running_maximum(xp.round((knots - knots[..., :1]) / gap))
    # Without any rise, that of one step.
    final = xp.maximum(steps[..., -1:], 1)
    return xp.concatenate([steps[..., :-1], final], axis=-1), gap


def _at_steps(knots: Array, steps: Array, gap: Array) -> Array:
    rounded = (knots[..., :1] + gap * steps).astype(knots.dtype)
    # Rounding has no derivative.
    return rounded if namespace(knots) is np else knots + lax.stop_gradient(rounded - knots)
