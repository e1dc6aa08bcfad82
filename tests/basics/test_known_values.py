"""Known numbers are computed now, also while a program is traced, and compile nothing twice."""

import jax
import jax.numpy as jnp
import numpy as np

from nn_uq_dist.basics._checks import is_concrete
from nn_uq_dist.basics._known_values import evaluated_now
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
