"""Speed of the distribution's log density, in ratios to OpenTURNS in the same run.

Run with ``python -m tests.benchmarks.bench_uniform_sum`` or ``make bench``.
"""

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

from nn_uq_dist import uniform_sum
from tests.benchmarks._timing import markdown_table, peak_megabytes, run_alone, time_interleaved

NUM_LAWS, NUM_POINTS, NUM_WEIGHTS = 31, 1000, 31
NODES = 16  # of a typical distribution of 31 weights in float32
OPERATIONS = 10  # one rotation and one complex multiplication for each factor


def grid_job() -> None:
    """31 distributions of 31 weights, 1000 points each, float64."""
    import openturns as ot

    rng = np.random.default_rng(0)
    weights = rng.normal(size=(NUM_LAWS, NUM_WEIGHTS))
    reach = 0.95 * np.abs(weights).sum(axis=1)
    points = np.linspace(-1.0, 1.0, NUM_POINTS) * reach[:, None]

    def openturns_grid() -> None:
        for row, distribution in zip(points, weights, strict=True):
            combination = ot.LinearCombinationDistribution(
                [ot.Uniform(-1.0, 1.0)] * NUM_WEIGHTS, distribution.tolist()
            )
            combination.computeLogPDF(row[:, None])

    with jax.enable_x64(True):
        x, w = jnp.asarray(points), jnp.asarray(weights)[:, None, :]
        density = jax.jit(uniform_sum.logpdf)
        survival = jax.jit(uniform_sum.logsf)
        timings = time_interleaved(
            {
                "OpenTURNS computeLogPDF": openturns_grid,
                "logpdf": lambda: density(x, w),
                "logsf": lambda: survival(x, w),
            }
        )
    print("\n## 31 distributions of 31 weights, 1000 points each, float64\n")
    print(markdown_table(timings, relative_to="OpenTURNS computeLogPDF"))


def own_distributions() -> None:
    """31,000 points, each with its own 31 weights, float32."""
    import openturns as ot

    total = NUM_LAWS * NUM_POINTS
    rng = np.random.default_rng(1)
    weights = rng.normal(size=(total, NUM_WEIGHTS)).astype(np.float32)
    deviation = np.sqrt((weights**2).sum(axis=1) / 3)
    points = (rng.normal(size=total) * deviation).astype(np.float32)
    uniforms = [ot.Uniform(-1.0, 1.0)] * NUM_WEIGHTS
    rows = weights.astype(float).tolist()

    def openturns_points() -> None:
        for x, distribution in zip(points.tolist(), rows, strict=True):
            ot.LinearCombinationDistribution(uniforms, distribution).computeLogPDF(x)

    x, w = jnp.asarray(points), jnp.asarray(weights)
    value = jax.jit(uniform_sum.logpdf)
    gradient = jax.jit(
        jax.value_and_grad(lambda x, w: jnp.sum(uniform_sum.logpdf(x, w)), argnums=(0, 1))
    )
    matrix = jnp.ones((2048, 2048), jnp.float32)
    multiply = jax.jit(jnp.matmul)
    timings = time_interleaved(
        {
            "logpdf": lambda: value(x, w),
            "logpdf and its gradient": lambda: gradient(x, w),
            "matrix product 2048^3 (for the floor)": lambda: multiply(matrix, matrix),
        }
    )
    start = time.perf_counter()
    openturns_points()
    peer = time.perf_counter() - start
    print("\n## 31,000 points, each with its own 31 weights, float32\n")
    print(markdown_table(timings, relative_to="logpdf"))
    ours = timings["logpdf"].median
    rate = 2 * 2048**3 / timings["matrix product 2048^3 (for the floor)"].median
    floor = total * NUM_WEIGHTS * NODES * OPERATIONS / rate
    print(
        f"\nOpenTURNS, one distribution at a time: {peer:.2f} s; logpdf takes {ours / peer:.5f} of "
        "that."
    )
    print(
        f"Arithmetic floor ({OPERATIONS} operations for each of {NUM_WEIGHTS} x {NODES} factors at "
        f"the matrix product's {rate / 1e9:.0f} GFLOP/s): {floor * 1e3:.1f} ms, "
        f"{floor / ours:.1%} of it reached."
    )


def many_weights() -> None:
    """One distribution of 3072 weights, 1000 points."""
    weights = jax.random.normal(jax.random.key(2), (3072,))
    x = jnp.linspace(-0.9, 0.9, 1000) * jnp.sum(jnp.abs(weights))
    density = jax.jit(uniform_sum.logpdf)
    timings = time_interleaved({"logpdf, float32": lambda: density(x, weights)}, num_rounds=3)
    print("\n## One distribution of 3072 weights, 1000 points\n")
    print(markdown_table(timings, relative_to="logpdf, float32"))


def first_calls() -> None:
    """Trace and compile of logpdf on a grid of 31 distributions x 1000 points, by number of
    weights."""
    print("\n## First call of logpdf on a (31, 1000) grid, seconds\n")
    print("| weights | float32 | float64 |\n|---|---|---|")
    for num_weights in (2, 4, 8, 31, 120, 500):
        row = []
        for x64 in (False, True):
            with jax.enable_x64(x64):
                weights = jnp.asarray(np.random.default_rng(3).normal(size=(31, 1, num_weights)))
                x = jnp.linspace(-1.0, 1.0, 1000)
                jax.block_until_ready((x, weights))
                start = time.perf_counter()
                jax.block_until_ready(jax.jit(uniform_sum.logpdf)(x, weights))
                row.append(time.perf_counter() - start)
        print(f"| {num_weights} | {row[0]:.2f} | {row[1]:.2f} |")


def _memory_child() -> None:
    rng = np.random.default_rng(0)
    weights = np.empty((1_000_000, NUM_WEIGHTS), np.float32)
    for block in np.array_split(weights, 100):
        block[...] = rng.normal(size=block.shape)
    x = jnp.asarray(rng.normal(size=len(weights)).astype(np.float32))
    w = jnp.asarray(weights)
    density = jax.jit(uniform_sum.logpdf)
    before = peak_megabytes()
    start = time.perf_counter()
    jax.block_until_ready(density(x, w))
    seconds = time.perf_counter() - start
    growth = peak_megabytes() - before
    print(f"peak memory grew by {growth:.0f} MB, {seconds:.1f} s with compilation")


def memory() -> None:
    """One million points, each with its own 31 weights, float32, in a process of its own."""
    print("\n## One million points, each with its own 31 weights, float32\n", flush=True)
    print(run_alone(__spec__.name, "memory"))


if __name__ == "__main__":
    if sys.argv[1:] == ["memory"]:
        _memory_child()
    else:
        print(f"JAX {jax.__version__}, {jax.devices()[0].platform}")
        grid_job()
        own_distributions()
        many_weights()
        first_calls()
        memory()
