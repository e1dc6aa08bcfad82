"""Known numbers are computed now, also while a program is traced, and compile nothing twice."""

import jax
import jax.numpy as jnp
import numpy as np

from nn_uq_dist.basics.checks import is_concrete
from nn_uq_dist.basics.concrete import as_results, evaluated_now, nan_unless, one_program
from nn_uq_dist.basics.row_algebra import namespace
from tests.compiling import counted_compilations


def test_known_numbers_stay_known_while_a_program_is_traced():
    known = jnp.arange(3.0)

    @jax.jit
    def traced(x):
        assert not is_concrete(known + 1)
        with evaluated_now():
            assert is_concrete(known + 1)
        return x

    traced(1.0)
    np.testing.assert_array_equal(jax.grad(lambda x: x * traced(x))(1.0), 2.0)


def test_a_program_that_ran_outside_is_not_compiled_again():
    @jax.jit
    def program(x):
        return x * 1.25

    program(np.float32(1))
    with counted_compilations() as compiled, evaluated_now():
        program(np.float32(2))
    assert not compiled


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
        assert isinstance(one, jax.Array)
        assert one.dtype == other.dtype == jnp.float32
        np.testing.assert_allclose(one, other, rtol=2e-6, atol=2e-5)
    # In float64, whatever the type of JAX is.
    np.testing.assert_array_equal(known[0], (2 * values.astype(float)).sum(0).astype(np.float32))


def test_many_known_numbers_and_traced_ones_take_a_program():
    many = jnp.ones((2**18, 1))
    with counted_compilations() as compiled:
        found = _scaled(many, (1.0, 0.0))
    assert compiled
    np.testing.assert_array_equal(found[0], 2**18)
    slope = jax.grad(lambda x: _scaled(jnp.ones((3, 1)), (x, 0.0))[0].sum())(1.0)
    np.testing.assert_array_equal(slope, 3.0)


def test_results_stay_on_the_device_of_a_committed_argument():
    committed = jax.device_put(jnp.ones(3), jax.devices()[0])
    assert all(part.committed for part in (committed, *_scaled(committed, (1.0, 0.0))))
    assert not any(part.committed for part in _scaled(jnp.ones(3), (1.0, 0.0)))
    assert jax.jit(lambda x: as_results(x, x))(1.0) == 1.0  # traced ones are on none


def test_what_is_not_valid_is_nan_with_the_derivative_nan():
    values, slopes = jax.vmap(jax.value_and_grad(lambda x: nan_unless(x > 0, x)))(jnp.arange(2.0))
    np.testing.assert_array_equal(values, [np.nan, 1.0])
    np.testing.assert_array_equal(slopes, [np.nan, 1.0])
    known = nan_unless(np.array([True, False]), np.ones(2, np.float32))
    assert known.dtype == np.float32
    np.testing.assert_array_equal(known, [1.0, np.nan])
