"""Which neurons can flip, with what probability, and whether none can."""

from collections.abc import Callable
from functools import partial
from itertools import accumulate

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray
from numpyro.distributions import Distribution

from nn_uq_dist import linear_combination
from nn_uq_dist.basics._row_algebra import matmul
from nn_uq_dist.error_analysis._enclosure import enclose
from nn_uq_dist.error_analysis._float64_network import input_law_of, require_single, with_box
from nn_uq_dist.error_analysis._leaky_relu_network import LeakyReLUNetwork
from nn_uq_dist.inputs import AbstractInputLaw


def flip_probabilities(
    network: LeakyReLUNetwork, f: Distribution | AbstractInputLaw
) -> tuple[Array, ...]:
    r"""Return the probability that each neuron's pre-activation changes sign, without sampling.

    Linearized at :math:`\mu`, pre-activations are :math:`h_n + M_n z` with
    :math:`M_n = W_n D_{n-1} W_{n-1} \cdots W_1`: like the outputs, they are linear combinations of
    independent variables, whose law is known. It is symmetric, so that :math:`P(\text{flip}) =
    P((M_n z)_j > |h_{nj}|)`. The linearization can be trusted if these probabilities are small, and
    is exact if all are zero.

    Parameters
    ----------
    network
        The network.
    f
        Law of its input, as in `nn_uq_dist.linearize`: a box, a Gaussian, both, or another
        `nn_uq_dist.inputs.AbstractInputLaw`.

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
    >>> from nn_uq_dist import InputLaw, LeakyReLUNetwork, error_analysis
    >>> network = LeakyReLUNetwork([[[1.0], [2.0], [0.5]]], [[-0.5, 0.0, 1.0]], [[1.0, 1.0, 1.0]])
    >>> (layer,) = error_analysis.flip_probabilities(network, InputLaw([0.0], half_width=1.0))
    >>> print(layer)
    [0.25 0.5  0.  ]
    """
    law = input_law_of(network, f)
    require_single(network)
    at: Callable[[Array], tuple[Array, Array]] = partial(_linear_model, network)
    for _ in law.batch_shape:
        at = jax.vmap(at)
    hidden, rows = at(law.loc)
    image = law.image(rows)
    moves = ~image.is_constant
    # A point mass has no survival function here, so another law is substituted.
    weights = jnp.where(moves[..., None], image.weights, 1)
    # All layers go into one call, since each shape is compiled anew.
    probability = linear_combination.sf(jnp.abs(hidden), weights, image.normal_scale)
    probability = jnp.where(moves, probability, 0)
    sizes = [weight.shape[-2] for weight in network.hidden_weights]
    return tuple(jnp.split(probability, list(accumulate(sizes))[:-1], axis=-1))


def is_exact_on_support(
    network: LeakyReLUNetwork, f: Distribution | AbstractInputLaw
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
        Law of its input. With a nonzero Gaussian part the answer is False.

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
    >>> from nn_uq_dist import InputLaw, LeakyReLUNetwork, error_analysis
    >>> network = LeakyReLUNetwork([[[1.0, -1.0]]], [[0.5]], [[1.0]])
    >>> for half_width in (0.2, 0.3):
    ...     print(error_analysis.is_exact_on_support(network, InputLaw([0.0, 0.0], half_width)))
    True
    False
    """
    model, law, half_width, has_gaussian_part = with_box("is_exact_on_support", network, f)
    box = enclose(model, np.asarray(law.loc), half_width)
    flips = np.concatenate([layer.any(axis=-1)[..., None] for layer in box.can_flip], axis=-1)
    is_affine = model.alpha[..., 0] == 1
    exact: NDArray[np.bool_] = (is_affine | ~flips.any(axis=-1)) & ~has_gaussian_part
    return bool(exact) if np.ndim(exact) == 0 else exact


def _linear_model(network: LeakyReLUNetwork, mu: Array) -> tuple[Array, Array]:
    """Pre-activations of all layers at `mu`, shape ``(sum N_n,)``, and their Jacobian."""
    hidden = network.pre_activations(mu)
    rows = [network.hidden_weights[0]]
    for weights, h in zip(network.hidden_weights[1:], hidden[:-1], strict=True):
        slope = jnp.where(h >= 0, 1, network.negative_slope)
        rows.append(matmul(weights, slope[:, None] * rows[-1]))
    return jnp.concatenate(hidden), jnp.concatenate(rows)
