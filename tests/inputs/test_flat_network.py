"""`flat_network`: networks of any input and output as ones between vectors."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import nn_uq_dist as nuq
from nn_uq_dist.inputs import as_input
from nn_uq_dist.inputs.flat_network import flat_network
from nn_uq_dist.inputs.structure import OutputStructure

BOX = nuq.Input.box(np.zeros(3), 0.1)
WEIGHTS = jnp.array([[1.0, -2.0, 0.5], [0.3, 1.0, 2.0]])


def of_vector(x):
    return jnp.tanh(WEIGHTS @ x)


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
        return nuq.linearize(lambda v: {"y": v[0] * v, "z": v[1]}, nuq.Input.box(x, 1.0))

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
    distribution = as_input({"a": dist.Normal(0.0, 1.0), "b": jnp.ones((2, 2))})
    with pytest.raises(
        ValueError, match=r"input of structure \{'a': 'float32\[\]', 'b': 'float32\[2, 2\]'\}, got"
    ):
        flat_network(lambda x: x["c"], distribution)
    batch = as_input(dist.Gamma(jnp.ones((4, 2)), 1.0).to_event(1))
    with pytest.raises(ValueError, match=r"one input of shape \(2,\) and dtype float32, got TypeE"):
        flat_network(lambda x: jnp.ones((3, 3)) @ x, batch)


def test_a_list_of_numbers_goes_into_a_network_of_their_vector():
    f = dist.Normal(0.2, 0.1), dist.LogNormal(0.0, 0.3), jnp.array(0.5)
    found = nuq.linearize(of_vector, f)
    expected = nuq.linearize(lambda x: of_vector(jnp.stack(x)), f)
    np.testing.assert_array_equal(found.loc, expected.loc)
    np.testing.assert_array_equal(found.jacobian, expected.jacobian)
    assert found.input.names == ["f[0]", "f[1]"]
    pairs = nuq.paired_draws(of_vector, found, jax.random.key(0), 8, progress=False)
    draws = nuq.monte_carlo(of_vector, f, jax.random.key(0), 8, progress=False)
    inputs = jnp.stack(pairs.inputs, axis=-1)
    for outputs in (pairs.network, draws):
        np.testing.assert_allclose(outputs, jax.vmap(of_vector)(inputs), atol=1e-6)


def test_what_is_only_drawn_goes_into_a_network_of_a_vector():
    f = [dist.Poisson(3.0), dist.Bernoulli(0.5), dist.Normal(0.0, 1.0)]
    draws = nuq.monte_carlo(of_vector, f, jax.random.key(0), 8, progress=False)
    with_lambda = nuq.monte_carlo(
        lambda x: of_vector(jnp.stack(x)), f, jax.random.key(0), 8, progress=False
    )
    np.testing.assert_array_equal(draws, with_lambda)


NOT_STACKED = {
    "dict": (
        {"rw": dist.Normal(0.0, 1.0), "r": dist.Gamma(1.0, 1.0), "L": 3.0},
        "; pass lambda x: network(jnp.hstack([x['L'], x['r'], x['rw']])), with the entries, which",
    ),
    "arrays": (
        [nuq.Input.box(np.zeros(2), 0.1), dist.Normal(0.0, 1.0)],
        "pass lambda x: network(jnp.hstack([x[0], x[1]])), with the entries in the order",
    ),
    "short list": (
        [dist.Normal(0.0, 1.0)] * 2,
        "these 2 numbers TypeError from it: dot_general requires contracting dimensions to have",
    ),
    "long dict": (
        {name: dist.Normal(0.0, 1.0) for name in "abcd"},
        "and of the vector of these 4 numbers TypeError from it",
    ),
}


@pytest.mark.parametrize("case", NOT_STACKED)
def test_what_has_no_order_or_another_length_is_refused_with_the_line_to_write(case):
    f, words = NOT_STACKED[case]
    for call in (nuq.linearize, lambda *args: nuq.monte_carlo(*args, jax.random.key(0), 8)):
        with pytest.raises(ValueError, match="network must be a JAX function of") as caught:
            call(of_vector, f)
        assert words in str(caught.value)
        assert "\n" not in str(caught.value)


def test_numbers_of_python_are_outputs():
    lin = nuq.linearize(lambda x: [x[0], 2.0], BOX)
    np.testing.assert_array_equal(lin.jacobian, [[1, 0, 0], [0, 0, 0]])
    assert lin.unravel(lin.loc) == [0.0, 2.0]


def test_a_list_of_numbers_is_not_repeated():
    # Of a list, `2 * x` and `x + x` have twice the entries.
    f = [dist.Normal(1.0, 0.1), dist.Normal(2.0, 0.2), dist.Normal(3.0, 0.3)]
    for network in (lambda x: 2 * x, lambda x: x + x):
        np.testing.assert_allclose(nuq.linearize(network, f).mean, [2.0, 4.0, 6.0])
    np.testing.assert_allclose(nuq.linearize(lambda x: x[2] * x[1], f).mean, [6.0])
