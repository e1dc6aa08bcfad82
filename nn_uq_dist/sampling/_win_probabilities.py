"""Probability that each output is the largest, as for classes and their logits."""

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.sampling._monte_carlo import threefry
from nn_uq_dist.sampling._paired_draws import PairedDraws
from nn_uq_dist.sampling.sample_distribution_functions import proportion, proportion_error
from nn_uq_dist.sampling.weighted_sample import PairedEstimate, WeightedSample

# Classes that win fewer linear draws of the pairs than this are one class for the weights.
_FEWEST_WINS = 20
# Numbers per array of linear draws.
_PASS_NUMBERS = 2**22
# Draws of the linear model.
_NUM_LINEAR = 100_000
# `paired_draws` folds indices below this number into its key.
_UNUSED = 2**31


def win_probabilities(draws: Any, *, key: jax.Array | None = None) -> PairedEstimate:
    r"""Estimate the probability that each output is the largest, such as a class by its logit.

    Parameters
    ----------
    draws
        Joint draws of the outputs, shape ``(n, ..., N_y)``, from `monte_carlo` or from any joint
        distribution, such as ``linear.joint(noise_scale=0.1).sample(key, (n,))``.
        Or a model, such as a `Linearization` or a corrected one: then it is drawn from. The
        estimate is that of the model from 100,000 draws, and the standard error says nothing about
        its distance from the network.
        Or the result of `paired_draws`: then the estimate is for the network, with the linear model
        as control variate, and has a smaller standard error than from the network's draws alone.
    key
        With a model: a JAX random key.

    Returns
    -------
    PairedEstimate
        Arrays of shape ``(..., N_y)``: ``value``, ``standard_error``, and ``worth``, the number of
        plain draws with the same standard error; of the network for pairs. The values sum to 1,
        but for draws with NaN.

    Raises
    ------
    TypeError
        If `draws` are not real numbers, or are traced; if `key` is missing for a model.
    ValueError
        If `draws` do not have shape ``(n, ..., N_y)`` with ``n >= 2``.

    Notes
    -----
    With pairs the draws get weights under which each class wins in the linear model with its known
    probability: the share in `n` pairs and ``m = 100,000`` other draws together, which do not run
    the network. This equals regression of the indicators of the wins in the network on those in the
    linear model; the variance is that of the residuals over `n` plus that of what is explained over
    ``n + m``. Classes that win fewer than 20 linear draws of the pairs have no column. One draw
    more than was seen makes an error (of plain draws two), so no standard error is zero.

    The first of several largest outputs wins. In a draw with NaN no output wins: NaN is not left
    out here, as it would change the shares of the others.

    Examples
    --------
    >>> import jax
    >>> import jax.numpy as jnp
    >>> import nn_uq_dist as nuq
    >>> network = lambda x: jnp.array([jnp.tanh(x[0]), x[1], 0.0])
    >>> lin = nuq.linearize(network, nuq.Input.box([0.5, 0.4], half_width=0.3))
    >>> pairs = nuq.paired_draws(network, lin, jax.random.key(0), 1000, progress=False)
    >>> wins = nuq.win_probabilities(pairs)
    >>> [f"{p:.2f}" for p in wins.value]
    ['0.59', '0.41', '0.00']
    >>> plain = nuq.win_probabilities(pairs.network)
    >>> bool(wins.standard_error[0] < plain.standard_error[0])
    True
    """
    if not checks.is_concrete(draws):
        raise TypeError(
            "draws must hold numbers, got traced values; call win_probabilities outside of jit"
        )
    if isinstance(draws, PairedDraws):
        return _from_pairs(draws)
    if callable(getattr(draws, "sample_pairs", None)):
        share = _shares(draws, checks.as_key("key", key))
        error = proportion_error(share * (1 - share) / _NUM_LINEAR, _NUM_LINEAR)
        return PairedEstimate(share, error, np.full(share.shape, float(_NUM_LINEAR)))
    wins = _wins(checks.as_numeric("draws", draws))
    return _estimate(wins, np.zeros_like(wins), 0, np.inf)


def _wins(draws: ArrayLike) -> FloatArray:
    """Indicators that an output is the largest, of the same shape."""
    values = np.asarray(draws)
    if values.ndim < 2 or values.shape[0] < 2 or values.shape[-1] == 0:
        raise ValueError(
            f"draws must have shape (n, ..., N_y) with n >= 2, got shape {values.shape}; pass the "
            f"draws along the first axis and the outputs along the last"
        )
    winner = np.where(np.isnan(values).any(axis=-1), -1, values.argmax(axis=-1))
    return (winner[..., None] == np.arange(values.shape[-1])).astype(np.float64)


def _from_pairs(pairs: PairedDraws) -> PairedEstimate:
    network, linear = _wins(pairs.network), _wins(pairs.linear)
    key = jax.random.fold_in(threefry(checks.as_key("key", pairs.key)), _UNUSED)
    count, known = len(linear), _shares(pairs.linearization, key)
    # The best estimate of the linear probabilities is from the pairs and from the other draws.
    total = count + _NUM_LINEAR
    pooled = known + (linear.mean(axis=0) - known) * count / total
    return _estimate(network, linear - pooled, pairs.num_randomizations, total)


def _estimate(
    network: FloatArray, columns: FloatArray, num_randomizations: int, total: float
) -> PairedEstimate:
    """Probabilities from indicators ``(n, ..., N_y)``, with columns centered by `total` draws."""
    used = np.full(len(network), True)
    points = (
        np.moveaxis(array.reshape(len(array), -1, array.shape[-1]), 0, -1)
        for array in (network, columns)
    )
    estimates = []
    for wins, controls in zip(*points, strict=True):
        often = np.sum(controls > 0, axis=1) >= _FEWEST_WINS
        sample = WeightedSample.calibrated(controls[often], used, num_randomizations)
        share, error, worth = proportion(sample, wins)
        explained = wins - wins.mean(axis=1, keepdims=True) - sample.residuals(wins)
        both = np.hypot(error, np.sqrt(explained.var(axis=1) / total))
        estimates.append((share, both, worth * (error / both) ** 2))
    return PairedEstimate(*np.swapaxes(estimates, 0, 1).reshape(3, *network.shape[1:]))


def _shares(model: Any, key: jax.Array) -> FloatArray:
    """Shares of draws of a model that each output wins, shape ``batch_shape + (N_y,)``."""
    numbers = math.prod(model.batch_shape) * max(model.input.num_inputs, model.num_outputs)
    size = max(1, min(_NUM_LINEAR, _PASS_NUMBERS // numbers))
    key, total = threefry(key), np.zeros((*model.batch_shape, model.num_outputs))
    for start in range(0, _NUM_LINEAR, size):
        wanted = min(size, _NUM_LINEAR - start)
        total += np.asarray(_linear_wins(model, key, start, wanted, size))
    return total / _NUM_LINEAR


@partial(jax.jit, static_argnames="size")
def _linear_wins(model: Any, key: jax.Array, start: int, wanted: int, size: int) -> jax.Array:
    """Count the wins in the first `wanted` of `size` draws."""
    outputs = model.sample_pairs(jax.random.fold_in(key, start), (size,))[1]
    is_wanted = jnp.arange(size).reshape(-1, *[1] * (outputs.ndim - 2)) < wanted
    winner = jnp.where(is_wanted, outputs.argmax(axis=-1), -1)
    return jnp.sum(winner[..., None] == jnp.arange(outputs.shape[-1]), axis=0)
