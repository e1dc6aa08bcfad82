"""What affine bounds say of the linearization on boxes: which neurons flip there, and its error."""

import math
from collections.abc import Iterator

import jax
import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.basics._known_values import FloatArray
from nn_uq_dist.error_analysis._affine_bounds import (
    AffineForms,
    Boxes,
    StandardNetwork,
    centers,
    tangents,
)
from nn_uq_dist.error_analysis._bound_arguments import box_half_width
from nn_uq_dist.error_analysis._leaky_relu_network import LeakyReLUNetwork
from nn_uq_dist.error_analysis._trimmed import enclosed
from nn_uq_dist.inputs import InputLaw

# Neurons of all boxes that are bounded at once.
NEURONS_AT_ONCE = 2**14


def batch_of(network: LeakyReLUNetwork, law: InputLaw) -> tuple[int, ...]:
    """Batch shape of boxes for networks that may be stacked."""
    return np.broadcast_shapes(np.shape(network.output_matrix)[:-2], law.batch_shape)


def on_boxes(
    network: LeakyReLUNetwork, law: InputLaw
) -> Iterator[tuple[slice, StandardNetwork, Boxes]]:
    """Portions of all boxes: their places in the flat batch, one network, and the boxes."""
    lead, batch = np.ndim(network.output_matrix) - 2, batch_of(network, law)
    count, shape = math.prod(batch), (*batch, network.num_inputs)
    every = Boxes(*(
        np.broadcast_to(part, shape).reshape(count, network.num_inputs)
        for part in (np.asarray(law.loc, np.float64), box_half_width(law))
    ))  # fmt: skip
    known = jax.tree.map(np.asarray, network)
    portion = max(1, NEURONS_AT_ONCE // sum(bias.shape[-1] for bias in known.biases))
    for start in range(0, count, 1 if lead else portion):
        one, places = known, slice(start, start + (1 if lead else portion))
        if lead:
            index = np.unravel_index(start, batch)
            one = jax.tree.map(
                lambda leaf, at=index: np.broadcast_to(leaf, batch + leaf.shape[lead:])[at], known
            )
        boxes = every.take(places)
        yield places, StandardNetwork.of_inputs(one, boxes), boxes


def distance_from_tangent(tangent: AffineForms, forms: AffineForms, boxes: Boxes) -> FloatArray:
    """Bounds on the distance of the outputs from their tangents, both bounded below, ``(P, O)``."""
    count = forms.const.shape[-1] // 2
    # An output less its tangent is at least the bound of the one plus that of the negative of the
    # other.
    order = np.r_[count : 2 * count, :count]
    rows, const = tangent.rows[:, order], tangent.const[:, order]
    least = AffineForms(forms.rows + rows, forms.const + const).smallest(boxes)
    return np.maximum(-least[:, :count], -least[:, count:])


def flips(
    network: StandardNetwork, boxes: Boxes, ranges: list[FloatArray]
) -> list[NDArray[np.bool_]]:
    """Which neurons may flip on boxes, given `Enclosed.ranges`: a list of ``(P, N)``."""
    found, moves = [], boxes.radius != 0
    middles = centers(network, boxes)
    for weights, least, middle in zip(network.weights, ranges, middles, strict=True):
        # A neuron that no input reaches cannot flip, even with a pre-activation of zero.
        moves = moves @ (weights != 0).T
        low, negative = np.split(least, 2, axis=-1)
        found.append(moves & (low < 0) & (negative < 0) & (network.alpha < 1))
        moves = moves & (found[-1] | (middle >= 0) | (network.alpha > 0))
    return found


def box_error(network: StandardNetwork, boxes: Boxes, of: str) -> FloatArray:
    """Bounds on the error on boxes, as `deterministic_bound`, shape ``(P, O)``."""
    found = enclosed(network, boxes)
    may_flip = flips(network, boxes, found.ranges)
    if of == "total":
        distance = distance_from_tangent(tangents(network, boxes)[0], found.forms, boxes)
        return np.where(any_of(may_flip)[:, None], distance, 0.0)
    # Its neurons add at most (1 - alpha) times how far they reach beyond zero, never less than 0.
    low, negative = np.split(found.ranges[-1], 2, axis=-1)
    beyond = np.where(centers(network, boxes)[-1] >= 0, -low, -negative)
    largest = np.where(may_flip[-1], (1 - network.alpha) * beyond, 0.0)
    ends = (np.maximum(sign * network.output, 0) @ largest.T for sign in (1, -1))
    return np.maximum(*ends).T


def any_of(layers: list[NDArray[np.bool_]]) -> NDArray[np.bool_]:
    """Whether any neuron may flip, shape ``(P,)``."""
    return np.concatenate(layers, axis=-1).any(axis=-1)
