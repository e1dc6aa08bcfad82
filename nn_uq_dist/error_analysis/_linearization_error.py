"""Exact errors of a linearized network at given perturbations, and the flips that cause them."""

from collections.abc import Callable
from itertools import accumulate
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from numpy.typing import NDArray
from numpyro.distributions import Distribution

from nn_uq_dist import uniform_sum
from nn_uq_dist.basics import checks
from nn_uq_dist.basics.concrete import in_float64
from nn_uq_dist.basics.row_algebra import joined, matmul, matvec
from nn_uq_dist.distributions import LinearImage
from nn_uq_dist.error_analysis._distribution_bounds import EPS
from nn_uq_dist.error_analysis._leaky_relu_network import (
    LeakyReLUNetwork,
    as_float64,
    input_of,
    require_network,
)
from nn_uq_dist.inputs import Input


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
    mu = checks.as_numeric("mu", mu)
    if np.shape(mu) != (network.num_inputs,):
        raise ValueError(
            f"mu must have shape ({network.num_inputs},), got {np.shape(mu)}; pass one input of "
            f"network, and use jax.vmap over several"
        )
    remedy = "pass perturbations of the inputs along the last axis"
    z = checks.as_vectors("z", z, "N_x", network.num_inputs, remedy)
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


def flip_probabilities(network: LeakyReLUNetwork, f: Distribution | Input) -> tuple[Array, ...]:
    r"""Return the probability that each neuron's pre-activation changes sign, without sampling.

    Linearized at :math:`\mu`, pre-activations are :math:`h_n + M_n z` with
    :math:`M_n = W_n D_{n-1} W_{n-1} \cdots W_1`: like the outputs, they are linear combinations of
    independent variables, whose distribution is known. It is symmetric, so that
    :math:`P(\text{flip}) = P((M_n z)_j > |h_{nj}|)`. The linearization can be trusted if these
    probabilities are small, and is exact if all are zero.

    Parameters
    ----------
    network
        The network.
    f
        Distribution of its input, as in `nn_uq_dist.linearize`: a box, a Gaussian, both, or another
        `nn_uq_dist.Input`.

    Returns
    -------
    tuple of Array
        One array per hidden layer, shape ``batch_shape + (N_n,)``. Tails have relative accuracy; 0
        for a neuron that does not depend on the input.

    Raises
    ------
    TypeError
        If `network` is not a `LeakyReLUNetwork` or `f` is not of a supported family.
    ValueError
        If `f` and `network` have different numbers of inputs.

    Notes
    -----
    In the first layer the probabilities are exact. In later layers the true probability differs to
    the extent that earlier neurons flip.

    Examples
    --------
    >>> from nn_uq_dist import Input, LeakyReLUNetwork, error_analysis
    >>> network = LeakyReLUNetwork([[[1.0], [2.0], [0.5]]], [[-0.5, 0.0, 1.0]], [[1.0, 1.0, 1.0]])
    >>> (layer,) = error_analysis.flip_probabilities(network, Input.box([0.0], half_width=1.0))
    >>> print(layer)
    [0.25 0.5  0.  ]
    """
    distribution = input_of(network, f)

    def hidden_layers(x: Array) -> tuple[Array, Array]:
        hidden = jnp.concatenate(network.pre_activations(x))
        return hidden, hidden

    at: Callable[[Array], tuple[Array, Array]] = jax.jacfwd(hidden_layers, has_aux=True)
    for _ in distribution.batch_shape:
        at = jax.vmap(at)
    rows, hidden = at(distribution.mean)
    image = LinearImage(*distribution.columns(rows))
    moves = ~image.is_constant
    # A point mass has no survival function here, so another distribution is substituted.
    weights = jnp.where(moves[..., None], image.weights, 1)
    # All layers go into one call, since each shape is compiled anew.
    probability = uniform_sum.sf(jnp.abs(hidden), weights, image.normal_scale)
    probability = jnp.where(moves, probability, 0)
    sizes = [weight.shape[-2] for weight in network.hidden_weights]
    return tuple(jnp.split(probability, list(accumulate(sizes))[:-1], axis=-1))


