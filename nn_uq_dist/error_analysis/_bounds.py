"""Bounds on the linearization error on a box: certain ones, and probabilistic ones."""

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import Distribution

from nn_uq_dist.basics import _checks
from nn_uq_dist.basics._known_values import FloatArray
from nn_uq_dist.error_analysis._enclosure import EPS
from nn_uq_dist.error_analysis._float64_network import (
    Float64Network,
    maps_to_output,
    norm,
    pre_activations,
    slopes_at,
    spectral_norm,
    with_box,
)
from nn_uq_dist.error_analysis._leaky_relu_network import LeakyReLUNetwork
from nn_uq_dist.error_analysis._tightened import box_distance, tightened_bound
from nn_uq_dist.inputs import AbstractInputLaw
from nn_uq_dist.inputs._terms import UNIFORM_VARIANCE

_CHOICES = {"of": ("total", "last_layer"), "form": ("tightened", "corrected", "printed")}


def deterministic_bound(
    network: LeakyReLUNetwork,
    f: Distribution | AbstractInputLaw,
    *,
    of: Literal["total", "last_layer"] = "total",
    form: Literal["tightened", "corrected", "printed"] = "tightened",
) -> jax.Array:
    r"""Bound the error of the linearization on a box, per output.

    Parameters
    ----------
    network
        The network. Stacked networks (leading axes on every leaf) broadcast against the batch
        shape of `f`.
    f
        A box: ``Uniform`` of NumPyro or an `InputLaw` without Gaussian part. The network is
        linearized at its center :math:`\mu`; :math:`b` are its half-widths.
    of
        Bound the magnitude of `total_error` (``"total"``) or of `last_layer_residual`
        (``"last_layer"``).
    form
        ``"tightened"``, which never exceeds ``"corrected"``; or ``"printed"``, as in the paper. See
        the notes.

    Returns
    -------
    Array
        Shape ``batch_shape + (N_y,)``. Computed in float64 and rounded up.

    Raises
    ------
    TypeError
        If `network` is not a `LeakyReLUNetwork`, `f` is not of a supported family, or either is
        traced.
    ValueError
        If `f` has a Gaussian part, for which there is no such bound, or the wrong number of inputs;
        if `of` or `form` is unknown; if a weight is NaN or infinite.

    Notes
    -----
    ``"corrected"``: the activation has slopes of at most 1, so :math:`z` moves the pre-activations
    of layer n by :math:`\|\delta_n\| \le \prod_{k \le n} \|W_k\| \|b\|`; where a sign flips,
    :math:`|h + \delta| \le |\delta|`, hence :math:`\|\Delta\phi_n\| \le (1-\alpha) \|\delta_n\|`.
    In the sum of `total_error`, with :math:`d_k` the largest slope in layer k at :math:`\mu` and
    :math:`q_i` the row of the Jacobian (without a skip connection, which is affine):

    .. math::

        |A_i \Delta\phi_L| &\le (1-\alpha) \|A_i\| \prod_n \|W_n\| \|b\| \\
        |\text{total}_i| &\le \min\Bigl\{ (1-\alpha) \|A_i\| \prod_n \|W_n\|
        \sum_{n=1}^{L} \prod_{k>n} d_k,\ \|A_i\| \prod_n \|W_n\| + \|q_i\| \Bigr\} \|b\|

    ``"tightened"`` computes, layer by layer, how far each pre-activation can reach on the box:
    exactly as far as its linear model, as long as no neuron before it can flip. Neurons that cannot
    flip contribute nothing; those that can contribute at most :math:`1 - \alpha` times the distance
    that they reach beyond zero, always with a positive sign. These limits are propagated to the
    output through the positive and the negative part of :math:`A \prod_{k>n} D_k W_k`, whose rows
    also replace the products of norms. A second model, with a chord in place of each activation
    that can flip, bounds the total if many neurons flip, and so do the affine bounds of
    `nn_uq_dist.certified`; the smallest of all bounds is returned.
    The result is zero where `is_exact_on_support` is true. For deep networks that flip in every
    layer the bounds are still far above the true error. Cost: in each layer, products with a column
    per neuron of the layers before it.

    ``"printed"``: the paper's ``boundL``, :math:`(1-\alpha) \|A_i\| \|W_L\| \prod_{n<L} \lambda_n
    \|b\|` with :math:`\lambda_n = (d_n + 1 - \alpha) \|W_n\|`, the same for either `of`. It holds
    for the last layer, where the :math:`\lambda_n` are not needed, but not for the total.

    Examples
    --------
    >>> from nn_uq_dist import InputLaw, LeakyReLUNetwork, error_analysis
    >>> network = LeakyReLUNetwork([[[3.0], [1.0]]], [[0.0, 5.0]], [[1.0, 1.0]], 0.0)
    >>> box = InputLaw([0.5], half_width=1.0)
    >>> for form in ("tightened", "corrected"):  # the first neuron reaches -1.5
    ...     bound = error_analysis.deterministic_bound(network, box, form=form)
    ...     print(form, f"{bound[0]:.3f}")
    tightened 1.500
    corrected 4.472
    """
    return _bound("deterministic_bound", network, f, of, form, norm)


