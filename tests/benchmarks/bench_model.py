"""What a likelihood costs in a model, beside what a modeler would write instead.

Observations of 12 outputs of a network at measured inputs, which lie in a box of half-width beta,
with noise sigma. Values and gradients of log densities, their first calls and memory; then NUTS:
effective draws of beta and sigma, the fewer of them, for each second of CPU time. Peers are the
multivariate normal of the same covariance, and errors in variables: the true inputs as latent
variables of the network itself.
"""

import time
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, NUTS

import nn_uq_dist as nuq
from tests.benchmarks._command_line import head, print_tables, row
from tests.benchmarks._networks import apply, random_layers
from tests.benchmarks._timing import print_timings, time_interleaved
from tests.benchmarks.bench_regression import DISTRIBUTIONS

INPUTS, HIDDEN, OUTPUTS = 31, 128, 12
BETA, SIGMA = 0.5, 0.1
PEERS = {"Normal": "Normal", "marginals": "Normal"}


def problem(count):
    """Network, measured inputs and observed outputs of so many runs."""
    rng = np.random.default_rng(0)
    layers = random_layers(rng, [INPUTS, HIDDEN, HIDDEN, HIDDEN, OUTPUTS], gain=2**0.5, bias=0.1)
    network = partial(apply, layers, jax.nn.tanh)
    measured = jnp.asarray(rng.normal(size=(count, INPUTS)), jnp.float32)
    true = measured + BETA * jnp.asarray(rng.uniform(-1, 1, measured.shape), jnp.float32)
    noise = SIGMA * jnp.asarray(rng.normal(size=(count, OUTPUTS)), jnp.float32)
    return network, measured, jax.vmap(network)(true) + noise


def likelihoods(given):
    """Values, gradients in beta and sigma, first calls and memory of the program."""
    network, measured, y = problem(given.observations)
    unit = nuq.linearize(network, nuq.Input.box(measured, half_width=1.0))
    values, gradients, memory = {}, {}, {}
    for name, make in DISTRIBUTIONS.items():

        def density(beta, sigma, make=make):
            linear = nuq.Linearization(
                unit.loc, unit.jacobian, nuq.Input.box(measured, half_width=beta)
            )
            return make(linear, sigma).log_prob(y).sum()

        at = jnp.float32(BETA), jnp.float32(SIGMA)
        value, slope = jax.jit(density), jax.jit(jax.value_and_grad(density, argnums=(0, 1)))
        memory[name] = slope.lower(*at).compile().memory_analysis().temp_size_in_bytes / 1e6
        values[name], gradients[name] = partial(value, *at), partial(slope, *at)
    for title, calls in (("value", values), ("gradient", gradients)):
        timings = time_interleaved(calls, num_rounds=given.rounds)
        for peer in ("Normal", "MultivariateNormal"):
            kept = {k: t for k, t in timings.items() if PEERS.get(k, "MultivariateNormal") == peer}
            print(f"\n{title}, {given.observations} observations")
            print_timings(kept, relative_to=peer)
    head("gradient", "MB of the program")
    for name, size in memory.items():
        row(name, f"{size:.1f}")


def sampling(given):
    """Effective draws a CPU second in NUTS, and CPU seconds of a first call."""
    network, measured, y = problem(given.observations)
    unit = nuq.linearize(network, nuq.Input.box(measured, half_width=1.0))

    def parameters():
        beta = numpyro.sample("beta", dist.LogNormal(-1.0, 0.5))
        return beta, numpyro.sample("sigma", dist.LogNormal(-2.0, 0.5))

    def marginalized(make):
        beta, sigma = parameters()
        box = nuq.Input.box(measured, half_width=beta)
        linear = nuq.Linearization(unit.loc, unit.jacobian, box)
        outputs = make(linear, sigma)
        outputs = outputs if outputs.event_dim else outputs.to_event(1)
        with numpyro.plate("runs", len(y)):
            numpyro.sample("y", outputs, obs=y)

    def errors_in_variables():
        beta, sigma = parameters()
        with numpyro.plate("runs", len(y)):
            place = numpyro.sample("place", dist.Uniform(-1, 1).expand([INPUTS]).to_event(1))
            outputs = jax.vmap(network)(measured + beta * place)
            numpyro.sample("y", dist.Normal(outputs, sigma).to_event(1), obs=y)

    models = {
        name: partial(marginalized, DISTRIBUTIONS[name])
        for name in ("MultivariateNormal", "joint", "marginals")
    }
    models["errors in variables"] = errors_in_variables
    head("model", "fewest effective draws a CPU second", "first call, CPU s", "beta", "sigma")
    for name, model in models.items():
        mcmc = MCMC(NUTS(model), num_warmup=1, num_samples=1, progress_bar=False)
        start = time.process_time()
        mcmc.run(jax.random.key(0))
        first = time.process_time() - start
        mcmc = MCMC(
            NUTS(model), num_warmup=given.draws, num_samples=given.draws, progress_bar=False
        )
        mcmc.warmup(jax.random.key(1))
        start = time.process_time()
        mcmc.run(jax.random.key(2))
        jax.block_until_ready(mcmc.get_samples())
        seconds = time.process_time() - start
        draws = [np.asarray(mcmc.get_samples()[k])[None] for k in ("beta", "sigma")]
        fewest = min(effective_sample_size(one) for one in draws)
        cells = (f"{one.mean():.3f} +- {one.std():.3f}" for one in draws)
        row(name, f"{fewest / seconds:.3g}", f"{first:.1f}", *cells)


if __name__ == "__main__":
    print_tables((likelihoods, sampling), observations=100, rounds=9, draws=500)
