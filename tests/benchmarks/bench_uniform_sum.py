"""Speed of the distribution's log density, in ratios to OpenTURNS in the same run."""

import sys

import jax
import jax.numpy as jnp
import numpy as np

from nn_uq_dist import uniform_sum
from tests.benchmarks._openturns_peers import combination
from tests.benchmarks._timing import (
    peak_megabytes,
    print_timings,
    run_alone,
    time_interleaved,
    timed,
)

NUM_DISTRIBUTIONS, NUM_POINTS, NUM_WEIGHTS = 31, 1000, 31


def grid_job():
    """31 distributions of 31 weights, 1,000 points each, float64."""
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(NUM_DISTRIBUTIONS, NUM_WEIGHTS))
    points = np.linspace(-0.95, 0.95, NUM_POINTS) * np.abs(weights).sum(axis=1)[:, None]

    def openturns():
        for line, one in zip(points, weights, strict=True):
            combination(one).computeLogPDF(line[:, None])

    peer = "OpenTURNS computeLogPDF"
    with jax.enable_x64(True):
        x, w = jnp.asarray(points), jnp.asarray(weights)[:, None, :]
        density = jax.jit(uniform_sum.logpdf)
        timings = time_interleaved({peer: openturns, "logpdf": lambda: density(x, w)})
    print("\n## 31 distributions of 31 weights, 1,000 points each, float64")
    print_timings(timings, relative_to=peer)


def own_distributions():
    """31,000 points, each with its own 31 weights, float32."""
    import openturns as ot

    total = NUM_DISTRIBUTIONS * NUM_POINTS
    rng = np.random.default_rng(1)
    weights = rng.normal(size=(total, NUM_WEIGHTS)).astype(np.float32)
    deviation = np.sqrt((weights**2).sum(axis=1) / 3)
    points = (rng.normal(size=total) * deviation).astype(np.float32)
    uniforms, rows = [ot.Uniform(-1.0, 1.0)] * NUM_WEIGHTS, weights.astype(float).tolist()

    def openturns():
        for x, one in zip(points.tolist(), rows, strict=True):
            ot.LinearCombinationDistribution(uniforms, one).computeLogPDF(x)

    x, w = jnp.asarray(points), jnp.asarray(weights)
    value = jax.jit(uniform_sum.logpdf)
    gradient = jax.jit(
        jax.value_and_grad(lambda x, w: jnp.sum(uniform_sum.logpdf(x, w)), argnums=(0, 1))
    )
    timings = time_interleaved(
        {"logpdf": lambda: value(x, w), "logpdf and its gradient": lambda: gradient(x, w)}
    )
    _, peer = timed(openturns)
    print("\n## 31,000 points, each with its own 31 weights, float32")
    print_timings(timings, relative_to="logpdf")
    share = timings["logpdf"].median / peer
    print(
        f"\nOpenTURNS, one distribution at a time: {peer:.2f} s; logpdf takes {share:.5f} of that"
    )


def many_weights():
    """One distribution of 3072 weights, 1000 points."""
    weights = jax.random.normal(jax.random.key(2), (3072,))
    x = jnp.linspace(-0.9, 0.9, 1000) * jnp.sum(jnp.abs(weights))
    density = jax.jit(uniform_sum.logpdf)
    timings = time_interleaved({"logpdf, float32": lambda: density(x, weights)}, num_rounds=3)
    print("\n## One distribution of 3072 weights, 1000 points")
    print_timings(timings, relative_to="logpdf, float32")


def memory_alone():
    """One million points, each with its own 31 weights."""
    rng = np.random.default_rng(0)
    weights = np.empty((1_000_000, NUM_WEIGHTS), np.float32)
    for block in np.array_split(weights, 100):
        block[...] = rng.normal(size=block.shape)
    x = jnp.asarray(rng.normal(size=len(weights)).astype(np.float32))
    w = jnp.asarray(weights)
    density = jax.jit(uniform_sum.logpdf)
    before = peak_megabytes()
    _, seconds = timed(lambda: density(x, w))
    growth = peak_megabytes() - before
    print(f"peak memory grew by {growth:.0f} MB, {seconds:.1f} s with compilation")


def main():
    """All jobs, that of the memory in a process of its own."""
    print(f"JAX {jax.__version__}, {jax.devices()[0].platform}")
    grid_job()
    own_distributions()
    many_weights()
    print("\n## One million points, each with its own 31 weights, float32\n", flush=True)
    print(run_alone(__spec__.name, "memory"))


if __name__ == "__main__":
    if sys.argv[1:] == ["memory"]:
        memory_alone()
    else:
        main()
