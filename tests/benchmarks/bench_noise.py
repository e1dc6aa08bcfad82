"""Noise on corrected distributions: time of values and gradients, and distance to draws.

``--draws 0`` for times alone.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import nn_uq_dist as nuq
from nn_uq_dist.distributions import NoisyMarginal
from tests.benchmarks._command_line import head, options, row
from tests.benchmarks._networks import VARYING, operator_and_box
from tests.benchmarks._timing import print_timings, time_interleaved

NETWORK, HALF_WIDTH, PAIRS, POINTS = "nonlinear_5", 1.5, 1000, 40
SHARES = (1e-3, 0.03, 0.3, 1.0, 3.0)  # of the noise, in standard deviations


def corrected_marginals():
    """The corrected distributions of the outputs of a trained operator that vary."""
    net, f = operator_and_box(NETWORK, HALF_WIDTH)
    lin = nuq.linearize(net, f)
    pairs = nuq.paired_draws(net, lin, jax.random.key(0), PAIRS, progress=False)
    return lin.corrected(pairs).marginals()[VARYING]


def costs(distribution):
    """Times of a gradient in the noise, or of the values, where distribution and map are known or
    traced."""
    levels = (np.arange(POINTS, dtype=np.float32) + 0.5) / POINTS
    y = distribution.icdf(jnp.asarray(levels[:, None]))
    scale = jnp.sqrt(distribution.variance)

    def without(shift, distribution):
        return distribution.log_prob(y + shift).sum()

    def noisy(sigma, distribution):
        return NoisyMarginal(distribution, sigma * scale).log_prob(y).sum()

    def known(function):
        return lambda number: function(number, distribution)

    def slope_in_both(function):
        return jax.value_and_grad(function, argnums=(0, 1), allow_int=True)

    one, zero = jnp.float32(0.3), jnp.float32(0.0)
    calls = {
        "without noise": (known(without), zero),
        "known": (known(noisy), one),
        "traced": (noisy, one, distribution),
        "gradient, without noise": (jax.value_and_grad(known(without)), zero),
        "gradient, known": (jax.value_and_grad(known(noisy)), one),
        "gradient, without noise, of distribution and map": (
            slope_in_both(without), zero, distribution,
        ),
        "gradient, traced, of distribution and map": (slope_in_both(noisy), one, distribution),
    }  # fmt: skip
    timings = time_interleaved(
        {name: partial(jax.jit(function), *given) for name, (function, *given) in calls.items()}
    )
    print_timings(timings, relative_to="gradient, without noise")


def distance(distribution, draws):
    """Print the largest error of a distribution function against draws."""
    normal = np.random.default_rng(0).standard_normal(draws)
    base = np.asarray(distribution.sample(jax.random.key(1), (draws,)), np.float64)
    head("noise/sd", "largest error of the distribution function", "by chance, 95%", left=0)
    for share in SHARES:
        sigma = share * float(distribution.variance) ** 0.5
        step = max(1, draws // 2000)
        ordered = np.sort(base + sigma * normal)[::step]
        found = np.asarray(NoisyMarginal(distribution, sigma).cdf(jnp.asarray(ordered)))
        error = np.abs(found - np.arange(0, draws, step) / draws).max()
        row(f"{share:g}", f"{error:.1e}", f"{1.36 / np.sqrt(draws):.1e}")


def main():
    """Print tables."""
    given = options(draws=10_000_000)
    distribution = corrected_marginals()
    costs(distribution)
    if given.draws:
        distance(distribution[10], given.draws)


if __name__ == "__main__":
    main()
