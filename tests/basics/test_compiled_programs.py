"""`compiled_once`: one compilation for one program, and never the answer of another function."""

import gc
import os
import subprocess
import sys
import weakref
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nn_uq_dist.basics import compiled_programs
from nn_uq_dist.basics.compiled_programs import compiled_once
from tests.compiling import counted_compilations

X = np.linspace(-1.0, 1.0, 5, dtype=np.float32)


@pytest.fixture(autouse=True)
def _empty_table():
    compiled_programs._compiled.cache_clear()


def call(function, *arguments):
    return compiled_once(function, *arguments)(*arguments)


def scaled(weights, power=2):
    return lambda x: weights * x**power


class Network:
    def __init__(self, weights):
        self.weights = weights

    def apply(self, x):
        return {"y": self.weights * x**2, "none": None}


@pytest.mark.parametrize("make", [scaled, lambda weights: Network(weights).apply])
def test_functions_made_anew_share_a_program_and_keep_their_own_weights(make):
    weights = [jnp.full(5, w, jnp.float32) for w in (2.0, 3.0, 4.0)]
    with counted_compilations() as compiled:
        found = [call(make(w), X) for w in weights]
    assert len(compiled) == 1
    for w, value in zip(weights, found, strict=True):
        (y,) = jax.tree.leaves(value)
        np.testing.assert_allclose(y, np.asarray(w) * X**2, rtol=1e-6)


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["plain", "jitted"])
def test_what_a_function_reads_may_change_between_calls(wrap):
    read = {"weights": jnp.full(5, 2.0, jnp.float32), "power": 2}

    def function(x):
        # `jax.jit` of the same function would remember what it read.
        return wrap(lambda x: read["weights"] * x ** read["power"])(x)

    three = jnp.full(5, 3.0, jnp.float32)
    for change in ({}, {"weights": three}, {"power": 3}, {"weights": three.at[4].set(0.0)}):
        read |= change
        expected = np.asarray(read["weights"]) * X ** read["power"]
        np.testing.assert_allclose(call(function, X), expected, rtol=1e-6)


def test_large_weights_within_a_program_are_told_apart_to_the_last_one():
    weights = np.arange(40_000, dtype=np.float32)
    for last in (1.0, 2.0):
        inner = jax.jit(scaled(np.append(weights, np.float32(last)), 1))
        assert call(lambda x, f=inner: f(x)[-1], np.float32(3.0)) == 3 * last


def test_which_argument_is_used_belongs_to_the_program():
    with counted_compilations() as compiled:
        found = [call(lambda x, _: 2 * x, X, np.float32(n)) for n in range(3)]
    assert len(compiled) == 1
    np.testing.assert_array_equal(found, [2 * X] * 3)
    a, b = np.float32([1.0, 2.0]), np.float32([3.0, 4.0])
    np.testing.assert_array_equal(call(lambda a, b: a + 1, a, b), a + 1)
    np.testing.assert_array_equal(call(lambda a, b: b + 1, a, b), b + 1)
    c, d = jnp.asarray(a), jnp.asarray(b)
    np.testing.assert_array_equal(call(lambda x: (x, c + 0 * d), a)[1], a)
    np.testing.assert_array_equal(call(lambda x: (x, d + 0 * c), a)[1], b)


def test_functions_of_the_host_are_those_of_the_call():
    def on_host(function):
        shape = jax.ShapeDtypeStruct(X.shape, X.dtype)
        return lambda x: jax.pure_callback(function, shape, x)

    np.testing.assert_allclose(call(on_host(lambda x: np.asarray(x) + 1), X), X + 1)
    np.testing.assert_allclose(call(on_host(lambda x: np.asarray(x) + 2), X), X + 2)
    assert not compiled_programs._compiled.cache_info().currsize


def test_types_are_those_of_the_function():
    for x in (2.0, np.float32(2.0), np.int32(1), jnp.asarray(2.0)):
        found, expected = call(lambda x: (x, 3 * x), x), jax.jit(lambda x: (x, 3 * x))(x)
        assert [jax.typeof(v) for v in found] == [jax.typeof(v) for v in expected]
    weak, strong = (call(lambda x, one=one: (x, one), X)[1] for one in (1.0, np.float32(1.0)))
    assert jax.typeof(weak).weak_type
    assert not jax.typeof(strong).weak_type


def test_traced_values_stay_a_part_of_the_outer_program():
    def squares(x, weights):
        return call(scaled(weights), x).sum()

    weights = jnp.full(5, 2.0, jnp.float32)
    expected = (4 * X, X**2)
    np.testing.assert_allclose(jax.jit(jax.grad(squares, (0, 1)))(X, weights), expected, rtol=1e-6)
    closed_over = jax.jit(lambda w: squares(X, w))(weights)
    np.testing.assert_allclose(closed_over, 2 * np.sum(X**2), rtol=1e-6)
    assert not compiled_programs._compiled.cache_info().currsize


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["plain", "jitted"])
def test_kept_programs_hold_no_arrays_of_the_caller(wrap):
    weights = jnp.full(5, 2.0, jnp.float32) + 1
    array = weakref.ref(weights)
    call(wrap(scaled(weights)), X)
    assert compiled_programs._compiled.cache_info().currsize == 1
    del weights
    gc.collect()
    assert array() is None


SCRIPT = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from nn_uq_dist.basics.compiled_programs import compiled_once

def call(weights, x):
    return compiled_once(lambda x: weights * x, x)(x)

x = np.arange(40, dtype=np.float32)
first, second = jax.devices()
for weight in (1.0, 2.0):
    weights = jnp.full(40, weight)
    for device in (first, second):
        found = call(weights, jax.device_put(x, device))
        assert found.devices() == {device}, found.devices()
        np.testing.assert_array_equal(found, weight * x)
        with jax.default_device(device):
            found = call(weight * np.ones(40, np.float32), x)
        assert found.devices() == {device}, found.devices()
    mesh = Mesh(np.asarray(jax.devices()), ("draws",))
    found = call(weights, jax.device_put(x, NamedSharding(mesh, PartitionSpec("draws"))))
    assert found.devices() == {first, second}, found.devices()
    np.testing.assert_array_equal(found, weight * x)
"""


# With the option JAX keeps large arrays that are closed over with the program, out of its text. JAX
# 0.8 fails with it by itself.
SIMPLIFIED = ["0", "1"] if jax.__version_info__[:2] > (0, 8) else ["0"]


@pytest.mark.slow
@pytest.mark.parametrize("simplified", SIMPLIFIED)
def test_devices_and_hidden_constants(simplified):
    environment = os.environ | {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
        "JAX_PLATFORMS": "cpu",
        "JAX_USE_SIMPLIFIED_JAXPR_CONSTANTS": simplified,
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    command = [sys.executable, "-W", "error", "-c", SCRIPT]
    subprocess.run(command, env=environment, check=True, timeout=300)  # noqa: S603
