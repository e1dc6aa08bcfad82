"""How long the first calls take: tracing, compiling and running, each in a fresh process.

``BENCH_ARGS=REVISION`` times the first calls of a git revision in the same run, in turns with those
of the working tree. Importing and the arrays of the inputs are not timed. The processes run this
file, with the package of a checkout on ``PYTHONPATH``, and use public names only.
"""

import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import nn_uq_dist as nuq

ROOT = Path(__file__).parents[2]
NUM_ROUNDS = 2
# What would hide compilation or change it.
SETTINGS = ("JAX_COMPILATION_CACHE_DIR", "JAX_DISABLE_MOST_OPTIMIZATIONS", "XLA_FLAGS")
NUM_INPUTS, NUM_OUTPUTS = 12, 12


def normal(*shape):
    """Numbers in the style of trained weights: normal, the same in each process."""
    return jnp.asarray(np.random.default_rng(sum(shape)).normal(size=shape), jnp.float32)


def trained_size_network():
    """A linearized network of 12 inputs, 64 hidden units and 12 outputs."""
    hidden = normal(64, NUM_INPUTS) / NUM_INPUTS**0.5
    out = normal(NUM_OUTPUTS, 64) / 8.0
    box = nuq.Input.box(jnp.ones(NUM_INPUTS), half_width=0.3)
    return nuq.linearize(lambda x: out @ jax.nn.leaky_relu(hidden @ x), box)


def log_densities(weights, x):
    """Of distributions of weighted sums of uniforms."""
    return nuq.LinearizedMarginal(jnp.zeros(weights.shape[:-1]), weights).log_prob(x)


def icdf():
    """Medians and intervals of the outputs of a network."""
    linearized, levels = trained_size_network(), jnp.array([[0.05], [0.5], [0.95]])
    return lambda: linearized.marginals().icdf(levels)


def joint():
    """The fit of the copula."""
    linearized = trained_size_network()
    return lambda: linearized.gaussian_copula().correlation_matrix


def joint_log_prob():
    """Its density; fit and draws come before."""
    distribution = trained_size_network().gaussian_copula()
    y = jax.block_until_ready(distribution.sample(jax.random.key(0), (100,)))
    return lambda: distribution.log_prob(y)


def readme():
    """The first example of the README of that checkout, with what it prints."""
    found = re.search(r"```python\n(.*?)```", Path("README.md").read_text(), re.DOTALL)
    code = compile(found[1], "README.md", "exec")
    return lambda: exec(code, {"__name__": "readme"})  # noqa: S102 (the repository's own example)


JOBS = {
    # Of a likelihood, with one observation of each distribution.
    "log_prob of 180 distributions of 12 weights": lambda: partial(
        log_densities, normal(180, 12), normal(180)
    ),
    "its gradient in the weights": lambda: partial(
        jax.grad(lambda *parts: log_densities(*parts).sum()), normal(180, 12), normal(180)
    ),
    "log_prob on a grid, 31 distributions x 1000 points": lambda: partial(
        log_densities, normal(31, 1, 31), jnp.linspace(-5.0, 5.0, 1000)
    ),
    "icdf of 12 outputs at 3 levels": icdf,
    "joint() of 12 outputs": joint,
    "joint().log_prob of 100 draws": joint_log_prob,
    "README example": readme,
}


def first_call(job):
    """Seconds of the job's call."""
    call = JOBS[job]()
    start = time.perf_counter()
    jax.block_until_ready(call())
    return time.perf_counter() - start


def in_fresh_process(checkout, job):
    """`first_call` of a job, with the package of one checkout."""
    environment = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    environment["PYTHONPATH"] = str(checkout)
    # The command is this interpreter and a module of the repository.
    child = subprocess.run(  # noqa: S603
        [sys.executable, __file__, "--child", job],
        cwd=checkout, env=environment, check=True, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    return float(child.stdout.splitlines()[-1])


def extract(revision, folder):
    """Write the files of a git revision of this repository into a folder."""
    # Revisions come from the command line of whoever runs this.
    command = ["git", "-C", str(ROOT), "archive", revision]
    archive = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout  # noqa: S603
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")


def table(checkouts, title):
    """Print first calls, the least disturbed of a few rounds of each checkout, in turns."""
    from tests.benchmarks._command_line import head, row

    print(f"\n## First calls{title}")
    head("job", "seconds", *["ratio"] * (len(checkouts) - 1))
    for job in JOBS:
        rounds = [[in_fresh_process(path, job) for path in checkouts] for _ in range(NUM_ROUNDS)]
        seconds = [min(calls) for calls in zip(*rounds, strict=True)]
        cells = " -> ".join(f"{value:.2f}" for value in seconds)
        row(job, cells, *(f"{after / seconds[0]:.2f}" for after in seconds[1:]))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        # On a line of its own, the last: the example prints too.
        print(f"\n{first_call(sys.argv[2])}")
    elif sys.argv[1:]:
        with tempfile.TemporaryDirectory() as folder:
            extract(sys.argv[1], folder)
            table([Path(folder), ROOT], f", {sys.argv[1]} -> working tree")
    else:
        table([ROOT], "")
