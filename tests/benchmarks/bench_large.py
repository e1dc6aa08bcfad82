"""Large networks: time and memory from the Jacobian to log densities, one process per case."""

import sys

import jax
import jax.numpy as jnp
import numpy as np

import nn_uq_dist as nuq
from tests.benchmarks._command_line import head, row
from tests.benchmarks._networks import random_network
from tests.benchmarks._timing import first_and_later, peak_megabytes, run_alone

NUM_POINTS = 100
# Inputs, outputs, and whether the inputs are uniform.
MARGINALS = {
    "150,528 uniform inputs, 10 outputs": (150_528, 10, True),
    "150,528 normal inputs, 10 outputs": (150_528, 10, False),
    "20,000 uniform inputs, 1,000 outputs": (20_000, 1_000, True),
    "20,000 normal inputs, 1,000 outputs": (20_000, 1_000, False),
    "3 uniform inputs, 10,000 outputs": (3, 10_000, True),
}
BATCH = "10,000 test points, 12-64-64-3"
JOINT = "joint of 2,000 outputs, 50 inputs"


def linearized(sizes, *, is_uniform=True, batch=()):
    """The tangent at random means, about which inputs vary by a tenth; its time; memory before."""
    net = random_network(0, sizes, dtype=np.float32)
    loc = np.random.default_rng(1).standard_normal((*batch, sizes[0]), np.float32)
    scale = jnp.full(sizes[0], 0.1)
    f = nuq.Input.box(loc, half_width=scale) if is_uniform else nuq.Input.normal(loc, scale)
    before = peak_megabytes()
    return *timed(lambda: nuq.linearize(net, f)), before


def timed(call):
    """The result, and the seconds of the first and of the best of three more calls."""
    result, first, later = first_and_later(call, 4)
    return result, f"{first:.2f} / {later:.3f}"


def of_marginals(num_inputs, num_outputs, is_uniform):
    """Tangent, marginals, and log densities of points within three standard deviations."""
    linear, took, before = linearized([num_inputs, 64, num_outputs], is_uniform=is_uniform)
    marginals, making = timed(linear.marginals)
    steps = jnp.linspace(-3, 3, NUM_POINTS)[:, None]
    points = jnp.clip(marginals.mean + steps * marginals.variance**0.5, *marginals.bounds)
    logs, density = timed(lambda: marginals.log_prob(points))
    assert not jnp.isnan(logs).any()
    return linear, before, took, making, density


def of_batch():
    """Tangents and marginals of many test points, and the density of an observation of each."""
    linear, took, before = linearized([12, 64, 64, 3], batch=(10_000,))
    marginals, making = timed(linear.marginals)
    points = marginals.mean + 0.5 * marginals.variance**0.5
    _, density = timed(lambda: marginals.log_prob(points))
    return linear, before, took, making, density


def of_joint():
    """The joint distribution with noise, draws of it, and their log densities."""
    linear, took, before = linearized([50, 64, 2_000])
    joint, making = timed(lambda: linear.joint(noise_scale=0.1))
    draws, drawing = timed(lambda: joint.sample(jax.random.key(0), (NUM_POINTS,)))
    logs, density = timed(lambda: joint.log_prob(draws))
    assert jnp.isfinite(logs).all()
    return linear, before, took, making, f"{density}, draws {drawing}"


def print_row(name):
    """One row, measured in this process; the memory is what was added since the network stood."""
    if name in MARGINALS:
        linear, before, *cells = of_marginals(*MARGINALS[name])
    else:
        linear, before, *cells = of_batch() if name == BATCH else of_joint()
    peak = peak_megabytes() - before
    row(name, *cells, f"{linear.jacobian.nbytes / 2**20:.0f}", f"{peak:.0f}")


def main():
    """All rows, a process each."""
    print(f"\n## Large networks, float32, {NUM_POINTS} points for each output\n")
    print("Seconds of the first call / of a later one.")
    memory = "Jacobian, MB", "peak memory, MB"
    head("case", "`linearize`", "distribution", "`log_prob`", *memory)
    for name in (*MARGINALS, BATCH, JOINT):
        print(run_alone(__spec__.name, name), flush=True)


if __name__ == "__main__":
    if sys.argv[1:]:
        print_row(sys.argv[1])
    else:
        main()
