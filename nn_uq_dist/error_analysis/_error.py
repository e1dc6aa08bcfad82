"""The exact error of a linearized network at given perturbations, layer by layer."""

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.row_algebra import matmul, matvec
from nn_uq_dist.error_analysis._float64_network import require_network, require_single
from nn_uq_dist.error_analysis._leaky_relu_network import LeakyReLUNetwork


def total_error(network: LeakyReLUNetwork, mu: ArrayLike, z: ArrayLike) -> Array:
    r"""Return :math:`g(\mu + z) - (g(\mu) + J(\mu) z)`, the error of the linearization.

    With :math:`h_n` the pre-activations at :math:`\mu`, :math:`\delta_n` their change due to
    :math:`z` in the network itself, and :math:`D_n = \mathrm{diag}(\phi'(h_n))`,

    .. math::

        g(\mu + z) - g(\mu) - J z = A \sum_{n=1}^{L} \Bigl(\prod_{k=n+1}^{L} D_k W_k\Bigr)
        \Delta\phi_n, \qquad
        \Delta\phi_n = \phi(h_n + \delta_n) - \phi(h_n) - D_n \delta_n .

    An entry of :math:`\Delta\phi_n` is :math:`(1 - \alpha) |h_n + \delta_n|` where the sign of the
    pre-activation flips, and zero elsewhere. So the result is exactly zero where no sign flips, and
    small errors keep their digits, which would be lost in the difference on the left.

    Parameters
    ----------
    network
        The network. A skip connection or an output bias is affine and adds no error.
    mu
        Point of linearization, shape ``(N_x,)``.
    z
        Perturbations, shape ``(..., N_x)``.

    Returns
    -------
    Array
        Shape ``(..., N_y)``.

    Raises
    ------
    TypeError
        If `network` is not a `LeakyReLUNetwork`, or `mu` or `z` is not an array of real numbers.
    ValueError
        If the shapes do not fit.

    Notes
    -----
    The slope at ``h = 0`` is 1, as in ``jax.nn.leaky_relu``. Derivation: the change of the
    activations, :math:`\psi_n = D_n \delta_n + \Delta\phi_n` with :math:`\delta_n = W_n
    \psi_{n-1}`, differs from its linear model by :math:`e_n = D_n W_n e_{n-1} + \Delta\phi_n`, and
    the error is :math:`A e_L`. The paper's ``eq:error`` keeps only the last term of the sum:
    `layer_contributions` has all.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from nn_uq_dist import LeakyReLUNetwork, error_analysis
    >>> network = LeakyReLUNetwork([[[1.0], [-1.0]]], [[0.0, 0.0]], [[1.0, 1.0]], 0.0)  # |x|
    >>> z = jnp.array([[0.5], [-0.5], [-3.0]])
    >>> error_analysis.total_error(network, [1.0], z)[:, 0]
    Array([0., 0., 4.], dtype=float32)
    """
    slopes, residuals = _slopes_and_residuals(network, mu, z)
    error = residuals[0]
    for weights, slope, residual in zip(
        network.hidden_weights[1:], slopes[1:], residuals[1:], strict=True
    ):
        error = slope * matvec(weights, error) + residual
    return matvec(network.output_matrix, error)


def layer_contributions(network: LeakyReLUNetwork, mu: ArrayLike, z: ArrayLike) -> Array:
    r"""Return the terms of the sum in `total_error`, one per hidden layer.

    Arguments and errors as in `total_error`. The terms add up to it and may cancel.

    Returns
    -------
    Array
        :math:`A (\prod_{k>n} D_k W_k) \Delta\phi_n`, shape ``(..., L, N_y)``. The magnitude of the
        last one along ``L`` is the paper's ``eq:error``, which the paper takes as the whole error.

    Examples
    --------
    >>> from nn_uq_dist import LeakyReLUNetwork, error_analysis
    >>> one = [[1.0]]
    >>> network = LeakyReLUNetwork([one, one], [[-1.0], [-0.5]], one)
    >>> print(error_analysis.layer_contributions(network, [0.0], [2.0])[:, 0])
    [0.0099 0.495 ]
    """
    slopes, residuals = _slopes_and_residuals(network, mu, z)
    to_output = network.output_matrix
    terms = [matvec(to_output, residuals[-1])]
    for n in range(network.num_layers - 1, 0, -1):
        to_output = matmul(to_output * slopes[n], network.hidden_weights[n])
        terms.append(matvec(to_output, residuals[n - 1]))
    return jnp.stack(terms[::-1], axis=-2)


def _slopes_and_residuals(
    network: LeakyReLUNetwork, mu: ArrayLike, z: ArrayLike
) -> tuple[list[Array], list[Array]]:
    r"""Slopes :math:`\phi'(h_n)`, shapes ``(N_n,)``, and :math:`\Delta\phi_n`, ``(..., N_n)``."""
    require_network(network)
    require_single(network)
    mu, z = (checks.as_numeric(name, value) for name, value in (("mu", mu), ("z", z)))
    if np.shape(mu) != (network.num_inputs,):
        raise ValueError(
            f"mu must have shape ({network.num_inputs},), got {np.shape(mu)}; pass one input of "
            f"network, and use jax.vmap over several"
        )
    if np.shape(z)[-1:] != (network.num_inputs,):
        raise ValueError(
            f"z must have shape (..., {network.num_inputs}), got {np.shape(z)}; pass perturbations "
            f"of the inputs along the last axis"
        )
    dtype = checks.float_dtype(mu, z, network.output_matrix)
    signal = jnp.asarray(z, dtype)
    alpha = network.negative_slope.astype(dtype)
    slopes, residuals = [], []
    for weights, h in zip(
        network.hidden_weights, network.pre_activations(jnp.asarray(mu, dtype)), strict=True
    ):
        change = matvec(weights, signal)
        perturbed = h + change
        slope = jnp.where(h >= 0, 1, alpha)
        flips = (h >= 0) != (perturbed >= 0)
        # NaN and infinity compare as if nothing flipped; the error must still be NaN, not zero.
        nothing = 0 * (perturbed + alpha)
        # It is positive for flips in both directions, by convexity.
        residual = jnp.where(flips, (1 - alpha) * jnp.abs(perturbed), nothing)
        slopes.append(slope)
        residuals.append(residual)
        # Not `activation(perturbed) - activation(h)`, which loses the digits of small changes.
        signal = slope * change + residual
    return slopes, residuals
