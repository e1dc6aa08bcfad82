"""Normal scores of each output given those before it, by quadrature of conditional densities."""

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.scipy.special import logsumexp

from nn_uq_dist.basics.normal_tails import score_from_log_survival
from nn_uq_dist.box_gaussian._log_density import corrected_log_evidence
from nn_uq_dist.box_gaussian._moments import output_moments
from nn_uq_dist.uniform_sum import normal_score

# Conditional densities are smooth except for jumps at an edge; nodes on either side of the value.
_NODES = 24
_REACH = 9.0


def conditional_scores(deviation: Array, weights: Array, covariance: Array | None) -> Array:
    r"""``Phi^-1(P(Y_j <= y_j | y_1, ..., y_{j-1}))`` for each output, shape as ``deviation``.

    Parameters
    ----------
    deviation : Array, shape (N, d)
    weights : Array, shape (d, n)
    covariance : Array, shape (d, d), or None

    Notes
    -----
    The first score is that of the marginal distribution. The others come from integrals of ratios
    of two evidences, at nodes out to nine conditional standard deviations: 48 evidences for each
    output.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from nn_uq_dist.box_gaussian import conditional_scores
    >>> weights = jnp.array([[1.0, 1.0, 0.5], [1.0, -1.0, 0.5]])
    >>> scores = conditional_scores(jnp.zeros((1, 2)), weights, 0.01 * jnp.eye(2))
    >>> bool(jnp.allclose(scores, 0.0, atol=1e-3))  # the center is the median of each
    True
    """
    scale = None if covariance is None else jnp.sqrt(covariance[0, 0])
    first = normal_score(deviation[:, 0], weights[0], scale)
    others = (_score(j, deviation, weights, covariance) for j in range(1, deviation.shape[-1]))
    return jnp.stack([first, *others], axis=-1)


def _score(j: int, deviation: Array, weights: Array, covariance: Array | None) -> Array:
    part = weights[: j + 1]
    own = None if covariance is None else covariance[: j + 1, : j + 1]
    moments = output_moments(deviation[:, :j], part, own)
    center = moments.mean[:, 0]
    reach = _REACH * jnp.sqrt(moments.covariance[:, 0, 0])
    value = deviation[:, j]

    # Both tails at once: the program of the evidence is compiled once for each output.
    low = jnp.stack([center - reach, jnp.maximum(value, center - reach)])
    high = jnp.stack([jnp.minimum(value, center + reach), center + reach])
    half = 0.5 * jnp.maximum(high - low, 0.0)
    known = jnp.broadcast_to(deviation[:, :j], (2, len(deviation), j))

    def log_density(node: Array) -> Array:
        points = jnp.concatenate([known, (low + half * (1.0 + node))[..., None]], axis=-1)
        logs = corrected_log_evidence(points, part, own)
        return jnp.where(jnp.isnan(logs), -jnp.inf, logs)

    nodes, rule = (jnp.asarray(x, value.dtype) for x in np.polynomial.legendre.leggauss(_NODES))
    logs = lax.map(log_density, nodes)
    below, above = logsumexp(logs, axis=0, b=rule[:, None, None]) + jnp.log(half)
    total = jnp.logaddexp(below, above)
    upper = above < below
    score = score_from_log_survival(jnp.minimum(below, above) - total)
    return jnp.where(upper, score, -score)
