"""`flat_network`: networks of any input and output as ones between vectors."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import nn_uq_dist as nuq
from nn_uq_dist.inputs import as_input_law
from nn_uq_dist.inputs._flat_network import OutputStructure, flat_network

BOX = nuq.InputLaw(np.zeros(3), 0.1)


def test_a_network_of_vectors_is_called_as_it_is():
    weights = jax.random.normal(jax.random.key(0), (5, 3))

    def net(x):
        return jnp.tanh(weights @ x)

    flat = flat_network(net, BOX)
    assert flat.output_structure is None
    x = jax.random.normal(jax.random.key(1), (3,))
    assert str(jax.make_jaxpr(flat)(x)) == str(jax.make_jaxpr(net)(x))
    draws = jax.random.normal(jax.random.key(2), (64, 3))
    np.testing.assert_array_equal(jax.jit(flat.at_draws)(draws), jax.jit(jax.vmap(net))(draws))


def test_outputs_of_any_structure_are_joined_and_taken_apart():
    def net(x):
        return {"b": [x.sum(), jnp.outer(x, x)], "a": x.astype(jnp.float16)}

    flat = flat_network(net, BOX)
    assert (flat.num_outputs, flat.dtype) == (3 + 1 + 9, jnp.float32)
    x = jnp.array([1.0, 2.0, 3.0])
    found, expected = flat.structure.unravel(flat(x)), net(x)
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    many = flat.structure.unravel(jnp.stack([flat(x), 2 * flat(x)])[:, None])
    assert many["b"][1].shape == (2, 1, 3, 3)
    np.testing.assert_array_equal(many["b"][0], [[6.0], [12.0]])
    again = flat_network(net, BOX).structure
    assert again == flat.structure
    assert hash(again) == hash(flat.structure)
    assert flat.structure != OutputStructure.of(x)


def test_structure_stays_with_a_linearization_through_transformations():
    def lin(x):
        return nuq.linearize(lambda v: {"y": v[0] * v, "z": v[1]}, nuq.InputLaw(x, 1.0))

    inside = jax.jit(lin)(jnp.arange(3.0))
    assert inside.unravel(inside.mean)["y"].shape == (3,)
    many = jax.vmap(lin)(jnp.ones((5, 3)))
    assert many.unravel(many.loc)["z"].shape == (5,)
    with pytest.raises(ValueError, match=r"values must have .* N_y = 4, got shape \(3,\); pass"):
        inside.unravel(jnp.zeros(3))
    plain = nuq.linearize(jnp.tanh, BOX)
    assert (
        plain.unravel(plain.mean) is plain.mean or (plain.unravel(plain.mean) == plain.mean).all()
    )
    assert nuq.linearize(jnp.sum, BOX).unravel(np.ones(1)).shape == ()


def test_failing_networks_are_told_what_they_were_given():
    law = as_input_law({"a": dist.Normal(0.0, 1.0), "b": jnp.ones((2, 2))})
    with pytest.raises(
        ValueError, match=r"input of structure \{'a': 'float32\[\]', 'b': 'float32\[2, 2\]'\}, got"
    ):
        flat_network(lambda x: x["c"], law)
    batch = as_input_law(dist.Gamma(jnp.ones((4, 2)), 1.0).to_event(1))
    with pytest.raises(ValueError, match=r"one input of shape \(2,\) and dtype float32, got TypeE"):
        flat_network(lambda x: jnp.ones((3, 3)) @ x, batch)
