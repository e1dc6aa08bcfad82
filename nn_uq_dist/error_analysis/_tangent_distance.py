"""How far affine bounds are from the tangent at the mean, which bounds the linearization error."""

import numpy as np

from nn_uq_dist.basics._known_values import FloatArray
from nn_uq_dist.error_analysis._affine_bounds import (
    AffineForms,
    Lines,
    StandardNetwork,
    lower_forms,
    rounding_of,
)
from nn_uq_dist.error_analysis._float64_network import Float64Network, apply
from nn_uq_dist.error_analysis._trimmed import Boxes, centers, enclosed


def tangent(network: StandardNetwork) -> AffineForms:
    """Lower bounds, by rounding errors alone, of the tangents at the mean and of their negatives.

    They hold where the variables are in their ranges; shapes ``(1, 2 O, V)`` and ``(1, 2 O)``.
    """
    whole = Boxes.whole(network)
    lines: list[Lines] = []
    rows = np.eye(whole.center.shape[1])
    size = np.zeros((1, 0))
    for layer, middle in enumerate(centers(network, whole)):
        rows = network.weights[layer] @ rows
        slope = np.where(middle >= 0, 1.0, network.alpha)
        largest = np.abs(middle) + apply(np.abs(rows), whole.radius)
        rounding = rounding_of(network, layer, size, largest)
        lines.append(Lines(slope, slope, np.zeros_like(slope), rounding))
        rows, size = slope[0][:, None] * rows, largest
    return lower_forms(network, *network.ends(size), lines, *whole)[0]


def distance_from_tangent(tangents: AffineForms, forms: AffineForms, boxes: Boxes) -> FloatArray:
    """Bounds on the distance of the outputs from their tangents on each box, ``(P, O)``."""
    count = forms.const.shape[-1] // 2
    # An output less its tangent is at least the sum of the bound of the one and of the negative of
    # the other.
    order = np.r_[count : 2 * count, :count]
    difference = AffineForms(
        forms.rows + tangents.rows[:, order], forms.const + tangents.const[:, order]
    )
    least = difference.smallest(*boxes)
    return np.maximum(-least[:, :count], -least[:, count:])


def box_distance(network: Float64Network, mu: FloatArray, half_width: FloatArray) -> FloatArray:
    """`distance_from_tangent` on boxes about `mu`, with leading axes as for `enclose`."""
    leading = (*network.hidden_weights, *network.biases, network.output_matrix, network.alpha)
    own = [2] * len(network.hidden_weights) + [1] * len(network.biases) + [2, 1]
    lead = [part.shape[: part.ndim - n] for part, n in zip(leading, own, strict=True)]
    batch = np.broadcast_shapes(*lead, mu.shape[:-1], half_width.shape[:-1])
    result = np.zeros((*batch, network.output_matrix.shape[-2]))
    for index in np.ndindex(*batch):
        *parts, center, width = (
            np.broadcast_to(part, (*batch, *part.shape[part.ndim - n :]))[index]
            for part, n in zip((*leading, mu, half_width), (*own, 1, 1), strict=True)
        )
        depth = len(network.hidden_weights)
        one = StandardNetwork.of_box(
            Float64Network(parts[:depth], parts[depth : 2 * depth], parts[-2], parts[-1]),
            center,
            width,
        )
        boxes = Boxes.whole(one)
        result[index] = distance_from_tangent(tangent(one), enclosed(one, boxes).forms, boxes)[0]
    return result
