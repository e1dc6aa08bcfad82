"""Entrance to guaranteed bounds on the distribution of an output."""

from collections.abc import Callable

import numpy as np
from jax import Array
from numpyro.distributions import Distribution

from nn_uq_dist.basics import checks
from nn_uq_dist.error_analysis._affine_bounds import StandardNetwork
from nn_uq_dist.error_analysis._certified_distribution import CertifiedDistribution, whole_cover
from nn_uq_dist.error_analysis._leaky_relu_network import (
    LeakyReLUNetwork,
    input_of,
    require_network,
    vector_input,
)
from nn_uq_dist.inputs import Input

# Larger numbers have squares that may overflow.
_LARGEST = 1e100


def certified(
    network: LeakyReLUNetwork | Callable[[Array], Array],
    f: Distribution | Input,
    *,
    output: int | None = None,
    max_parts: int = 1,
    seconds: float | None = None,
    gap: float | None = None,
    threshold: float | None = None,
    progress: bool = True,
) -> CertifiedDistribution:
    r"""Proved bounds on the distribution of a leaky-ReLU network's output.

    No draws are made, and nothing is estimated: distribution function, probabilities, quantiles and
    mean of the network itself lie between the bounds. They are useful for small errors of the
    input, for nearly linear networks, and for few inputs; else they are far apart, and say so.

    Parameters
    ----------
    network
        A `LeakyReLUNetwork`, or what `LeakyReLUNetwork.from_network` makes one from. The bounds are
        for that one in exact arithmetic, with the weights as they are stored; evaluated in float32,
        its outputs are rounded.
    f
        Distribution of its input, without batch axes: boxes, normal distributions, both, and sums
        of them. Its numbers are those of `nn_uq_dist.inputs.as_input`, which may have rounded them.
    output
        Index of the output. None if there is only one.
    max_parts, seconds, gap, threshold, progress
        As for `refine` of the result: split the input into up to this many parts. By default it is
        not split.

    Returns
    -------
    CertifiedDistribution
        With ``cdf_bounds``, ``probability_bounds``, ``quantile_bounds``, ``mean_bounds``,
        ``error_bound`` and ``gap``.

    Raises
    ------
    TypeError
        If `network` is no function, `f` is of an unsupported family or over something else than
        vectors, an argument is not a number, or `network` or `f` are traced.
    ValueError
        If `network` is no leaky-ReLU network or stacked, `f` has batch axes, the wrong number of
        inputs or nothing random, a number is out of its range, or so large that bounds overflow.

    Notes
    -----
    Each activation lies between its chord and the tangent at the mean over the range of its
    pre-activation, from which affine bounds of the output follow (CROWN: H. Zhang et al., Efficient
    neural network robustness certification, 2018). With :math:`E` the event that all
    pre-activations are in chosen ranges, :math:`L \le g \le U` on :math:`E`, and
    :math:`l_j \le h_j \le u_j` the affine bounds of pre-activations,

    .. math::

        P(U \le y) - \delta \le P(g \le y) \le P(L \le y) + \delta, \qquad
        \delta = \sum_j P(l_j < \text{lower end}) + P(u_j > \text{upper end}),

    where all distributions are those of linear combinations of independent variables. Ranges
    without an event have :math:`\delta = 0`; shorter ones bring the lines nearer to the activation.
    Six choices are computed, and the best bound at each point counts. (Bounds on probabilities by
    affine bounds: L. Weng et al., PROVEN, 2019.) Errors by rounding and by quadrature are bounded
    and added, in float64 whatever the type of the input.

    Examples
    --------
    >>> import numpy as np
    >>> import nn_uq_dist as nuq
    >>> rng = np.random.default_rng(0)
    >>> net = nuq.LeakyReLUNetwork([rng.normal(size=(8, 3))], [np.ones(8)], [np.ones(8)])
    >>> bounds = nuq.certified(net, nuq.Input.box(np.zeros(3), half_width=0.3))
    >>> low, high = bounds.probability_bounds(10.0, np.inf)
    """
    if not isinstance(network, LeakyReLUNetwork):
        network = LeakyReLUNetwork.from_network(network, vector_input(f).num_inputs)
    require_network(network)
    distribution = input_of(network, f)
    if distribution.batch_shape:
        raise ValueError(
            f"f must be one input distribution, got batch shape {distribution.batch_shape}; call "
            f"certified for each of them in a loop"
        )
    if not checks.is_concrete(network, distribution):
        raise TypeError(
            "network and f must hold numbers, got traced values; call certified outside of jit, "
            "grad and vmap"
        )
    if output is None:
        if network.num_outputs > 1:
            raise ValueError(
                f"output must say which of {network.num_outputs} outputs is asked for, got None; "
                f"pass its index"
            )
        output = 0
    index = checks.as_index(output, network.num_outputs)
    with np.errstate(over="ignore", invalid="ignore"):
        exact = StandardNetwork.of_distribution(network, distribution, slice(index, index + 1))
        if not exact.is_uniform.size:
            raise ValueError(
                "f must be random, got only known values; give an input a half-width or a scale"
            )
        cover = whole_cover(exact)
    if not all(np.all(np.abs(part) < _LARGEST) for part in (cover.rows, cover.const)):
        raise ValueError(
            f"network and f must give bounds below {_LARGEST:g}, got larger ones or NaN; scale the "
            f"weights or the input"
        )
    found = CertifiedDistribution.of_covers(exact, (cover,), index)
    if max_parts == 1 and not seconds is gap is threshold is None:
        raise ValueError(
            "max_parts must exceed 1 for seconds, gap and threshold to matter, got 1; pass more"
        )
    return found.refine(max_parts, seconds=seconds, gap=gap, threshold=threshold, progress=progress)
