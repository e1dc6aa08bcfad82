"""Blocks give what the whole gives, whether or not their size divides the number of rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nn_uq_dist.basics._blocks import in_blocks

ROWS = np.arange(22.0, dtype=np.float32).reshape(11, 2)


def squares(rows, scale):
    return {"sum": jnp.sum(rows * rows, axis=-1) * scale, "rows": rows}


@pytest.mark.parametrize("size", [1, 4, 10, 11, 50])
def test_blocks_are_the_whole_and_have_its_gradient(size):
    scale = np.linspace(1.0, 2.0, 11, dtype=np.float32)
    found = in_blocks(squares, jnp.asarray(ROWS), jnp.asarray(scale), size=size)
    np.testing.assert_allclose(found["sum"], np.sum(ROWS**2, axis=-1) * scale, rtol=1e-6)
    np.testing.assert_array_equal(found["rows"], ROWS)
    slope = jax.grad(lambda x: in_blocks(squares, x, jnp.asarray(scale), size=size)["sum"].sum())
    np.testing.assert_allclose(slope(jnp.asarray(ROWS)), 2 * ROWS * scale[:, None], rtol=1e-6)


def test_later_blocks_are_not_evaluated():
    found = jax.jit(lambda x, n: in_blocks(jnp.exp, x, size=4, num_rows=n))(
        jnp.zeros(12), jnp.asarray(5)
    )
    np.testing.assert_array_equal(found, np.arange(12) < 8)
