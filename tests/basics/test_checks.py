"""Positions of outputs from the indices that users give."""

import jax.numpy as jnp
import numpy as np
import pytest

from nn_uq_dist.basics.checks import as_index, as_indices, as_numeric


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
        (jnp.array([1, 0]), (1, 0)),
        (jnp.array(2), (2,)),
    ],
)
def test_indices_become_positions(indices, expected):
    positions = as_indices(indices, 3)
    assert positions == expected
    assert all(type(position) is int for position in positions)


def test_one_output():
    assert as_index("b", 2, ["a", "b"]) == 1
    with pytest.raises(ValueError, match="output must be one output, got 2; call it for each"):
        as_index((0, 1), 2)


def test_a_dict_of_numbers_is_told_how_to_become_a_vector():
    with pytest.raises(TypeError, match=r"y must be .* got dict; pass .*leaves"):
        as_numeric("y", {"a": 1.0})


def test_names_and_masks_where_positions_are_wanted():
    for indices in ("low", ("low",), True, (0.5,)):
        with pytest.raises(TypeError, match=r"indices must be known integers.*; pass positions"):
            as_indices(indices, 3)
    with pytest.raises(TypeError, match="or names out of low, high"):
        as_indices("lo", 2, names=["low", "high"])
