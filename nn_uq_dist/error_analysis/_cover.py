r"""Parts of the input, each with affine bounds: certain ones, and tighter ones that may fail.

Let :math:`E` be the event that every pre-activation lies in a chosen range. On it the affine bounds
of those ranges hold; and a pre-activation can leave its own range only if an affine bound of it
does, which is an event of known probability. Ranges are cut where that costs little.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.error_analysis._affine_bounds import (
    NORMAL_RANGE,
    AffineForms,
    Boxes,
    Lines,
    StandardNetwork,
    centers,
    lines_of,
    lower_forms,
    rounding_of,
    tangents,
)
from nn_uq_dist.error_analysis._distribution_bounds import EPS, distribution_bounds
from nn_uq_dist.inputs.terms import UNIFORM_VARIANCE

# Ends of a range that are tried, and tolerance of their probabilities, as for
# `distribution_bounds`.
_NUM_CUTS, _TOLERANCE = 13, 1e-8
# Probability of a normal variable beyond NORMAL_RANGE.
_BEYOND = 2.3e-19
# Numbers of the arrays for the cuts of one portion of boxes.
_NEURONS_AT_ONCE = 2**14
_PAIRS_AT_ONCE = 2**17
# Where many parts add up, so may their errors, which parts that are decided do not have.
_TOLERANCES = (1e-12, 1e-7)
# What a unit of the output is worth in probability, in units of the largest density of a normal
# distribution with the standard deviation of the tangent: for the whole input, and for parts of it.
_WORTHS, _WORTH_OF_PARTS = (1.0, 1.0, 0.5, 0.2, 0.06), 0.5
# Where the gap is looked at: up to 4 standard deviations of the tangent, and between quantiles.
_MOST_SCORE = 1.6
_NUM_AROUND = 33
_NUM_BETWEEN = 16
_EXTREME = 1e-3
_LEAST_MASS = 2.0**-50


class Enclosed(NamedTuple):
    """Affine bounds of outputs and of their negatives on boxes, outside of an unlikely event.

    Attributes
    ----------
    forms
        Lower bounds of the outputs and then of their negatives.
    failure
        Upper bound on the probability of that event, given the box, shape ``(P,)``.
    shares
        How much each variable contributes to the distance of the bounds, shape ``(P, V)``.
    influence
        Size of the coefficient of each neuron in the bounds, a list over the layers, ``(P, N)``.
    """

    forms: AffineForms
    failure: FloatArray
    shares: FloatArray
    influence: list[FloatArray]


def largest_probability(
    network: StandardNetwork, boxes: Boxes, forms: AffineForms, points: FloatArray, tolerance: float
) -> FloatArray:
    """Upper bounds on the probabilities that forms are at most `points`, shape ``(P, R, Y)``."""
    mean = forms.middle(boxes)[..., None]
    shape = (*forms.const.shape, points.shape[-1])
    weights = forms.rows[..., network.is_uniform] * boxes.radius[:, None, network.is_uniform]
    normal = forms.rows[..., ~network.is_uniform]
    count = normal.shape[-1]
    scale = np.sqrt((normal**2).sum(axis=-1)) * (1 + (count + 4) * EPS)
    # Squares of normal columns may underflow.
    rounding = 4 * EPS * (np.abs(points) + np.abs(mean)) + 1e-140
    rounding = rounding + 2 * NORMAL_RANGE * (count + 8) * EPS * scale[..., None]
    flat = np.broadcast_to(points - mean + rounding, shape).reshape(-1, shape[-1])
    rows = weights.reshape(len(flat), -1)
    high = distribution_bounds(flat, rows, scale.ravel(), tolerance)[1].reshape(shape)
    return np.minimum(high + (_BEYOND * (1 + count) if count else 0.0), 1.0)


def enclosed(
    network: StandardNetwork,
    boxes: Boxes,
    price: float = 0.0,
    influence: list[FloatArray] | None = None,
) -> Enclosed:
    r"""Bound the output on each box.

    Parameters
    ----------
    network, boxes
        What is bounded, and where.
    price
        What a unit of distance between the bounds is worth in probability; zero for bounds that
        hold on the whole box. The ends :math:`l, u` of each range minimize
        :math:`P(h < l) + P(h > u) + \text{price}\, |\Lambda|\, (\text{chord} - \text{tangent})`
        with the lines at the center of the box.
    influence
        :math:`|\Lambda|`, by default that of the tangents at the centers.
    """
    if influence is None:
        influence = tangents(network, boxes)[1]
    count = len(boxes.center)
    failure, shares = np.zeros(count), np.zeros(boxes.center.shape)
    lines: list[Lines] = []
    layers = zip(network.weights, network.biases, centers(network, boxes), influence, strict=True)
    for weights, bias, middle, size in layers:
        rounding = rounding_of(network, lines, np.zeros((count, 1)))
        rows = np.tile(np.concatenate([weights, -weights]), (count, 1, 1))
        const = np.concatenate([bias - rounding, -bias - rounding], axis=-1)
        forms, _ = lower_forms(network, (rows, const, 0.0), lines, boxes)
        least, paid = _cut(network, boxes, forms, middle, price * size)
        failure += paid
        line = lines_of(network, lines, least, middle)
        lines.append(line)
        distance = size * np.maximum((line.upper - line.lower) * middle + line.intercept, 0)
        moves = np.abs(forms.rows[:, : len(bias)]) * boxes.radius[:, None]
        total = np.maximum(moves.sum(axis=-1, keepdims=True), np.finfo(float).tiny)
        shares += (distance[..., None] * (moves / total)).sum(axis=1)
    forms, influence = lower_forms(network, network.ends(lines[-1].largest), lines, boxes)
    return Enclosed(forms, failure, shares, influence)


def _cut(
    network: StandardNetwork,
    boxes: Boxes,
    forms: AffineForms,
    middle: FloatArray,
    worth: FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Ends of the ranges, of pre-activations and of their negatives, and what cutting costs."""
    num, least = middle.shape[-1], forms.smallest(boxes)
    failure = np.zeros(len(middle))
    box, neuron = np.nonzero((least[:, :num] < 0) & (least[:, num:] < 0) & (worth > 0))
    if not len(box):
        return least, failure
    sides = box[:, None], np.stack([neuron, neuron + num], axis=-1)
    cuts = least[sides][..., None] * np.linspace(0, 1, _NUM_CUTS) ** 2
    paid = largest_probability(network, boxes.take(box), forms.take(sides), cuts, _TOLERANCE)
    paid[..., -1] = 0
    low, high = cuts[:, 0, :, None], -cuts[:, 1, None, :]
    h = middle[box, neuron][:, None, None]
    width = np.maximum(high - low, np.finfo(float).tiny)
    # The chord at the center minus the activation itself; none if one end is zero.
    over = np.where(h >= 0, -low * (high - h), high * (h - low)) / width
    gap = (1 - network.alpha) * np.maximum(over, 0)
    cost = paid[:, 0, :, None] + paid[:, 1, None, :] + worth[box, neuron][:, None, None] * gap
    best = np.divmod(cost.reshape(len(box), -1).argmin(axis=-1), _NUM_CUTS)
    chosen = np.arange(len(box))[:, None], np.arange(2), np.stack(best, axis=-1)
    least[sides] = cuts[chosen]
    np.add.at(failure, box, paid[chosen].sum(axis=-1) * (1 + 1e-12))
    return least, failure


