r"""Factors :math:`K_i` of bounds :math:`K_i \|z\|_2` on the error of output i."""

import numpy as np

from nn_uq_dist.basics._float64 import FloatArray
from nn_uq_dist.error_analysis._float64_network import (
    Float64Network,
    maps_to_output,
    norm,
    spectral_norm,
)


def printed_factor(network: Float64Network, slopes: list[FloatArray]) -> FloatArray:
    r"""The paper's ``eq:prob_Kbound``: the factors :math:`\lambda_n` before the last layer."""
    factor = 1 - network.alpha[..., 0]
    for n, weights in enumerate(network.hidden_weights):
        factor = factor * spectral_norm(weights)
        if n < len(slopes) - 1:
            factor = factor * (slopes[n].max(axis=-1) + 1 - network.alpha[..., 0])
    return factor[..., None] * norm(network.output_matrix)


def corrected_factor(network: Float64Network, slopes: list[FloatArray], of: str) -> FloatArray:
    r"""Factors from the norms of the layers alone; see `deterministic_bound` for the derivation.

    The last-layer factor is :math:`(1-\alpha) \|A_i\| \prod \|W_n\|`.
    """
    gain = norm(network.output_matrix)
    for weights in network.hidden_weights:
        gain = gain * spectral_norm(weights)[..., None]
    by_layers = (1 - network.alpha) * gain
    if of == "last_layer":
        return by_layers
    attenuation = total = np.ones(slopes[-1].shape[:-1])
    for slope in slopes[:0:-1]:
        attenuation = attenuation * slope.max(axis=-1)
        total = total + attenuation
    jacobian = maps_to_output(network, slopes)[0]
    return np.minimum(by_layers * total[..., None], gain + norm(jacobian))
