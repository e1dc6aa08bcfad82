r"""The error of a linearized network, layer by layer, for the paper's figures and tables.

With :math:`h_n` the pre-activations at :math:`\mu`, :math:`\delta_n` their change due to :math:`z`
in the network itself, and :math:`D_n = \mathrm{diag}(\phi'(h_n))`,

.. math::

    g(\mu + z) - g(\mu) - J z = A \sum_{n=1}^{L} \Bigl(\prod_{k=n+1}^{L} D_k W_k\Bigr)
    \Delta\phi_n, \qquad
    \Delta\phi_n = \phi(h_n + \delta_n) - \phi(h_n) - D_n \delta_n .

An entry of :math:`\Delta\phi_n` is :math:`(1 - \alpha) |h_n + \delta_n|` where the sign of the
pre-activation flips, and zero elsewhere. So the error is exactly zero where no sign flips, and
small errors keep their digits, which would be lost in the difference on the left. Derivation: the
change of the activations, :math:`\psi_n = D_n \delta_n + \Delta\phi_n` with :math:`\delta_n = W_n
\psi_{n-1}`, differs from its linear model by :math:`e_n = D_n W_n e_{n-1} + \Delta\phi_n`, and the
error is :math:`A e_L`. The paper's ``eq:error`` keeps only the last term of the sum.
"""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

import nn_uq_dist as nuq


def total_error(network: nuq.LeakyReLUNetwork, mu: ArrayLike, z: ArrayLike) -> jax.Array:
    """Return the error at perturbations ``(..., N_x)`` of a mean ``(N_x,)``, ``(..., N_y)``."""
    slopes, residuals = slopes_and_residuals(network, mu, z)
    error = residuals[0]
    for weights, slope, residual in zip(
        network.hidden_weights[1:], slopes[1:], residuals[1:], strict=True
    ):
        error = slope * (error @ weights.T) + residual
    return error @ network.output_matrix.T


def layer_contributions(network: nuq.LeakyReLUNetwork, mu: ArrayLike, z: ArrayLike) -> jax.Array:
    """Return the terms of the sum, ``(..., L, N_y)``; the last one is the paper's ``eq:error``."""
    slopes, residuals = slopes_and_residuals(network, mu, z)
    to_output = network.output_matrix
    terms = [residuals[-1] @ to_output.T]
    for n in range(network.num_layers - 1, 0, -1):
        to_output = (to_output * slopes[n]) @ network.hidden_weights[n]
        terms.append(residuals[n - 1] @ to_output.T)
    return jnp.stack(terms[::-1], axis=-2)


def slopes_and_residuals(
    network: nuq.LeakyReLUNetwork, mu: ArrayLike, z: ArrayLike
) -> tuple[list[jax.Array], list[jax.Array]]:
    r"""Slopes :math:`\phi'(h_n)`, shapes ``(N_n,)``, and :math:`\Delta\phi_n`, ``(..., N_n)``."""
    signal, alpha = jnp.asarray(z, network.output_matrix.dtype), network.negative_slope
    hidden = network.pre_activations(jnp.asarray(mu, signal.dtype))
    slopes, residuals = [], []
    for weights, h in zip(network.hidden_weights, hidden, strict=True):
        change = signal @ weights.T
        slope = jnp.where(h >= 0, 1, alpha)
        flips = (h >= 0) != (h + change >= 0)
        # It is positive for flips in both directions, by convexity.
        residual = jnp.where(flips, (1 - alpha) * jnp.abs(h + change), 0)
        slopes.append(slope)
        residuals.append(residual)
        # Not `activation(h + change) - activation(h)`, which loses the digits of small changes.
        signal = slope * change + residual
    return slopes, residuals
