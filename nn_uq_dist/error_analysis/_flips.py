"""Flips of neurons, which cause the errors of a linearized network: how probable, and if at all."""

from collections.abc import Callable
from itertools import accumulate
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray
from numpyro.distributions import Distribution

from nn_uq_dist import uniform_sum
from nn_uq_dist.basics import checks
from nn_uq_dist.basics.concrete import in_float64
from nn_uq_dist.basics.row_algebra import joined, matvec
from nn_uq_dist.distributions import LinearImage
from nn_uq_dist.error_analysis._distribution_bounds import EPS
from nn_uq_dist.error_analysis._leaky_relu_network import (
    LeakyReLUNetwork,
    as_float64,
    input_of,
)
from nn_uq_dist.inputs import Input


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
        change = matvec(np.abs(maps), sizes)
        terms = matvec(magnitudes, largest) + np.abs(bias) + change
        rounding = (weights.shape[-1] + maps.shape[-1] + 8) * EPS * terms
        # A neuron that no input reaches cannot flip, even with a pre-activation of zero.
        moves = matvec(magnitudes, moves.astype(float)) != 0
        flips = flips | (moves & ~(change + rounding < np.abs(h))).any(axis=-1)
        slope = np.where(h >= 0, 1.0, alpha)
        moves = moves & (slope != 0)
        largest = np.abs(h) + change + rounding
        signal, sizes = slope * h, joined([sizes, rounding])
        maps = joined([slope[..., None] * maps, np.eye(h.shape[-1])])
    return flips
