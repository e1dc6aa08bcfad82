"""How far affine bounds are from the tangent at the mean, which bounds the linearization error."""

from operator import itemgetter

import jax
import numpy as np

from nn_uq_dist.basics._known_values import FloatArray
from nn_uq_dist.error_analysis._affine_bounds import AffineForms, Boxes, StandardNetwork, tangents
from nn_uq_dist.error_analysis._leaky_relu_network import LeakyReLUNetwork
from nn_uq_dist.error_analysis._trimmed import enclosed
from nn_uq_dist.inputs import InputLaw


def distance_from_tangent(network: StandardNetwork, forms: AffineForms, boxes: Boxes) -> FloatArray:
    """Bounds on the distance of the outputs from their tangents at the mean, ``(P, O)``."""
    tangent = tangents(network, Boxes.whole(network))[0]
    count = forms.const.shape[-1] // 2
    # An output less its tangent is at least the bound of the one plus that of the negative of the
    # other.
    order = np.r_[count : 2 * count, :count]
    rows, const = tangent.rows[:, order], tangent.const[:, order]
    least = AffineForms(forms.rows + rows, forms.const + const).smallest(boxes)
    return np.maximum(-least[:, :count], -least[:, count:])


def box_distance(network: LeakyReLUNetwork, law: InputLaw) -> FloatArray:
    """`distance_from_tangent` on boxes, ``(..., O)``; stacked networks broadcast."""
    lead = network.output_matrix.ndim - 2
    batch = np.broadcast_shapes(network.output_matrix.shape[:lead], law.batch_shape)

    def wide[T](tree: T, own: int) -> T:
        wider: T = jax.tree.map(lambda leaf: np.broadcast_to(leaf, batch + leaf.shape[own:]), tree)
        return wider

    both = wide(network, lead), wide(law, len(law.batch_shape))
    result = np.zeros((*batch, network.num_outputs))
    for index in np.ndindex(*batch):
        net, box = jax.tree.map(itemgetter(index), both)
        one = StandardNetwork.of_law(net, box, slice(None))
        whole = Boxes.whole(one)
        result[index] = distance_from_tangent(one, enclosed(one, whole).forms, whole)[0]
    return result
