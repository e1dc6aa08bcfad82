"""Positions of outputs from the indices that users give."""

import jax.numpy as jnp
import numpy as np
import pytest

from nn_uq_dist.basics._checks import as_indices


@pytest.mark.parametrize(
    ("indices", "expected"),
    [
        (1, (1,)),
        (-1, (2,)),
        ((2, -3), (2, 0)),
        ([0], (0,)),
        (range(3), (0, 1, 2)),
        (np.int64(2), (2,)),
        (np.array([1, 0]), (1, 0)),
    ],
)
def test_indices_become_positions(indices, expected):
    positions = as_indices(indices, 3)
    assert positions == expected
    assert all(type(position) is int for position in positions)


def test_jax_indices():
    assert as_indices(jnp.array([1, 0]), 3) == (1, 0)
    assert as_indices(jnp.array(2), 3) == (2,)
