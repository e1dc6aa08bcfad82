"""Bounds on the error of a linearization from norms of the layers: the paper's, and corrected."""

import jax
import numpy as np

import nn_uq_dist as nuq


def norm_bounds(
    net: nuq.LeakyReLUNetwork, mean: jax.Array, amplitude: float
) -> tuple[np.ndarray, np.ndarray]:
    r"""Return the corrected and the printed bound for a box around the mean, per output.

    With :math:`d_k` the largest slope in layer k at the mean, :math:`q_i` the row of the Jacobian
    and :math:`|b|` the length of the half-diagonal of the box:

    - corrected: :math:`\min\{(1-\alpha) |A_i| \prod_n |W_n| \sum_{n \le L} \prod_{k>n} d_k,\
      |A_i| \prod_n |W_n| + |q_i|\}\, |b|`. The input moves the pre-activations of layer n by at
      most :math:`\prod_{k \le n} |W_k| |b|`, and where a sign flips, an activation leaves its
      tangent by at most :math:`1 - \alpha` times that.
    - printed, ``boundL``: :math:`(1-\alpha) |A_i| |W_L| \prod_{n<L} (d_n + 1 - \alpha) |W_n|\,
      |b|`. It holds for the share of the last layer, but not for the total.
    """
    weights = [np.asarray(part, np.float64) for part in net.hidden_weights]
    output, alpha = np.asarray(net.output_matrix, np.float64), float(net.negative_slope)
    slopes = [np.where(np.asarray(h) >= 0, 1.0, alpha) for h in net.pre_activations(mean)]
    largest = np.array([slope.max() for slope in slopes])
    norms = np.array([np.linalg.norm(part, 2) for part in weights])
    gain = np.linalg.norm(output, axis=1) * norms.prod()
    jacobian = output
    for part, slope in zip(weights[::-1], slopes[::-1], strict=True):
        jacobian = (jacobian * slope) @ part
    layers = sum(largest[n:].prod() for n in range(1, len(weights) + 1))
    corrected = np.minimum((1 - alpha) * gain * layers, gain + np.linalg.norm(jacobian, axis=1))
    printed = (1 - alpha) * gain * (largest[:-1] + 1 - alpha).prod()
    half_diagonal = amplitude * len(mean) ** 0.5
    return corrected * half_diagonal, printed * half_diagonal
