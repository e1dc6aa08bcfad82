"""Known numbers are computed now, and give what the program of traced ones gives."""

import jax
import jax.numpy as jnp
import numpy as np

from nn_uq_dist.basics.concrete import one_program
from nn_uq_dist.basics.row_algebra import namespace
from tests.compiling import counted_compilations


@one_program
def _scaled(values, parts):
    xp = namespace(values)
    first, second = parts
    return xp.sum(values * first, axis=0), xp.exp(second)


def test_few_known_numbers_compile_nothing_and_are_those_of_the_program():
    values = np.random.default_rng(0).normal(size=(300, 2)).astype(np.float32)
    arguments = jnp.asarray(values), (np.float32(2), jnp.asarray([0.5, -1.0], jnp.float32))
    with counted_compilations() as compiled:
        known = _scaled(*arguments)
    assert not compiled
    for one, other in zip(known, jax.jit(_scaled)(*arguments), strict=True):
        assert one.dtype == other.dtype == jnp.float32
        np.testing.assert_allclose(one, other, rtol=2e-6, atol=2e-5)
    # In float64, whatever the type of JAX is.
    np.testing.assert_array_equal(known[0], (2 * values.astype(float)).sum(0).astype(np.float32))


def test_many_known_numbers_and_traced_ones_take_a_program():
    np.testing.assert_array_equal(_scaled(jnp.ones((2**18, 1)), (1.0, 0.0))[0], 2**18)
    slope = jax.grad(lambda x: _scaled(jnp.ones((3, 1)), (x, 0.0))[0].sum())(1.0)
    np.testing.assert_array_equal(slope, 3.0)