def is_exact_on_support(
    network: LeakyReLUNetwork, f: Distribution | Input
) -> bool | NDArray[np.bool_]:
    r"""Return whether no neuron can flip on the box, so that the linearization is exact there.

    If the layers before layer n do not flip, its pre-activations are affine on the box: they range
    over :math:`h_n \pm |M_n| b` and attain both ends. So True is certain, and the answer is True
    whenever the network is affine on the box with some margin for rounding errors.

    Parameters
    ----------
    network
        The network. Stacked networks (leading axes on every leaf) broadcast against the batch
        shape of `f`.
    f
        Distribution of its input. With a nonzero Gaussian part the answer is False.

    Returns
    -------
    bool or array of bool
        An array of shape ``batch_shape`` if `f` has one.

    Raises
    ------
    TypeError
        If `network` is not a `LeakyReLUNetwork`, `f` is not of a supported family, or either is
        traced.
    ValueError
        If `f` and `network` have different numbers of inputs, or a weight is NaN or infinite.

    Notes
    -----
    The statement is about the network in exact arithmetic. It is computed in float64, with bounds
    on the rounding errors added to the ranges: to first order, with a factor of two for the rest. A
    pre-activation so close to 0 that the network's own type cannot resolve it may have a different
    sign in that type, and `linearize` then uses a different slope.

    Examples
    --------
    >>> from nn_uq_dist import Input, LeakyReLUNetwork, error_analysis
    >>> network = LeakyReLUNetwork([[[1.0, -1.0]]], [[0.5]], [[1.0]])
    >>> for half_width in (0.2, 0.3):
    ...     print(error_analysis.is_exact_on_support(network, Input.box([0.0, 0.0], half_width)))
    True
    False
    """
    distribution = input_of(network, f, stacked=True)
    # Ranges start from the box of all inputs, which is their support only then.
    if any(term.is_uniform and not term.is_diagonal for term in distribution.terms):
        raise TypeError(
            f"f must have independent bounded errors, got {distribution!r}; add the inputs' own "
            f"boxes, or take certified"
        )
    if not checks.is_concrete(network, distribution):
        raise TypeError(
            "is_exact_on_support must get known numbers, got traced values in network or f; call "
            "it outside of jit, grad and vmap, and give f a batch shape for many boxes"
        )
    network, distribution = as_float64(network), in_float64(distribution)
    half_width, scale = (
        np.zeros(distribution.mean.shape) if part is None else np.asarray(part)
        for part in (distribution.half_width, distribution.normal_scale)
    )
    flips = _flips(network, np.asarray(distribution.mean), half_width)
    bends = np.asarray(network.negative_slope) != 1
    exact: NDArray[np.bool_] = ~((flips & bends) | np.any(scale, axis=-1))
    return bool(exact) if np.ndim(exact) == 0 else exact


def _flips(network: Any, mu: Any, half_width: Any) -> NDArray[np.bool_]:
    r"""Whether some neuron may flip where ``|z| <= half_width``, shape ``(...)``.

    Leading axes of networks and inputs broadcast.

    Notes
    -----
    Rounding: evaluating layer n perturbs a pre-activation by at most
    :math:`r_n = c\,\epsilon\,(|W_n| s_{n-1} + |b_n| + \ldots)`, with :math:`s` the largest signals
    on the box and c the number of operations. To first order it reaches later layers through their
    linear maps, as z does. :math:`\epsilon` is twice the unit roundoff, which leaves the same room
    again for products of errors; if they exceed that room, the margin also exceeds the
    pre-activations and nothing is certified.
    """
    alpha = network.negative_slope[..., None]
    signal, largest, moves = mu, np.abs(mu) + half_width, half_width != 0
    # Columns for z and for the rounding errors of the layers so far, and the sizes of both.
    maps, sizes = np.eye(mu.shape[-1]), half_width
    flips = np.zeros((), bool)
    for weights, bias in zip(network.hidden_weights, network.biases, strict=True):
        magnitudes = np.abs(weights)
        h, maps = matvec(weights, signal) + bias, weights @ maps
        reach = matvec(np.abs(maps), sizes)
        terms = matvec(magnitudes, largest) + np.abs(bias) + reach
        rounding = (weights.shape[-1] + maps.shape[-1] + 8) * EPS * terms
        # A neuron that no input reaches cannot flip, even with a pre-activation of zero.
        moves = matvec(magnitudes, moves.astype(float)) != 0
        flips = flips | (moves & ~(reach + rounding < np.abs(h))).any(axis=-1)
        slope = np.where(h >= 0, 1.0, alpha)
        moves = moves & (slope != 0)
        largest = np.abs(h) + reach + rounding
        signal, sizes = slope * h, joined([sizes, rounding])
        maps = joined([slope[..., None] * maps, np.eye(h.shape[-1])])
    return flips