def probabilistic_bound(
    network: LeakyReLUNetwork,
    f: Distribution | AbstractInputLaw,
    delta: float,
    *,
    of: Literal["total", "last_layer"] = "total",
    form: Literal["tightened", "corrected", "printed"] = "tightened",
) -> jax.Array:
    r"""Bound that the error exceeds with probability at most `delta`, per output.

    Parameters
    ----------
    network, f, of, form
        As in `deterministic_bound`.
    delta
        Probability in ``(0, 1)``. It covers all outputs together, since all bounds hold whenever
        :math:`\|z\|` is small.

    Returns
    -------
    Array
        Shape ``batch_shape + (N_y,)``: a bound on the magnitude, not on its square.

    Raises
    ------
    TypeError, ValueError
        As for `deterministic_bound`, or if `delta` is not a number in ``(0, 1)``.

    Notes
    -----
    The bounds of `deterministic_bound` with :math:`\|b\|` replaced by a bound r of :math:`\|z\|`,

    .. math::

        r^2 = \tfrac13 \sum_k b_k^2 + \tfrac{c l}{2} + \sqrt{\tfrac{c^2 l^2}{4} + 2 v l}, \qquad
        l = \log\tfrac1\delta,\ c = \tfrac49 \max_k b_k^2,\ v = \tfrac{4}{45} \sum_k b_k^4,

    from Bernstein's inequality for the independent :math:`z_k^2`, at most :math:`\|b\|^2`.
    ``"tightened"`` keeps its elementwise limits, which hold on the whole box. ``"printed"``
    combines the factor of ``boundL`` with the paper's ``eq:z1_bound``, which has :math:`N_x` in
    place of the largest term of the sum, so it may exceed the certain bound.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from nn_uq_dist import InputLaw, LeakyReLUNetwork, error_analysis
    >>> network = LeakyReLUNetwork([jnp.ones((1, 31)) / 31**0.5], [[0.0]], [[1.0]], 0.0)
    >>> box = InputLaw(jnp.zeros(31), half_width=1.0)
    >>> for form in ("corrected", "printed"):
    ...     bound = error_analysis.probabilistic_bound(network, box, 0.5, form=form)
    ...     print(form, f"{bound[0] ** 2:.2f}")
    corrected 12.45
    printed 35.54
    """
    numbers = (int, float, np.number, np.ndarray, jax.Array)
    given: object = delta
    if not isinstance(given, numbers) or np.ndim(given) != 0 or np.asarray(given).dtype == bool:
        raise TypeError(
            f"delta must be a number in (0, 1), got {type(delta).__name__}; pass a float"
        )
    if not 0 < delta < 1:
        raise ValueError(
            f"delta must lie in (0, 1), got {delta}; pass the probability that the bound may fail, "
            f"and for none use deterministic_bound"
        )
    squared = printed_squared_norm if form == "printed" else bernstein_squared_norm

    def radius(half_width: FloatArray) -> FloatArray:
        root: FloatArray = np.sqrt(squared(half_width, float(delta)))
        return root

    return _bound("probabilistic_bound", network, f, of, form, radius)


def _bound(
    function: str,
    network: LeakyReLUNetwork,
    f: Distribution | AbstractInputLaw,
    of: str,
    form: str,
    radius_of: Callable[[FloatArray], FloatArray],
) -> jax.Array:
    """Bound the error where the perturbation is no longer than the radius for some half-widths."""
    for (name, choices), value in zip(_CHOICES.items(), (of, form), strict=True):
        if value not in choices:
            listed = ", ".join(map(repr, choices))
            raise ValueError(f"{name} must be one of {listed}, got {value!r}; pass one of them")
    exact, law, half_width, has_gaussian_part = with_box(function, network, f)
    if np.any(has_gaussian_part):
        raise ValueError(
            "f must be a box for bounds of the error, got a law with a Gaussian part, on whose "
            "unbounded support there is none; pass a Uniform, or look at flip_probabilities"
        )
    mu, radius = np.asarray(law.loc), radius_of(half_width)
    # Norms of deep networks may overflow; then the bound is infinity.
    with np.errstate(over="ignore", invalid="ignore"):
        if form == "tightened":
            bound = tightened_bound(exact, mu, half_width, radius, of)
            if of == "total":
                # The smaller of those that have not overflowed.
                bound = np.fmin(bound, box_distance(network, law))
        else:
            slopes = slopes_at(exact, pre_activations(exact, mu))
            factor = (
                printed_factor(exact, slopes)
                if form == "printed"
                else corrected_factor(exact, slopes, of)
            )
            bound = factor * radius[..., None]
        # The relative error of products and norms of these sizes is below `operations` times
        # epsilon.
        operations = 8 * sum(sum(weights.shape[-2:]) for weights in exact.hidden_weights)
        bound = np.where(np.isnan(bound), np.inf, bound * (1 + operations * EPS))
        rounded = bound.astype(_checks.float_dtype(network.output_matrix))
    next_above = np.nextafter(rounded, rounded.dtype.type(np.inf))
    return jnp.asarray(np.where(rounded < bound, next_above, rounded))


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
