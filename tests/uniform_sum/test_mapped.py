"""`jax.vmap` over parameters: the same results as a loop, without evaluating every method."""

import jax
import jax.numpy as jnp
import numpy as np

from nn_uq_dist import uniform_sum as lc
from tests.compiling import jit

WEIGHTS = np.array([1.0, 0.8, 0.6, 0.5, 0.3, 0.2])
POINTS = np.array([0.0, 0.4, -1.9, 3.2])
# The third set needs conditioning, the others do not.
FACTORS = np.array([[1.0] * 6, [0.5] * 6, [1.0, *[1e-3] * 5]])


def _values(factors, scale):
    return jnp.stack([*lc.logpdf_and_logsf(POINTS, factors * WEIGHTS, scale)])


def test_mapped_values_and_gradients_are_those_of_a_loop(x64):
    def total(factors):
        values = _values(factors, 0.01)
        return jnp.sum(jnp.where(jnp.isfinite(values), values, 0.0)), values

    slope = jax.grad(total, has_aux=True)
    gradients, values = jit(jax.vmap(slope))(FACTORS)
    alone = jit(slope)
    for factors, gradient, value in zip(FACTORS, gradients, values, strict=True):
        expected_gradient, expected = alone(factors)
        np.testing.assert_allclose(value, expected, rtol=1e-12)
        np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-9, atol=1e-10)


def test_mapped_functions_decide_once():
    program = str(jax.make_jaxpr(jax.vmap(lambda f: _values(f, 0.05)))(FACTORS))
    assert "cond[" in program
