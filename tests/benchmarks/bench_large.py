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
JOINT = "joint of 2,000 outputs, 50 inputs"
# Sizes of the network, whether its inputs are uniform, and test points.
CASES = {
    "150,528 uniform inputs, 10 outputs": ((150_528, 64, 10), True, ()),
    "150,528 normal inputs, 10 outputs": ((150_528, 64, 10), False, ()),
    "20,000 uniform inputs, 1,000 outputs": ((20_000, 64, 1_000), True, ()),
    "20,000 normal inputs, 1,000 outputs": ((20_000, 64, 1_000), False, ()),
    "3 uniform inputs, 10,000 outputs": ((3, 64, 10_000), True, ()),
    "10,000 test points, 12-64-64-3": ((12, 64, 64, 3), True, (10_000,)),
    JOINT: ((50, 64, 2_000), True, ()),
}


def timed(call):
    """The result, and the seconds of the first and of the best of three more calls."""
    result, first, later = first_and_later(call, 4)
    return result, f"{first:.2f} / {later:.3f}"


def print_row(name):
    """One row, measured in this process; the memory is what was added since the network stood."""
    sizes, is_uniform, batch = CASES[name]
    net = random_network(0, sizes, dtype=np.float32)
    loc = np.random.default_rng(1).standard_normal((*batch, sizes[0]), np.float32)
    scale = jnp.full(sizes[0], 0.1)
    f = nuq.Input.box(loc, half_width=scale) if is_uniform else nuq.Input.normal(loc, scale)
    before = peak_megabytes()
    linear, took = timed(lambda: nuq.linearize(net, f))
    if name == JOINT:
        distribution, making = timed(lambda: linear.joint(noise_scale=0.1))
        points, drawing = timed(lambda: distribution.sample(jax.random.key(0), (NUM_POINTS,)))
    else:
        distribution, making = timed(linear.marginals)
        # Of test points an observation each, else points within three standard deviations.
        steps = 0.5 if batch else jnp.linspace(-3, 3, NUM_POINTS)[:, None]
        sd = distribution.variance**0.5
        points = jnp.clip(distribution.mean + steps * sd, *distribution.bounds)
    logs, density = timed(lambda: distribution.log_prob(points))
    assert not jnp.isnan(logs).any()
    density += f", draws {drawing}" if name == JOINT else ""
    peak = f"{peak_megabytes() - before:.0f}"
    row(name, took, making, density, f"{linear.jacobian.nbytes / 2**20:.0f}", peak)


def main():
    """All rows, a process each."""
    print(f"\n## Large networks, float32, {NUM_POINTS} points for each output\n")
    print("Seconds of the first call / of a later one.")
    memory = "Jacobian, MB", "peak memory, MB"
    head("case", "`linearize`", "distribution", "`log_prob`", *memory)
    for name in CASES:
        print(run_alone(__spec__.name, name), flush=True)


if __name__ == "__main__":
    if sys.argv[1:]:
        print_row(sys.argv[1])
    else:
        main()
