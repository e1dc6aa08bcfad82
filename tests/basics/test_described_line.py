"""One line for each public object, whatever its arrays are."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import nn_uq_dist as nuq
from nn_uq_dist.inputs import GaussianInput, InputBlocks, InputSum, KnownInput, as_input_law

BOX = nuq.InputLaw(np.zeros((2, 3)), half_width=1.0)
LAWS = {
    "InputLaw(box, num_inputs=3, batch_shape=(2,), dtype=float32)": BOX,
    "InputLaw(box and correlated normal, num_inputs=1, batch_shape=(), dtype=float32)": (
        nuq.InputLaw([0.0], 1.0, [[1.0]])
    ),
    "InputLaw(independent normal, num_inputs=1, batch_shape=(), dtype=float32)": (
        nuq.InputLaw([0.0], scale=1.0)
    ),
    "GaussianInput(rank at most 2, num_inputs=3, batch_shape=(), dtype=float32)": (
        GaussianInput(np.zeros(3), np.ones((3, 2)))
    ),
    "KnownInput(known values, num_inputs=2, batch_shape=(), dtype=float32)": KnownInput([1.0, 2.0]),
    "InputSum(2 terms, num_inputs=3, batch_shape=(2,), dtype=float32)": InputSum(BOX, BOX),
    "InputBlocks(2 parts, num_inputs=6, batch_shape=(2,), dtype=float32)": InputBlocks(BOX, BOX),
    "MappedInput(transformed InputLaw to ExpTransform, num_inputs=3, batch_shape=(), "
    "dtype=float32)": as_input_law(dist.LogNormal(jnp.zeros(3), 1.0).to_event(1)),
}


@pytest.mark.parametrize("text", LAWS)
def test_repr_has_kind_sizes_and_type(text):
    assert repr(LAWS[text]) == text


def test_repr_of_tracers_and_placeholders():
    leaves, structure = jax.tree.flatten(BOX)
    assert repr(jax.tree.unflatten(structure, [object()] * len(leaves))) == "InputLaw(...)"
    seen = []
    jax.jit(lambda law: seen.append(repr(law)) or law.loc)(BOX)
    assert seen == ["InputLaw(box, num_inputs=3, batch_shape=(2,), dtype=float32)"]
