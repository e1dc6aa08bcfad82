"""Chunks give what the whole gives, whatever their size."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nn_uq_dist.basics.chunks import in_chunks, in_padded_chunks

ROWS = np.arange(22.0, dtype=np.float32).reshape(11, 2)


def squares(rows, scale):
    return {"sum": jnp.sum(rows * rows, axis=-1) * scale, "rows": rows}


@pytest.mark.parametrize("size", [4, 50])
def test_chunks_are_the_whole_and_have_its_gradient(size):
    scale = np.linspace(1.0, 2.0, 11, dtype=np.float32)
    found = in_chunks(squares, jnp.asarray(ROWS), jnp.asarray(scale), size=size)
    np.testing.assert_allclose(found["sum"], np.sum(ROWS**2, axis=-1) * scale, rtol=1e-6)
    np.testing.assert_array_equal(found["rows"], ROWS)
    slope = jax.grad(lambda x: in_chunks(squares, x, jnp.asarray(scale), size=size)["sum"].sum())
    np.testing.assert_allclose(slope(jnp.asarray(ROWS)), 2 * ROWS * scale[:, None], rtol=1e-6)


def test_later_blocks_are_not_evaluated():
    found = jax.jit(lambda x, n: in_chunks(jnp.exp, x, size=4, num_rows=n))(
        jnp.zeros(12), jnp.asarray(5)
    )
    np.testing.assert_array_equal(found, np.arange(12) < 8)


def test_padded_chunks_have_one_shape_and_give_what_all_rows_give():
    def function(x, y):
        shapes.append((x.shape, y.shape))
        return x + y[:, None], jnp.sum(x, axis=1)

    for count in (1, 8, 20):
        shapes = []
        x, y = np.arange(3.0 * count).reshape(count, 3), np.arange(float(count))
        both, total = in_padded_chunks(function, x, y, size=8)
        np.testing.assert_array_equal(both, x + y[:, None])
        np.testing.assert_array_equal(total, x.sum(axis=1))
        assert both.dtype == total.dtype == np.float64
        assert shapes == [((8, 3), (8,))] * -(-count // 8)
