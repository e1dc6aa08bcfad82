"""The jobs of `bench_first_call`: one of them, once, in a process of its own.

Run as ``python _first_call_jobs.py JOB`` in the folder of a checkout that is on ``PYTHONPATH``;
without a job it counts the kernels of two programs. It imports nothing but public names, so that it
runs with earlier states of the package as well.
"""

import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.monitoring
import jax.numpy as jnp
import numpy as np

import nn_uq_dist as nuq

type Call = Callable[[], Any]

NUM_INPUTS, NUM_OUTPUTS = 12, 12


def normal(*shape: int) -> jax.Array:
    """Numbers in the style of trained weights: normal, the same in each process."""
    return jnp.asarray(np.random.default_rng(sum(shape)).normal(size=shape), jnp.float32)


def trained_size_network() -> nuq.Linearization:
    """A linearized network of 12 inputs, 64 hidden units and 12 outputs."""
    hidden = normal(64, NUM_INPUTS) / NUM_INPUTS**0.5
    out = normal(NUM_OUTPUTS, 64) / 8.0
    box = nuq.Input.box(jnp.ones(NUM_INPUTS), half_width=0.3)
    return nuq.linearize(lambda x: out @ jax.nn.leaky_relu(hidden @ x), box)


def log_prob() -> Call:
    """A batch of distributions with one observation each, as in a likelihood."""
    weights, x = normal(180, 12), normal(180)
    return lambda: nuq.LinearizedMarginal(jnp.zeros(180), weights).log_prob(x)


def gradient() -> Call:
    """The gradient of that likelihood in all weights."""
    weights, x = normal(180, 12), normal(180)

    def total(weights: jax.Array) -> jax.Array:
        return nuq.LinearizedMarginal(jnp.zeros(180), weights).log_prob(x).sum()

    return lambda: jax.grad(total)(weights)


def grid() -> Call:
    """Densities to be drawn: many points of few distributions."""
    weights, x = normal(31, 1, 31), jnp.linspace(-5.0, 5.0, 1000)
    return lambda: nuq.LinearizedMarginal(jnp.zeros((31, 1)), weights).log_prob(x)


def icdf() -> Call:
    """Medians and intervals of the outputs of a network."""
    linearized, levels = trained_size_network(), jnp.array([[0.05], [0.5], [0.95]])
    return lambda: linearized.marginals().icdf(levels)


def joint() -> Call:
    """The fit of the copula."""
    linearized = trained_size_network()
    return lambda: linearized.gaussian_copula().correlation_matrix


def joint_log_prob() -> Call:
    """Its density; fit and draws come before."""
    distribution = trained_size_network().gaussian_copula()
    y = jax.block_until_ready(distribution.sample(jax.random.key(0), (100,)))
    return lambda: distribution.log_prob(y)


def readme() -> Call:
    """The first example of the README of that checkout, with what it prints."""
    found = re.search(r"```python\n(.*?)```", Path("README.md").read_text(), re.DOTALL)
    if found is None:
        msg = "README.md must hold an example in a block ```python, got none"
        raise ValueError(msg)
    code = compile(found[1], "README.md", "exec")
    return lambda: exec(code, {"__name__": "readme"})  # noqa: S102 (the repository's own example)


JOBS: dict[str, Callable[[], Call]] = {
    "log_prob of 180 distributions of 12 weights": log_prob,
    "its gradient in the weights": gradient,
    "log_prob on a grid, 31 distributions x 1000 points": grid,
    "icdf of 12 outputs at 3 levels": icdf,
    "joint() of 12 outputs": joint,
    "joint().log_prob of 100 draws": joint_log_prob,
    "README example": readme,
}


def first_call(job: str) -> dict[str, float]:
    """Seconds, CPU seconds of all threads and number of compiled programs of the job's call."""
    call = JOBS[job]()
    programs = 0

    def count(event: str, _: float, **_details: object) -> None:
        nonlocal programs
        programs += event == "/jax/core/compile/backend_compile_duration"

    jax.monitoring.register_event_duration_secs_listener(count)
    start, cpu_start = time.perf_counter(), time.process_time()
    jax.block_until_ready(call())
    return {
        "seconds": time.perf_counter() - start,
        "cpu_seconds": time.process_time() - cpu_start,
        "programs": programs,
    }


def kernels() -> dict[str, int]:
    """Fused kernels of a likelihood with a noise scale, and of its gradient in all parameters.

    Nearly all of a first call is compilation, which takes about as long for each kernel, whatever
    it computes.
    """
    weights, x, scale = normal(180, 12), normal(180), jnp.float32(0.3)

    def value(weights: jax.Array, scale: jax.Array) -> jax.Array:
        return nuq.LinearizedMarginal(jnp.zeros(180), weights, scale).log_prob(x)

    def total(weights: jax.Array, scale: jax.Array) -> jax.Array:
        return value(weights, scale).sum()

    programs = {
        "value": jax.jit(value),
        "value and gradient": jax.jit(jax.value_and_grad(total, argnums=(0, 1))),
    }
    return {
        name: program.lower(weights, scale).compile().as_text().count(" fusion(")
        for name, program in programs.items()
    }


if __name__ == "__main__":
    # On a line of its own, the last: the example prints too.
    print("\n" + json.dumps(first_call(*sys.argv[1:]) if sys.argv[1:] else kernels()))
