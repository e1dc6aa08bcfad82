"""Normal scores from log tail probabilities, against SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special

from nn_uq_dist.basics.normal_tails import score_from_log_survival, score_from_log_tails


def test_scores_agree_with_scipy_from_the_center_to_the_far_tail(precision):
    eps = np.finfo(precision).eps
    depth = np.concatenate([np.geomspace(eps, 1, 200), np.geomspace(1, 1e5, 200)])
    log_survival = np.asarray(np.log(0.5) - depth, precision)
    expected = -scipy.special.ndtri_exp(np.float64(log_survival))
    found = score_from_log_survival(jnp.asarray(log_survival))
    # Rounding of the logarithm, over the slope, and some of its evaluation.
    error = 8 * eps * np.maximum(np.abs(log_survival), 1) / np.maximum(expected, 0.8)
    # JAX's log_ndtr is a short series beyond 20.
    error = np.where(expected > 20, np.maximum(error, 3e-10), error)
    np.testing.assert_array_less(np.abs(found - expected), error)


def test_scores_at_any_distance(precision):
    # Logarithms of 1e10 and more are rounded to whole numbers and worse in single precision.
    given = jnp.asarray(-np.geomspace(500, 1e30, 300), precision)
    z = -scipy.special.ndtri_exp(np.float64(given))
    # JAX's log_ndtr is a short series beyond 20.
    rtol = max(8 * np.finfo(precision).eps, 3e-10)
    for function in (score_from_log_survival, jax.jit(lambda x: score_from_log_survival(x + 0.0))):
        np.testing.assert_allclose(function(given), z, rtol=rtol)
    slope = jax.vmap(jax.grad(score_from_log_survival))(given)
    np.testing.assert_allclose(slope, -1 / z, rtol=2e-3)


def test_scores_of_no_probability():
    found = score_from_log_survival(jnp.array([-jnp.inf, jnp.nan, np.log(0.5)]))
    np.testing.assert_allclose(found, [np.inf, np.nan, 0], atol=1e-6)
    tails = score_from_log_tails(jnp.array([-jnp.inf, 0.0]), jnp.array([0.0, -jnp.inf]))
    np.testing.assert_array_equal(tails, [-np.inf, np.inf])
