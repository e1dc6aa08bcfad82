"""What corrected models, their tables and figures cost: by number of pairs, for one point or fifty.

Seconds of the first and of the fastest of three later calls, in float32.
"""

from functools import partial

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt

import nn_uq_dist as nuq
from tests.benchmarks._command_line import head, print_tables, row
from tests.benchmarks._networks import VARYING, operator_and_box, random_network
from tests.benchmarks._timing import first_and_later

NUM_CALLS = 4
OPTIONS = {"progress": False}


def pairs(_):
    """The operator of five layers at half-width 1.5, its 30 outputs that vary."""
    whole, f = operator_and_box("nonlinear_5", 1.5)

    def network(x):
        return whole(x)[VARYING]

    lin, key = nuq.linearize(network, f), jax.random.key(0)
    head("pairs", "first call", "later calls", left=0)
    for count in (100, 1000, 10_000):

        def corrected(count=count):
            drawn = nuq.paired_draws(network, lin, key, count, **OPTIONS)
            return lin.corrected(drawn).marginals().cdf(lin.loc)

        _, first, later = first_and_later(corrected, NUM_CALLS)
        row(f"{count:,}", f"{first:.2f} s", f"{later:.2f} s")


def calls(network, num_points):
    """The calls for so many points, each made with the results of those before."""
    center = jax.random.normal(jax.random.key(0), (num_points, 12))
    f = nuq.Input.box(center[0] if num_points == 1 else center, half_width=0.3)
    lin, key = nuq.linearize(network, f), jax.random.key(1)
    drawn = nuq.paired_draws(network, lin, key, 1000, **OPTIONS)
    fresh = nuq.paired_draws(network, lin, jax.random.key(2), 1000, **OPTIONS)
    model = lin.corrected(drawn)
    plot = nuq.plots.plot_marginals if num_points == 1 else partial(nuq.plots.plot_band, limits=0.5)

    def figure():
        plt.close(plot(model, fresh))

    return {
        "`linearize`": lambda: nuq.linearize(network, f).jacobian,
        "`paired_draws`": lambda: nuq.paired_draws(network, lin, key, 1000, **OPTIONS).network,
        "`corrected`, its distribution function": lambda: (
            lin.corrected(drawn).marginals().cdf(lin.loc)
        ),
        "`corrected`, its mean": lambda: lin.corrected(drawn).marginals().mean,
        "`diagnostics.summary`": lambda: nuq.diagnostics.summary(model, fresh),
        "`plot_band` (one point: `plot_marginals`)": figure,
    }


def points(_):
    """One output of a network with 12 inputs and two layers of 64, 1,000 pairs."""
    network = random_network(0, [12, 64, 64, 1])
    seconds = [
        {name: first_and_later(call, NUM_CALLS)[2] for name, call in calls(network, count).items()}
        for count in (1, 50)
    ]
    head("later call", "one point", "fifty points", "ratio")
    for name, one in seconds[0].items():
        many = seconds[1][name]
        row(name, f"{one:.3f} s", f"{many:.3f} s", f"{many / one:.1f}")


if __name__ == "__main__":
    plt.switch_backend("agg")
    jnp.zeros(1).block_until_ready()  # start-up is not part of a first call
    print_tables((pairs, points))
