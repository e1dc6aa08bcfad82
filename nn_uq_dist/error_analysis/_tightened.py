"""Bounds that use the box: only neurons that can flip there contribute.

The error of the linearization is at most the distance of affine bounds from the tangent, too.
"""

from operator import itemgetter

import jax
import numpy as np

from nn_uq_dist.basics._known_values import FloatArray
from nn_uq_dist.error_analysis._affine_bounds import AffineForms, Boxes, StandardNetwork, tangents
from nn_uq_dist.error_analysis._enclosure import EPS, Enclosure, enclose
from nn_uq_dist.error_analysis._float64_network import (
    Float64Network,
    apply,
    maps_to_output,
    norm,
    spectral_norm,
)
from nn_uq_dist.error_analysis._leaky_relu_network import LeakyReLUNetwork
from nn_uq_dist.error_analysis._trimmed import enclosed
from nn_uq_dist.inputs import InputLaw


def tightened_bound(
    network: Float64Network, mu: FloatArray, half_width: FloatArray, radius: FloatArray, of: str
) -> FloatArray:
    r"""Bound the error at the points of a box with :math:`\|z\| \le` `radius`.

    With :math:`G_n` the map from layer n to the output, :math:`F_n` the projection on its neurons
    that can flip, and u, Lambda of `enclose`, the contribution of layer n to output i lies between
    minus the value for the upper sign and the value for the lower sign of

    .. math::

        \min\bigl\{(G_n^\mp u_n)_i,\ (1 - \alpha) \|(G_n^\mp F_n)_i\|\, \|F_n W_n\|\,
        \Lambda_{n-1}\, \mathrm{radius}\bigr\},

    since :math:`0 \le \Delta\phi_n \le u_n` and
    :math:`\|\Delta\phi_n\| \le (1 - \alpha) \|F_n \delta_n\|`. The total is at most the larger of
    the two sums over n, at most the image under `A` of the model by chords minus the linear map q,
    and at most :math:`\|A_i\| \Lambda_L\, \mathrm{radius} + \max|q_i z|`.

    Parameters
    ----------
    network, mu, half_width
        As for `enclose`.
    radius
        Shape ``(...)``.
    of
        ``"total"`` or ``"last_layer"``.

    Returns
    -------
    FloatArray
        Shape ``(..., N_y)``.
    """
    box = enclose(network, mu, half_width)
    maps = maps_to_output(network, box.slopes)
    num_layers = len(network.hidden_weights)
    layers = range(num_layers) if of == "total" else [num_layers - 1]
    sums = [np.zeros(1), np.zeros(1)]
    for n in layers:
        can_flip = box.can_flip[n]
        flipping_rows = can_flip[..., None] * network.hidden_weights[n]
        gain = (1 - network.alpha[..., 0]) * spectral_norm(flipping_rows) * box.lipschitz[n]
        change = (gain * radius)[..., None]
        to_output = maps[n + 1] * can_flip[..., None, :]
        for i, sign in enumerate((1, -1)):
            part = np.maximum(sign * to_output, 0)
            elementwise = apply(part, box.largest_residual[n])
            sums[i] = sums[i] + np.minimum(elementwise, norm(part) * change)
    bound = np.maximum(*sums)
    if of == "last_layer":
        return bound
    jacobian = maps[0]
    linear = np.minimum(apply(np.abs(jacobian), half_width), norm(jacobian) * radius[..., None])
    growth = norm(network.output_matrix) * (box.lipschitz[-1] * radius)[..., None]
    return np.minimum(np.minimum(bound, _by_chords(network, half_width, box)), growth + linear)


def _by_chords(network: Float64Network, half_width: FloatArray, box: Enclosure) -> FloatArray:
    """The model by chords minus the model by tangents, which is the linear map."""
    tangents, chords = (
        model.through_weights(network.output_matrix) for model in (box.tangents, box.chords)
    )
    left = chords._replace(linear=chords.linear - tangents.linear)
    bound = np.maximum(*left.reach(half_width))
    # The two nearly cancel in small boxes, so their rounding errors must be included.
    carried = np.abs(tangents.generators) + np.abs(chords.generators)
    extent = np.maximum(*box.tangents.reach(half_width)) + np.maximum(*box.chords.reach(half_width))
    operations = sum(chords.generators.shape[-2:]) + half_width.shape[-1]
    own_rounding = operations * EPS * apply(np.abs(network.output_matrix), extent)
    return bound + apply(carried, box.rounding) + own_rounding


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
