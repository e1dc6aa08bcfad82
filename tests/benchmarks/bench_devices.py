"""Accuracy and speed of the main results on the device that JAX uses, such as a GPU.

Run it once as is and once with ``JAX_PLATFORMS=cpu``. Accuracy is against the bank of 40-digit
references, and of the joint distribution in float32 against float64; times are of the first and of
later calls.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

import nn_uq_dist as nuq
from tests.bank.loader import float32_cases, float64_cases
from tests.benchmarks._command_line import row
from tests.benchmarks._timing import first_and_later
from tests.benchmarks.bench_accuracy import ours, relative_error

REPEATS = 7
NUM_OUTPUTS, NUM_INPUTS = 6, 31


def bank():
    """Worst errors over the bank."""
    for name, cases in (("float32", float32_cases()), ("float64", float64_cases())):
        with jax.enable_x64(name == "float64"):
            results = ours(cases)
        pairs = [(results[case.name], (case.log_density, case.log_survival)) for case in cases]
        for k, label in enumerate(("log density", "log survival")):
            worst = max(relative_error(found[k], exact[k]).max() for found, exact in pairs)
            row(f"{name}, {label}, worst of {len(cases)} cases", f"{worst:.0e}")


def joint_of(dtype, noise):
    """A joint distribution with noise in parts of the outputs' standard deviation, and draws."""
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((NUM_OUTPUTS, 12)).astype(np.float32)
    scale = (noise * np.sqrt((weights**2).sum(axis=1) / 3)).astype(np.float32)
    rows = rng.uniform(-1, 1, (2000, 12)).astype(np.float32) @ weights.T
    rows = rows + scale * rng.standard_normal(rows.shape).astype(np.float32)
    parts = (np.zeros(NUM_OUTPUTS), weights, np.diag(scale))
    joint = nuq.LinearizedJoint(*(jnp.asarray(part, dtype) for part in parts))
    return joint, jnp.asarray(rows, dtype)


def joints():
    """Largest error of log densities in float32 against float64."""
    for noise in (0.3, 1e-2, 1e-4):
        logs = []
        for dtype in ("float32", "float64"):
            with jax.enable_x64(dtype == "float64"):
                joint, rows = joint_of(dtype, noise)
                logs.append(np.asarray(jax.jit(lambda d, y: d.log_prob(y))(joint, rows), float))
        off = np.abs(logs[0] - logs[1])
        row(
            f"joint, noise {noise:g}, float32: median, worst; NaN of {len(off)}",
            f"{np.nanmedian(off):.0e}, {np.nanmax(off):.0e}; {np.isnan(off).sum()}",
        )


def jobs(dtype):
    """Calls to be timed."""
    rng = np.random.default_rng(1)

    def array(*shape):
        return jnp.asarray(rng.standard_normal(shape), dtype)

    hidden = [array(256, NUM_INPUTS) / 6, array(256, 256) / 16]
    last = array(NUM_OUTPUTS, 256) / 16

    def network(x):
        for weights in hidden:
            x = jax.nn.leaky_relu(weights @ x)
        return last @ x

    one = nuq.Input.box(jnp.ones(NUM_INPUTS, dtype), half_width=jnp.asarray(0.1, dtype))
    many = nuq.Input.box(array(10_000, NUM_INPUTS), half_width=jnp.asarray(0.1, dtype))
    grid, points = array(NUM_OUTPUTS * 5, 1, NUM_INPUTS), jnp.linspace(-5, 5, 1000, dtype=dtype)
    rows, values = array(12_000, 12), array(12_000)
    joint, draws = joint_of(dtype, 0.1)
    level, zeros = jnp.asarray(0.95, dtype), jnp.zeros(NUM_OUTPUTS, dtype)
    lin, key = nuq.linearize(network, one), jax.random.key(0)
    limit = float(lin.loc[0] + 4 * lin.marginals().standard_deviation[0])

    def marginal(w):
        return nuq.LinearizedMarginal(jnp.zeros(w.shape[:-1], dtype), w)

    @jax.jit
    @jax.grad
    def joint_gradient(s):
        noise = math.sqrt(0.1) * jnp.eye(NUM_OUTPUTS, dtype=dtype)
        return nuq.LinearizedJoint(joint.loc, s * joint.weights, noise).log_prob(draws).sum()

    def corrected():
        pairs = nuq.paired_draws(network, lin, key, 1000, progress=False)
        return lin.corrected(pairs).marginals().mean

    density = jax.jit(lambda w, x: marginal(w).log_prob(x))
    total = jax.jit(jax.value_and_grad(lambda w: marginal(w).log_prob(values).sum()))
    quantiles = jax.jit(lambda w: marginal(w).icdf(level))
    linear = jax.jit(lambda f: nuq.linearize(network, f).marginals().log_sf(zeros))
    return {
        "log_prob, 30 distributions x 1,000 points x 31": lambda: density(grid, points),
        "log_prob and gradient, 12,000 x 12": lambda: total(rows),
        "icdf, 12,000 x 12": lambda: quantiles(rows),
        "joint log_prob, gradient, 2,000 x 6 x 12": lambda: joint_gradient(jnp.asarray(1.0, dtype)),
        "linearize 10,000 inputs, log_sf of 6 outputs": lambda: linear(many),
        "monte_carlo, 1,000,000 runs": lambda: nuq.monte_carlo(
            network, one, key, 1_000_000, progress=False
        ),
        "corrected, 1,000 pairs, 6 outputs": corrected,
        "failure_probability, 10,000 runs": lambda: (
            nuq.failure_probability(network, one, key, limit, output=0, progress=False).probability
        ),
    }


def main():
    """Print both tables."""
    print(jax.devices(), jax.__version__)
    bank()
    joints()
    for name in ("float32", "float64"):
        with jax.enable_x64(name == "float64"):
            for label, call in jobs(jnp.dtype(name)).items():
                _, first, later = first_and_later(call, REPEATS)
                row(label, name, f"{first:.2f} s", f"{1e3 * later:.1f} ms")


if __name__ == "__main__":
    main()
