"""Normal scores from log tail probabilities, right in both tails."""

import math

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.scipy.special import log_ndtr

_ITERATIONS = 7


def log_normal_density(z: Array) -> Array:
    return -0.5 * z * z - 0.5 * math.log(2.0 * math.pi)


@jax.custom_jvp
@jax.jit
def score_from_log_survival(log_survival: Array) -> Array:
    r"""``z >= 0`` with ``log(1 - Phi(z)) = log_survival``, for ``log_survival <= log(1/2)``.

    ``log(1 - Phi)`` is concave, and ``1 - Phi(z) <= exp(-z^2/2)/2`` starts Newton's method on the
    side from which it converges monotonically.
    """
    start = jnp.sqrt(jnp.maximum(-2.0 * (log_survival + math.log(2.0)), 0.0))
    finite = jnp.isfinite(start)
    start = jnp.where(finite, start, 1.0)
    target = jnp.where(finite, log_survival, -1.0)

    def step(_: int, z: Array) -> Array:
        value = log_ndtr(-z)
        hazard = jnp.exp(log_normal_density(z) - value)
        return jnp.maximum(z + (value - target) / hazard, 0.0)

    z = lax.fori_loop(0, _ITERATIONS, step, start)
    beyond = jnp.where(log_survival == -jnp.inf, jnp.inf, jnp.nan)
    return jnp.where(finite, z, beyond)


@score_from_log_survival.defjvp
def _score_from_log_survival_jvp(
    primals: tuple[Array], tangents: tuple[Array]
) -> tuple[Array, Array]:
    z = score_from_log_survival(*primals)
    safe = jnp.where(jnp.isfinite(z), z, 0.0)
    slope = -jnp.exp(log_ndtr(-safe) - log_normal_density(safe))
    return z, slope * tangents[0]
