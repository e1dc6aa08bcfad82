r"""Bounds by the length of the perturbation: factors :math:`K_i`, and quantiles of the length."""

import numpy as np

from nn_uq_dist.basics._known_values import FloatArray
from nn_uq_dist.error_analysis._float64_network import (
    Float64Network,
    maps_to_output,
    norm,
    spectral_norm,
)
from nn_uq_dist.inputs._terms import UNIFORM_VARIANCE


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


def bernstein_squared_norm(half_width: FloatArray, delta: float) -> FloatArray:
    r"""Bound that :math:`|z|^2 = \sum_k b_k^2 U_k^2` exceeds with probability at most `delta`.

    The terms are independent with mean :math:`b_k^2/3`, variance :math:`4 b_k^4/45`, and exceed
    their mean by at most :math:`2 b_k^2/3`. Bernstein: with v the sum of the variances and M the
    largest excess, :math:`P(|z|^2 - \sum_k b_k^2/3 \ge t) \le \exp(-t^2/(2 (v + M t/3)))`, which is
    `delta` at :math:`t = M l/3 + \sqrt{M^2 l^2/9 + 2 v l}`, :math:`l = \log(1/\delta)`. The result
    is at most the certain bound :math:`\sum_k b_k^2`.

    Maps shape ``(..., N_x)`` to ``(...)``.
    """
    squares = half_width**2
    certain = squares.sum(axis=-1)
    log_odds = -np.log(delta)
    variance = 4 / 45 * (squares**2).sum(axis=-1)
    linear = 2 / 9 * squares.max(axis=-1) * log_odds
    excess = linear + np.sqrt(linear**2 + 2 * variance * log_odds)
    return np.minimum(UNIFORM_VARIANCE * certain + excess, certain)


def printed_squared_norm(half_width: FloatArray, delta: float) -> FloatArray:
    r"""The paper's ``eq:z1_bound``, with :math:`\sum_k b_k^2` for :math:`N_x \beta^2`."""
    log_odds = -np.log(delta)
    certain = (half_width**2).sum(axis=-1)
    return certain * (UNIFORM_VARIANCE + np.sqrt(8 / 45 * log_odds) + 2 / 3 * log_odds)
