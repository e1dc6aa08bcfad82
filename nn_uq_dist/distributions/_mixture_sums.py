"""Sums of probabilities given by logarithms, and normal scores of them, in JAX or NumPy."""

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import log_ndtr

from nn_uq_dist.basics._normal_tails import score_from_log_tails
from nn_uq_dist.basics._row_algebra import namespace


def log_sum(terms: Any) -> Any:
    """Log of the sum of exponentials over the last axis, with slope zero where all are ``-inf``."""
    xp = namespace(terms)
    top = xp.max(terms, axis=-1, keepdims=True)
    # The result does not depend on the shift, so no gradient flows through it.
    top = top if xp is np else lax.stop_gradient(top)
    shift = xp.where(xp.isfinite(top), top, 0)
    total = xp.sum(xp.exp(terms - shift), axis=-1)
    positive = total > 0
    # The inner `where` keeps the infinite slope of the logarithm at 0 out of the derivative.
    logs = xp.log(xp.where(positive, total, 1)) + shift[..., 0]
    logs = xp.where(positive, logs, xp.where(xp.isnan(total), xp.nan, -xp.inf))
    return logs.astype(terms.dtype)


def log_weights(probabilities: Any) -> Any:
    """Logs of probabilities, ``-inf`` for zero with slope zero, NaN for negative ones."""
    xp = namespace(probabilities)
    is_zero = probabilities == 0
    with np.errstate(invalid="ignore"):
        logs = xp.log(xp.where(is_zero, 1, probabilities))
    return xp.where(is_zero, -xp.inf, logs).astype(logs.dtype)


def log_tails(xp: Any, scores: Any) -> tuple[Any, Any]:
    """Logs of both tail probabilities of normal scores."""
    if xp is np:
        from scipy.special import log_ndtr as log_ndtr_now

        known = np.asarray(scores)
        return log_ndtr_now(known), log_ndtr_now(-known)
    # Beyond the support of a component: derivatives at an infinite score would be NaN.
    finite = jnp.isfinite(scores) | jnp.isnan(scores)
    safe = jnp.where(finite, scores, 0)
    lower = jnp.where(finite, log_ndtr(safe), jnp.where(scores > 0, 0, -jnp.inf))
    upper = jnp.where(finite, log_ndtr(-safe), jnp.where(scores > 0, -jnp.inf, 0))
    return lower, upper


def score_of_tails(log_lower: Any, log_upper: Any) -> Any:
    """Normal score from both log tail probabilities, of which the smaller one is used."""
    if namespace(log_lower) is not np:
        return score_from_log_tails(log_lower, log_upper)
    from scipy.special import ndtri_exp

    smaller = np.minimum(np.minimum(log_lower, log_upper), math.log(0.5))
    score = -ndtri_exp(smaller.astype(np.float64)).astype(smaller.dtype)
    return np.where(log_lower < log_upper, -score, score)
