r"""Where to begin the search for a quantile: the saddlepoint approximation.

The distribution tilted by ``exp(t x)`` has the mean ``K'(t)``. The normal score of that point under
the distribution itself is, with ``r^2/2 = t K'(t) - K(t)`` (Chernoff's exponent) and
``v^2 = t^2 K''(t)``,

.. math:: z \approx r + \frac{1}{r} \log\frac{v}{r}

(O. E. Barndorff-Nielsen, Biometrika 73, 1986). For sums of uniforms and a normal the tail
probability is accurate to a few percent *everywhere*: at the center, near the edge of the support,
where a small normal part takes over from the uniforms, and beyond.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from nn_uq_dist.basics.chunks import any_point
from nn_uq_dist.basics.row_algebra import namespace
from nn_uq_dist.uniform_sum._uniform_sum import sums_of

# Below this product of weight and tilt the closed forms cancel; the series are accurate to 1e-5.
_SMALL = 0.5
# This close to the center the distribution is practically normal, and the correction would be
# rounding error.
_LEAST_SCORE = 1e-3
_LEAST_CORRECTED = 0.1
_MAX_ITERATIONS = 30
_NEAR_ENOUGH = 0.1

type _State = tuple[Any, Any, Any]


def saddlepoint_quantile(score: Any, weights: Any, normal_scale: Any) -> Any:
    """Point with approximately this normal score; NumPy arrays give NumPy arrays.

    Parameters
    ----------
    score : Array, shape (...)
        Non-negative and finite.
    weights : Array, shape (..., n)
        Not negative; of a finite sum.
    normal_scale : Array, shape (...)
        Positive: a bounded distribution gets one too small to matter.

    Notes
    -----
    Newton's method in ``log t``, in which Chernoff's exponent is convex: from the right it
    converges monotonically. The start is on the right, because the exponent of one component is at
    least ``log(1 + (w t)^2/3)/2``, and the product of such brackets at least one plus the sum.
    """
    xp = namespace(score)
    score = xp.maximum(score, _LEAST_SCORE)
    missing = tuple(range(max(score.ndim, normal_scale.ndim) + 1 - weights.ndim))
    weights = xp.moveaxis(xp.expand_dims(weights, missing), -1, 0)
    width = xp.sum(weights, axis=0)
    deviation = xp.sqrt(xp.sum(weights * weights, axis=0) / 3.0)
    root = xp.sqrt(xp.expm1(xp.minimum(score * score, 80.0)))
    start = xp.minimum(root / xp.maximum(deviation, normal_scale), score / normal_scale)

    def step(state: _State) -> _State:
        count, log_tilt, _ = state
        tilt = xp.exp(log_tilt)
        exponent, spread, _ = _tilted(xp, tilt, weights, normal_scale)
        root = xp.sqrt(2.0 * exponent)
        corrected = root > _LEAST_CORRECTED
        safe = xp.where(corrected, root, 1.0)
        correction = xp.where(corrected, xp.log(xp.sqrt(spread) / safe) / safe, 0.0)
        wanted = score - correction
        move = (0.5 * wanted * wanted - exponent) / spread
        return count + 1, log_tilt + move, xp.abs(move)

    def unfinished(state: _State) -> Any:
        return (state[0] < _MAX_ITERATIONS) & any_point(state[2] > _NEAR_ENOUGH)

    state: _State = (0, xp.log(start), xp.full_like(start, np.inf))
    if xp is np:
        while state[0] < _MAX_ITERATIONS and (state[2] > _NEAR_ENOUGH).any():
            state = step(state)
    else:
        state = lax.while_loop(unfinished, step, (jnp.asarray(0), *state[1:]))
    tilt = xp.exp(state[1])
    gap = _tilted(xp, tilt, weights, normal_scale)[2]
    return width - gap + normal_scale * (normal_scale * tilt)


def _tilted(xp: Any, tilt: Any, weights: Any, normal_scale: Any) -> tuple[Any, Any, Any]:
    """``t K'(t) - K(t)``, ``t^2 K''(t)``, and the distance of the uniforms' mean from the edge."""
    product = weights * tilt
    small = product < _SMALL
    square = xp.where(small, product * product, 0.0)
    a = xp.where(small, 1.0, product)
    decay = xp.exp(-2.0 * a)
    rest = 1.0 - decay
    ratio = decay / rest
    exponent = xp.where(
        small,
        square * (1.0 / 6.0 - square * (1.0 / 60.0 - square / 567.0)),
        2.0 * a * ratio - 1.0 + xp.log(2.0 * a / rest),
    )
    spread = xp.where(
        small,
        square * (1.0 / 3.0 - square * (1.0 / 15.0 - square * 2.0 / 189.0)),
        1.0 - 4.0 * a * a * ratio / rest,
    )
    # 1 - L(a), L(a) = coth a - 1/a the Langevin function
    gap = xp.where(
        small,
        1.0 - product * (1.0 / 3.0 - square * (1.0 / 45.0 - square * 2.0 / 945.0)),
        1.0 / a - 2.0 * ratio,
    )
    normal = normal_scale * tilt
    terms = exponent, spread, weights * gap
    exponent, spread, gap = [part.sum(axis=0) for part in terms] if xp is np else sums_of(*terms)
    return exponent + 0.5 * normal * normal, spread + normal * normal, gap
