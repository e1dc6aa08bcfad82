"""A second call with the same shapes compiles nothing, whatever the network is made of."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import nn_uq_dist as nuq
from nn_uq_dist.basics import compiled_programs
from nn_uq_dist.diagnostics import summary
from tests.compiling import counted_compilations

NUM_INPUTS, WIDTH, NUM_OUTPUTS = 4, 8, 2


@pytest.fixture(autouse=True)
def _no_programs():
    """Other tests, and other networks with the same program, compile nothing for this one."""
    compiled_programs._compiled.cache_clear()


class Operator:
    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.hidden = jnp.asarray(rng.normal(size=(WIDTH, NUM_INPUTS)), jnp.float32)
        self.output = jnp.asarray(rng.normal(size=(NUM_OUTPUTS, WIDTH)) / 4, jnp.float32)

    def apply(self, x):
        return self.output @ jnp.tanh(self.hidden @ x)


def flax_network(seed):
    rngs = nnx.Rngs(seed)
    hidden = nnx.Linear(NUM_INPUTS, WIDTH, rngs=rngs)
    return nnx.Sequential(hidden, jnp.tanh, nnx.Linear(WIDTH, NUM_OUTPUTS, rngs=rngs))


NETWORKS = {
    "function": lambda seed: Operator(seed).apply,
    "nnx_module": flax_network,
    "equinox_module": lambda seed: eqx.nn.MLP(
        NUM_INPUTS, NUM_OUTPUTS, WIDTH, 1, activation=jnp.tanh, key=jax.random.key(seed)
    ),
}


def programs_of(network, seed, batch_shape=(), *, with_tables=False):
    """Programs that each function compiles for a network, an input and a key of this seed."""
    compiled = {}

    def counted(function, *args, **options):
        with counted_compilations() as programs:
            result = jax.block_until_ready(function(*args, **options))
        compiled[function.__name__] = programs
        return result

    rng, key = np.random.default_rng(seed), jax.random.key(seed)
    mean = rng.uniform(size=(*batch_shape, NUM_INPUTS)).astype(np.float32)
    f = nuq.Input.box(mean, half_width=0.3 + 0.1 * seed)
    linear = counted(nuq.linearize, network, f)
    counted(nuq.monte_carlo, network, f, key, 100, progress=False)
    pairs = counted(nuq.paired_draws, network, linear, key, 100, progress=False)
    if with_tables or batch_shape:
        counted(linear.corrected, pairs)

    if with_tables:
        counted(linear.gaussian_copula)
        counted(lambda: nuq.paired_statistics(pairs).quantile([0.1, 0.9]))
        counted(summary, linear, pairs, quantiles=[0.1, 0.9], tails=[0.1])
    return compiled


@pytest.mark.viz
@pytest.mark.parametrize(
    ("name", "batch_shape"), [*((name, ()) for name in NETWORKS), ("function", (5,))]
)
def test_a_second_call_compiles_nothing(name, batch_shape):
    # What comes after the pairs does not see the network.
    options = {"with_tables": name == "function" and not batch_shape}
    first, second = (
        programs_of(NETWORKS[name](seed), seed, batch_shape, **options) for seed in (0, 1)
    )
    assert first["monte_carlo"]
    assert second == {call: [] for call in first}


def test_weights_that_change_in_place_change_the_answer():
    network, operator = flax_network(0), Operator(0)
    f = nuq.Input.box(np.zeros(NUM_INPUTS, np.float32), half_width=0.5)

    def results(net):
        draws = nuq.monte_carlo(net, f, jax.random.key(0), 50, progress=False)
        return draws, nuq.linearize(net, f).jacobian

    before = results(network), results(operator.apply)
    last = network.layers[-1]
    last.kernel = nnx.Param(2 * last.kernel[...])
    operator.output = 2 * operator.output
    with counted_compilations() as programs:
        after = results(network), results(operator.apply)
    assert programs == []
    jax.tree.map(lambda b, a: np.testing.assert_allclose(a, 2 * b, rtol=1e-5), before, after)
