"""Normal scores from log tail probabilities, against SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special

from nn_uq_dist.basics.normal_tails import score_from_log_survival


def test_scores_from_the_center_to_any_distance(precision):
    eps = np.finfo(precision).eps
    depth = np.concatenate([np.geomspace(eps, 1, 200), np.geomspace(1, 1e30, 500)])
    log_survival = jnp.asarray(np.log(0.5) - depth, precision)
    exact = -scipy.special.ndtri_exp(np.asarray(log_survival, float))
    # Rounding of the logarithm, over the slope, and some of its evaluation.
    error = 8 * eps * np.maximum(np.abs(log_survival), 1) / np.maximum(exact, 0.8)
    # JAX's log_ndtr is a short series beyond 20.
    short = np.where(exact > 450, 3e-10 * exact, 3e-10)
    error = np.where(exact > 20, np.maximum(error, short), error)
    found, slope = jax.jit(jax.vmap(jax.value_and_grad(score_from_log_survival)))(log_survival)
    np.testing.assert_array_less(np.abs(found - exact), error)
    np.testing.assert_allclose(slope[exact > 31], -1 / exact[exact > 31], rtol=2e-3)
    none = score_from_log_survival(jnp.array([-jnp.inf, jnp.nan]))
    np.testing.assert_array_equal(none, [np.inf, np.nan])
