"""Components of a mixture: their logs summed, and some of them selected or drawn from."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array, lax
from jax.scipy.special import log_ndtr
from jax.typing import ArrayLike
from numpyro.distributions.util import promote_shapes

from nn_uq_dist.basics._checks import as_numeric, broadcast_shapes
from nn_uq_dist.basics._normal_tails import score_from_log_tails
from nn_uq_dist.basics._row_algebra import matvec, namespace
from nn_uq_dist.laws._adapted_law import with_rank
from nn_uq_dist.laws._batch_entries import take_entries, with_parameters


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


# Most numbers of all components at all known points, or in the matrices of the components of draws,
# that are handled together.
MOST_NUMBERS = 2**22


def of_components(table: Array, index: Array, rank: int) -> Array:
    """Entries of a table, shape ``batch + (M, ...)``, of one component for each entry of the batch.

    Parameters
    ----------
    table : Array
    index : Array of int, shape (...) + batch
    rank : int
        Number of batch axes.
    """
    flat = table.reshape(-1, *table.shape[rank:])
    chosen = index.reshape(-1, len(flat))
    return flat[jnp.arange(len(flat)), chosen].reshape(*index.shape, *table.shape[rank + 1 :])


def take_flat(
    law: dist.Distribution, batch_shape: tuple[int, ...], index: Any
) -> dist.Distribution:
    """All components at ``index`` in the flattened other batch axes, ``(len(index), M)``."""
    if len(batch_shape) == 1:
        return law  # the same components everywhere
    return with_parameters(
        law, lambda argument, lead, _: take_entries(argument, lead - 1, batch_shape[:-1], index)
    )


def choose_components(
    law: dist.Distribution, batch_shape: tuple[int, ...], index: Array
) -> dist.Distribution:
    """One component for each entry of ``index``, shape ``(...) + batch_shape[:-1]``."""

    def chosen(argument: ArrayLike, lead: int, _: int) -> ArrayLike:
        event_shape = jnp.shape(argument)[max(lead, 0) :]
        table = jnp.broadcast_to(jnp.asarray(argument), (*batch_shape, *event_shape))
        return of_components(table, index, len(batch_shape) - 1)

    return with_parameters(law, chosen)


def fitting_mixture(
    components: dist.Distribution, probabilities: ArrayLike
) -> tuple[Any, Array, tuple[int, ...]]:
    """Components and probabilities of equal rank, and their batch shape with the last axis."""
    probabilities = as_numeric("probabilities", probabilities)
    batch_shape, given = components.batch_shape, jnp.shape(probabilities)
    if not batch_shape or batch_shape[-1:] != given[-1:]:
        raise ValueError(
            f"components and probabilities must have the same last batch axis, that of the "
            f"components, got batch_shape {batch_shape} and shape {given}; pass a law and a "
            "probability for each component"
        )
    shape = broadcast_shapes(
        "the leading axes of components and probabilities must broadcast",
        components=batch_shape,
        probabilities=given,
    )
    # Axes which `vmap` puts in front stay in front of both.
    (promoted,) = promote_shapes(probabilities, shape=shape)
    return with_rank(components, len(shape)), promoted, shape


@jax.jit
def draws_of_parts(index: Array, variables: Array, loc: Array, matrix: Array) -> Array:
    """``loc_i + A_i v`` with the component ``i`` of each draw, shape ``(...) + batch + (d,)``.

    Parameters
    ----------
    index : Array of int, shape (...) + batch
    variables : Array, shape (...) + batch + (k,)
    loc : Array, shape batch + (M, d)
    matrix : Array, shape batch + (M, d, k)

    Notes
    -----
    The matrices of the components are looked up for some draws at a time, which bounds memory.
    """
    batch_shape, event_shape = loc.shape[:-2], loc.shape[-1:]
    laws = math.prod(batch_shape)
    flat_index = index.reshape(-1, laws)
    flat_variables = variables.reshape(-1, laws, variables.shape[-1])
    means = loc.reshape(laws, *loc.shape[-2:])
    matrices = matrix.reshape(laws, *matrix.shape[-3:])
    law = jnp.arange(laws)

    def one(draw: tuple[Array, Array]) -> Array:
        chosen, values = draw
        return means[law, chosen] + matvec(matrices[law, chosen], values)

    size = max(1, MOST_NUMBERS // (laws * matrix.shape[-2] * matrix.shape[-1]))
    draws = lax.map(one, (flat_index, flat_variables), batch_size=size)
    return draws.reshape(*index.shape, *event_shape)
