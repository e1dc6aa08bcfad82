"""Normal scores from log tail probabilities, accurate in both tails."""

import math

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.scipy.special import log_ndtr

_ITERATIONS = 2


def log_normal_density(z: Array) -> Array:
    """Log density of the standard normal distribution."""
    return -0.5 * z * z - 0.5 * math.log(2.0 * math.pi)


@jax.custom_jvp
@jax.jit
def score_from_log_survival(log_survival: Array) -> Array:
    r"""``z >= 0`` with ``log(1 - Phi(z)) = log_survival``, for ``log_survival <= log(1/2)``.

    Newton's method from a start that is accurate to 4.5e-4 everywhere (M. Abramowitz and I. A.
    Stegun, Handbook of Mathematical Functions (1964), 26.2.23): one step leaves an error of 7e-8,
    two steps only rounding.
    """
    finite = jnp.isfinite(log_survival)
    target = jnp.where(finite, log_survival, -1.0)
    t = jnp.sqrt(jnp.maximum(-2.0 * target, 0.0))
    above = 2.515517 + t * (0.802853 + t * 0.010328)
    below = 1.0 + t * (1.432788 + t * (0.189269 + t * 0.001308))
    start = jnp.maximum(t - above / below, 0.0)

    def step(_: int, z: Array) -> Array:
        value = log_ndtr(-z)
        return jnp.maximum(z + (value - target) / _hazard(z, value), 0.0)

    z = lax.fori_loop(0, _ITERATIONS, step, start)
    beyond = jnp.where(log_survival == -jnp.inf, jnp.inf, jnp.nan)
    return jnp.where(finite, z, beyond)


def _hazard(z: Array, log_survival: Array) -> Array:
    """Density over survival probability of a standard normal variable at ``z >= 0``.

    It lies between ``z`` and ``z + 1/z`` (R. D. Gordon, Ann. Math. Stat. 12 (1941)). Far out both
    logarithms are huge, and their difference is a rounding error, which the exponential would
    magnify.
    """
    ratio = jnp.exp(log_normal_density(z) - log_survival)
    return jnp.clip(ratio, z, z + 1 / jnp.maximum(z, jnp.finfo(z.dtype).tiny))


@score_from_log_survival.defjvp
def _score_from_log_survival_jvp(
    primals: tuple[Array], tangents: tuple[Array]
) -> tuple[Array, Array]:
    z = score_from_log_survival(*primals)
    safe = jnp.where(jnp.isfinite(z), z, 0.0)
    return z, -tangents[0] / _hazard(safe, log_ndtr(-safe))


def score_from_log_tails(log_lower: Array, log_upper: Array) -> Array:
    """Normal score from the logs of both tail probabilities, of which the smaller one is used."""
    below = log_lower < log_upper
    smaller = jnp.where(below, log_lower, log_upper)
    excess = jnp.maximum(smaller - math.log(0.5), 0.0)
    score = score_from_log_survival(smaller - lax.stop_gradient(excess))
    return jnp.where(below, -score, score)