class Cover(NamedTuple):
    """Boxes that together are all values of the variables, each with K pairs of bounds.

    Attributes
    ----------
    boxes, mass
        The boxes and their probabilities, shape ``(P,)``: powers of two, hence exact.
    forms
        Lower bounds of the output and of its negative, shapes ``(P, K, 2, V)`` and ``(P, K, 2)``;
        the first of K hold on the whole box.
    failure
        Probabilities that they do not hold, given the box, shape ``(P, K)``.
    shares
        Contributions of the variables to the distance of the bounds, shape ``(P, V)``.
    """

    boxes: Boxes
    mass: FloatArray
    forms: AffineForms
    failure: FloatArray
    shares: FloatArray

    @property
    def certain(self) -> AffineForms:
        """The bounds that hold on the whole box."""
        return self.forms.take(np.s_[:, 0])

    @property
    def range(self) -> tuple[float, float]:
        """What the output lies between, wherever the variables are in their ranges."""
        least = self.certain.smallest(self.boxes).min(axis=0)
        return float(least[0]), float(-least[1])


# For the whole input, and for its parts if there are any.
type Covers = tuple[Cover, ...]


def cover_of(
    network: StandardNetwork, boxes: Boxes, mass: FloatArray, prices: Sequence[float]
) -> Cover:
    """Bounds on each box: certain ones, and for each price of a unit of distance.

    Ranges are cut for each price with the influence of neurons that the bounds before say.
    """
    portion = max(1, _NEURONS_AT_ONCE // sum(map(len, network.biases)))
    covers = []
    for start in range(0, len(mass), portion):
        rows = slice(start, start + portion)
        kinds = [enclosed(network, boxes.take(rows))]
        for price in prices:
            kinds.append(enclosed(network, boxes.take(rows), price, kinds[-1].influence))
        forms, failure = jax.tree.map(
            lambda *arrays: np.stack(arrays, axis=1),
            *((kind.forms, kind.failure) for kind in kinds),
        )
        covers.append(Cover(boxes.take(rows), mass[rows], forms, failure, kinds[0].shares))
    return joined(covers)


def whole_cover(network: StandardNetwork) -> Cover:
    """Bounds for the whole input."""
    prices = [part * _unit_price(network) for part in _WORTHS]
    return cover_of(network, Boxes.whole(network), np.ones(1), prices)


def refined(network: StandardNetwork, cover: Cover, most: int, threshold: float | None) -> Cover:
    """The cover with up to `most` of its boxes halved: those that separate the bounds the most.

    Across the variable with the largest share; the same cover if nothing is left to be halved.
    """
    price = _WORTH_OF_PARTS * _unit_price(network)
    if threshold is None:
        # Distance of the bounds at the center, plus what may fail at this price.
        rows, const = cover.forms
        least = const + (rows @ cover.boxes.center[:, None, :, None])[..., 0]
        score = (cover.failure / price - least.sum(axis=-1)).min(axis=-1)
    else:
        score = np.add(*tails(network, cover, np.array([threshold], float)))[:, 0] - 1
    # Smaller parts would have centers that are rounded, and miss a piece of the box.
    score = np.where(cover.mass > _LEAST_MASS, cover.mass * score, 0)
    num = min(len(score) // 3 + 1, most, int(np.count_nonzero(score > 0)))
    if num == 0:
        return cover
    chosen = np.argpartition(-score, num - 1)[:num]
    kept = np.delete(np.arange(len(cover.mass)), chosen)
    axis = np.where(network.is_uniform, cover.shares[chosen], -1.0).argmax(axis=-1)
    middle, half = cover.boxes.take(chosen)
    moved = np.zeros_like(half)
    moved[np.arange(num), axis] = half[np.arange(num), axis] / 2
    half = np.tile(half - moved, (2, 1))
    boxes = Boxes(np.concatenate([middle - moved, middle + moved]), half)
    children = cover_of(network, boxes, np.tile(cover.mass[chosen] / 2, 2), [price])
    # The whole input, which is split first, has more kinds of bounds than parts have.
    rest = [jax.tree.map(lambda array: array[kept], cover)] if kept.size else []
    return joined([*rest, children])


def joined(covers: Sequence[Cover]) -> Cover:
    """All boxes in one."""
    return jax.tree.map(lambda *arrays: np.concatenate(arrays), *covers)


def tails(network: StandardNetwork, cover: Cover, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Upper bounds on the probabilities of ``g <= y`` and ``g >= y`` given each box, ``(P, Y)``."""
    least = cover.certain.smallest(cover.boxes)
    impossible = np.stack([y < least[:, :1], y > -least[:, 1:]], axis=1)
    # A normal variable may be outside of its range.
    normal = 1e-18 * np.count_nonzero(~network.is_uniform)
    most = np.where(impossible, normal, 1.0)
    box, point = np.nonzero(~impossible.any(axis=1))
    points = np.stack([y, -y])
    tolerance = _TOLERANCES[len(cover.mass) > 1]
    for start in range(0, len(box), _PAIRS_AT_ONCE):
        b, p = (index[start : start + _PAIRS_AT_ONCE] for index in (box, point))
        boxes, limits = cover.boxes.take(b), points.T[p, :, None]
        for kind in range(cover.failure.shape[1]):
            forms = cover.forms.take((b, kind))
            pairs = largest_probability(network, boxes, forms, limits, tolerance)
            value = pairs[..., 0] + cover.failure[b, kind, None]
            most[b, :, p] = np.minimum(most[b, :, p], value * (1 + 4 * EPS))
    return most[:, 0], most[:, 1]


def tails_of(network: StandardNetwork, covers: Covers, points: FloatArray) -> list[FloatArray]:
    """`tails` of the whole input, at points of any shape: the better of those of the covers."""
    sums = []
    for cover in covers:
        margin = 1 + (len(cover.mass) + 4) * EPS
        sums.append([cover.mass @ side * margin for side in tails(network, cover, points.ravel())])
    sides = zip(*sums, strict=True)
    return [np.min(side, axis=0, initial=1).reshape(points.shape) for side in sides]


def largest_gap(network: StandardNetwork, covers: Covers, points: FloatArray) -> float:
    """Largest distance of the bounds on the distribution function at points."""
    below, above = tails_of(network, covers, points)
    return float(np.max(below + above - 1))


def mean_bounds(network: StandardNetwork, cover: Cover) -> FloatArray:
    """Lower bounds on the means of the output and of its negative, shape ``(2,)``."""
    forms, (center, radius) = cover.certain, cover.boxes
    size = np.abs(forms.const) + (np.abs(forms.rows) @ (np.abs(center) + radius)[..., None])[..., 0]
    slack = (len(cover.mass) + center.shape[-1] + 8) * EPS * (cover.mass @ size)
    num_normal = np.count_nonzero(~network.is_uniform)
    if num_normal:
        # Outside of the range of the normal variables the bounds need not hold; output and bounds
        # grow no faster there than linearly.
        signal = network.sizes
        for weights, bias in zip(network.weights[1:], network.biases[1:], strict=True):
            signal = np.abs(weights) @ signal + np.abs(bias)
        largest = np.abs(network.output) @ signal + network.direct_size
        slack = slack + 1e-17 * num_normal**2 * (largest + cover.mass @ size)
    return cover.mass @ forms.middle(cover.boxes) - slack


def largest_error(network: StandardNetwork, cover: Cover) -> float:
    """Bound on the distance of the output from its tangent at the mean."""
    tangent, forms = tangents(network, Boxes.whole(network))[0], cover.certain
    # An output less its tangent is at least the bound of the one plus that of the negative of the
    # other.
    rows, const = forms.rows + tangent.rows[:, ::-1], forms.const + tangent.const[:, ::-1]
    return -float(AffineForms(rows, const).smallest(cover.boxes).min())


def _unit_price(network: StandardNetwork) -> float:
    """Largest density of a normal distribution with the standard deviation of the tangent."""
    variance = np.where(network.is_uniform, UNIFORM_VARIANCE, 1.0)
    rows = tangents(network, Boxes.whole(network))[0].rows[0]
    spread = float(np.sqrt((rows**2 @ variance).max()))
    return 1 / (math.sqrt(2 * math.pi) * (spread or 1.0))


def looked_at(network: StandardNetwork, cover: Cover) -> FloatArray:
    """Points around the mean of the tangent, and between extreme quantiles of the bounds."""
    low, high = tangents(network, Boxes.whole(network))[0].const[0]
    middle, distance = (low - high) / 2, _MOST_SCORE / _unit_price(network)
    around = np.linspace(middle - distance, middle + distance, _NUM_AROUND)
    grid = np.sort(np.concatenate([around, np.linspace(*cover.range, _NUM_AROUND)]))
    below, above = tails_of(network, (cover,), grid)
    inside = grid[(below > _EXTREME) & (above > _EXTREME)]
    between = np.linspace(inside.min(initial=middle), inside.max(initial=middle), _NUM_BETWEEN)
    return np.concatenate([around, between])
