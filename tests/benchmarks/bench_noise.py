"""Noise on corrected distributions: time of values and gradients in the noise."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import nn_uq_dist as nuq
from nn_uq_dist.distributions import NoisyMarginal
from tests.benchmarks._networks import VARYING, operator_and_box
from tests.benchmarks._timing import print_timings, time_interleaved

PAIRS, POINTS = 1000, 40


def main():
    """Print the table, for the outputs of a trained operator that vary."""
    net, f = operator_and_box("nonlinear_5", 1.5)
    lin = nuq.linearize(net, f)
    pairs = nuq.paired_draws(net, lin, jax.random.key(0), PAIRS, progress=False)
    distribution = lin.corrected(pairs).marginals()[VARYING]
    levels = (np.arange(POINTS, dtype=np.float32) + 0.5) / POINTS
    y, scale = distribution.icdf(jnp.asarray(levels[:, None])), jnp.sqrt(distribution.variance)

    def without(shift):
        return distribution.log_prob(y + shift).sum()

    def noisy(sigma):
        return NoisyMarginal(distribution, sigma * scale).log_prob(y).sum()

    calls = {}
    for name, function, at in (("without noise", without, 0.0), ("with noise", noisy, 0.3)):
        calls[name] = partial(jax.jit(function), jnp.float32(at))
        calls[f"gradient, {name}"] = partial(jax.jit(jax.value_and_grad(function)), jnp.float32(at))
    print_timings(time_interleaved(calls), relative_to="gradient, without noise")


if __name__ == "__main__":
    main()
