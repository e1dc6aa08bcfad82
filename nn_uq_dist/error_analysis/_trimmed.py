r"""Affine bounds that hold except with a small probability, and what that probability is.

Let :math:`E` be the event that every pre-activation lies in a chosen range. On it the affine bounds
of those ranges hold; and a pre-activation can leave its own range only if an affine bound of it
does, which is an event of known probability. Ranges are cut where that costs little.
"""

from typing import NamedTuple

import numpy as np

from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.error_analysis import _affine_bounds as affine
from nn_uq_dist.error_analysis._affine_bounds import AffineForms, Boxes, StandardNetwork
from nn_uq_dist.error_analysis._distribution_bounds import distribution_bounds
from nn_uq_dist.error_analysis._float64_network import EPS

_NUM_CUTS = 13
# Of probabilities for cuts, as for `distribution_bounds`.
_TOLERANCE = 1e-8
# Probability of a normal variable beyond NORMAL_RANGE.
_BEYOND = 2.3e-19


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
    rounding = rounding + 2 * affine.NORMAL_RANGE * (count + 8) * EPS * scale[..., None]
    flat = np.broadcast_to(points - mean + rounding, shape).reshape(-1, shape[-1])
    parts = flat, weights.reshape(len(flat), -1), scale.reshape(-1)
    high = distribution_bounds(*parts, tolerance)[1].reshape(shape)
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
    middles = affine.centers(network, boxes)
    weight_of = influence or [part.mean(axis=1) for part in affine.tangents(network, boxes)[1]]
    count = len(boxes.center)
    failure, shares = np.zeros(count), np.zeros(boxes.center.shape)
    lines: list[affine.Lines] = []
    for layer, (weights, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
        middle, weight, num = middles[layer], weight_of[layer], len(bias)
        own = affine.rounding_of(network, lines, np.zeros((count, 1)))
        rows = np.tile(np.concatenate([weights, -weights]), (count, 1, 1))
        const = np.concatenate([bias - own, -bias - own], axis=-1)
        forms, _ = affine.lower_forms(network, (rows, const, 0.0), lines, boxes)
        least, paid = _cut(network, boxes, forms, middle, price * weight)
        failure += paid
        line = affine.lines_of(network, lines, least, middle)
        lines.append(line)
        distance = weight * np.maximum((line.upper - line.lower) * middle + line.intercept, 0)
        part = np.abs(forms.rows[:, :num]) * boxes.radius[:, None]
        total = np.maximum(part.sum(axis=-1, keepdims=True), np.finfo(float).tiny)
        shares += (distance[..., None] * (part / total)).sum(axis=1)
    forms, seen = affine.lower_forms(network, network.ends(lines[-1].largest), lines, boxes)
    return Enclosed(forms, failure, shares, [part.mean(axis=1) for part in seen])


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
    sides = np.stack([neuron, neuron + num], axis=-1)
    there = AffineForms(forms.rows[box[:, None], sides], forms.const[box[:, None], sides])
    ends = least[box[:, None], sides]
    cuts = ends[..., None] * np.linspace(0, 1, _NUM_CUTS) ** 2
    paid = largest_probability(network, boxes.take(box), there, cuts, _TOLERANCE)
    paid[..., -1] = 0
    low, high = cuts[:, 0, :, None], -cuts[:, 1, None, :]
    at = middle[box, neuron][:, None, None]
    width = np.maximum(high - low, np.finfo(float).tiny)
    # The chord at the center minus the activation itself; none if one end is zero.
    over = np.where(at >= 0, -low * (high - at), high * (at - low)) / width
    gap = (1 - network.alpha) * np.maximum(over, 0)
    cost = paid[:, 0, :, None] + paid[:, 1, None, :] + worth[box, neuron][:, None, None] * gap
    first, second = np.divmod(cost.reshape(len(box), -1).argmin(axis=-1), _NUM_CUTS)
    index = np.arange(len(box))
    least[box, neuron] = cuts[index, 0, first]
    least[box, neuron + num] = cuts[index, 1, second]
    total = paid[index, 0, first] + paid[index, 1, second]
    np.add.at(failure, box, total * (1 + 1e-12))
    return least, failure
