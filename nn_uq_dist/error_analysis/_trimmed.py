r"""Affine bounds that hold except with a small probability, and what that probability is.

Let :math:`E` be the event that every pre-activation lies in a chosen range. On it the affine bounds
of those ranges hold; and a pre-activation can leave its own range only if an affine bound of it
does, which is an event of known probability. Ranges are cut where that costs little.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.basics._known_values import FloatArray
from nn_uq_dist.error_analysis._affine_bounds import (
    NORMAL_RANGE,
    AffineForms,
    Lines,
    StandardNetwork,
    lines_of,
    lower_forms,
    rounding_of,
)
from nn_uq_dist.error_analysis._law_bounds import EPS, distribution_bounds

_NUM_CUTS = 13
# Probability of a normal variable beyond NORMAL_RANGE.
_BEYOND = 2.3e-19


class Boxes(NamedTuple):
    """Boxes of the standard variables, shapes ``(P, V)``; normal ones have their whole range."""

    center: FloatArray
    radius: FloatArray

    @classmethod
    def whole(cls, network: StandardNetwork) -> "Boxes":
        """All values of the variables."""
        radius = np.where(network.is_uniform, 1.0, NORMAL_RANGE)[None]
        return cls(np.zeros_like(radius), radius)

    def take(self, rows: slice | NDArray[np.intp] | NDArray[np.bool_]) -> "Boxes":
        """Some of the boxes."""
        return Boxes(self.center[rows], self.radius[rows])


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
    network: StandardNetwork,
    boxes: Boxes,
    forms: AffineForms,
    points: FloatArray,
    tolerance: float,
) -> FloatArray:
    """Upper bounds on the probabilities that forms are at most `points`, shape ``(P, R, Y)``."""
    uniform = network.is_uniform
    shape = np.broadcast_shapes(points.shape[:-1], forms.const.shape)
    mean = (forms.const + (forms.rows @ boxes.center[..., None])[..., 0])[..., None]
    weights = forms.rows[..., uniform] * boxes.radius[:, None, uniform]
    normal = forms.rows[..., ~uniform]
    scale = np.sqrt((normal**2).sum(axis=-1)) * (1 + (normal.shape[-1] + 4) * EPS)
    shift = 4 * EPS * (np.abs(points) + np.abs(mean)) + scale[..., None] * (
        2 * NORMAL_RANGE * (normal.shape[-1] + 8) * EPS
    )
    flat = np.broadcast_to(points - mean + shift, (*shape, points.shape[-1]))
    flat = flat.reshape(-1, points.shape[-1])
    high = distribution_bounds(flat, weights.reshape(len(flat), -1), scale.reshape(-1), tolerance)[
        1
    ]
    beyond = _BEYOND * (1 + normal.shape[-1]) if normal.shape[-1] else 0.0
    return np.minimum(high + beyond, 1.0).reshape(*shape, points.shape[-1])


def centers(network: StandardNetwork, boxes: Boxes) -> list[FloatArray]:
    """Pre-activations at the centers of boxes, shapes ``(P, N)``."""
    found, signal = [], boxes.center
    for weights, bias in zip(network.weights, network.biases, strict=True):
        found.append(signal @ weights.T + bias)
        signal = np.where(found[-1] >= 0, found[-1], network.alpha * found[-1])
    return found


def tangent_influence(network: StandardNetwork, middles: list[FloatArray]) -> list[FloatArray]:
    """Size of the coefficient of each neuron in the tangents at the centers."""
    row = np.broadcast_to(network.output, (len(middles[0]), *network.output.shape))
    found = [np.abs(row).mean(axis=1)]
    for middle, weights in zip(middles[:0:-1], network.weights[:0:-1], strict=True):
        row = (row * np.where(middle >= 0, 1.0, network.alpha)[:, None]) @ weights
        found.append(np.abs(row).mean(axis=1))
    return found[::-1]


def enclosed(
    network: StandardNetwork,
    boxes: Boxes,
    price: float | None = None,
    influence: list[FloatArray] | None = None,
    tolerance: float = 1e-12,
) -> Enclosed:
    r"""Bound the output on each box.

    Parameters
    ----------
    price
        What a unit of distance between the bounds is worth in probability; None for bounds that
        hold on the whole box. The ends :math:`l, u` of each range minimize
        :math:`P(h < l) + P(h > u) + \text{price}\, |\Lambda|\, (\text{chord} - \text{tangent})`
        with the lines at the center of the box.
    influence
        :math:`|\Lambda|`, by default that of the tangents at the centers.
    tolerance
        What an error in a probability may be, as for `distribution_bounds`.
    """
    middles = centers(network, boxes)
    weight_of = influence or tangent_influence(network, middles)
    count = len(boxes.center)
    failure = np.zeros(count)
    shares = np.zeros(boxes.center.shape)
    lines: list[Lines] = []
    size = np.zeros((count, 0))
    for layer, (weights, bias) in enumerate(zip(network.weights, network.biases, strict=True)):
        both = np.concatenate([weights, -weights])
        const = np.concatenate([bias, -bias])
        own = rounding_of(network, layer, size, np.zeros((count, 1)))
        rows = np.broadcast_to(both, (count, *both.shape))
        start = const - np.concatenate([own, own], axis=-1)
        forms, _ = lower_forms(network, rows, start, 0.0, lines, *boxes)
        least = forms.smallest(boxes.center, boxes.radius)
        num = len(bias)
        if price is not None:
            worth = price * weight_of[layer]
            least, paid = _cut(network, boxes, forms, least, middles[layer], worth, tolerance)
            failure += paid
        low, high = least[:, :num], -least[:, num:]
        line, size = lines_of(network, layer, low, high, middles[layer], size)
        lines.append(line)
        tilted = line.upper * middles[layer] + line.intercept - line.lower * middles[layer]
        part = np.abs(forms.rows[:, :num]) * boxes.radius[:, None]
        total = np.maximum(part.sum(axis=-1, keepdims=True), np.finfo(float).tiny)
        shares += ((np.maximum(tilted, 0) * weight_of[layer])[..., None] * (part / total)).sum(
            axis=1
        )
    forms, seen = lower_forms(network, *network.ends(size), lines, *boxes)
    return Enclosed(forms, failure, shares, [part.mean(axis=1) for part in seen])


def _cut(
    network: StandardNetwork,
    boxes: Boxes,
    forms: AffineForms,
    least: FloatArray,
    middle: FloatArray,
    worth: FloatArray,
    tolerance: float,
) -> tuple[FloatArray, FloatArray]:
    """Ends of the ranges, of pre-activations and of their negatives, and what cutting costs."""
    num = middle.shape[-1]
    failure = np.zeros(len(middle))
    box, neuron = np.nonzero((least[:, :num] < 0) & (least[:, num:] < 0) & (worth > 0))
    if not len(box):
        return least, failure
    sides = np.stack([neuron, neuron + num], axis=-1)
    there = AffineForms(forms.rows[box[:, None], sides], forms.const[box[:, None], sides])
    ends = least[box[:, None], sides]
    cuts = ends[..., None] * np.linspace(0, 1, _NUM_CUTS) ** 2
    paid = largest_probability(network, boxes.take(box), there, cuts, tolerance)
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
    least = least.copy()
    least[box, neuron] = cuts[index, 0, first]
    least[box, neuron + num] = cuts[index, 1, second]
    total = paid[index, 0, first] + paid[index, 1, second]
    np.add.at(failure, box, total * (1 + 1e-12))
    return least, failure
