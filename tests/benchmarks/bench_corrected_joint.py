"""Joint distributions made from paired draws: log scores of new noisy outputs of the network.

``--networks nonlinear_5 --half-widths 3 --keys 2`` for a short run, ``--outputs 30`` for all
outputs that vary, ``--random 2 4`` for random tanh networks of so many inputs. The normal
distribution has the mean and the covariance of a million draws, with other keys.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import nn_uq_dist as nuq
from tests.benchmarks._command_line import head, options, row
from tests.benchmarks._networks import VARYING, operator_and_box, random_network

NETWORKS = ("linear_5", "nonlinear_1", "nonlinear_5", "nonlinear_20")
HALF_WIDTHS = (0.5, 1.5, 3.0)
COUNTS = (1000, 100, 30)
NOISE = (0.05, 0.2)
DRAWS_PER_CALL, CALLS = 100_000, 10
METHODS = ("mean shift, residual", "corrected.joint", "gaussian_copula")


class Case(NamedTuple):
    """A network with its input, and what many draws say about its outputs."""

    network: Callable
    lin: nuq.Linearization
    mean: np.ndarray
    covariance: np.ndarray
    outputs: np.ndarray  # new outputs without noise
    noise: np.ndarray  # standard normal

    @property
    def sd(self):
        """Standard deviations of the outputs."""
        return np.sqrt(np.diag(self.covariance))

    def noisy(self, noise, rows=slice(None)):
        """New outputs with noise in standard deviations of the outputs."""
        return self.outputs[rows] + noise * self.sd * self.noise[rows]


def operator_case(name, half_width, num_outputs, num_points):
    """A trained operator, some of its outputs, spread evenly."""
    whole, f = operator_and_box(name, half_width)
    chosen = VARYING[np.round(np.linspace(0, len(VARYING) - 1, num_outputs)).astype(int)]
    return case_of(lambda x: whole(x)[chosen], f, num_points)


def random_case(num_inputs, half_width, seed, num_points):
    """A tanh network with two hidden layers, strongly bent, and two more outputs than inputs."""
    network = random_network(
        seed, (num_inputs, 16, 16, num_inputs + 2), lambda h: jnp.tanh(1.5 * h), bias=1 / 3,
        dtype=np.float32,
    )  # fmt: skip
    mean = 0.3 * jax.random.normal(jax.random.key(seed), (num_inputs,))
    return case_of(network, nuq.Input.box(mean, half_width=half_width), num_points)


def case_of(network, f, num_points):
    """Linearize, and draw."""
    many = jax.jit(jax.vmap(network))

    def outputs(key, count):
        return np.asarray(many(f.sample(jax.random.key(key), (count,))), np.float64)

    draws = np.concatenate([outputs(100 + call, DRAWS_PER_CALL) for call in range(CALLS)])
    new = outputs(7, num_points)
    noise = np.random.default_rng(5).normal(size=new.shape)
    mean, covariance = draws.mean(axis=0), np.cov(draws.T)
    return Case(network, nuq.linearize(network, f), mean, covariance, new, noise)


def shifted(case, pairs, noise):
    """The tangent, its mean moved, with the covariance of what it leaves: without a fit."""
    rest = np.asarray(pairs.network, np.float64) - np.asarray(pairs.linear, np.float64)
    covariance = np.atleast_2d(np.cov(rest.T)) * (1 + 1 / len(rest)) + np.diag(noise**2)
    loc = case.lin.loc + jnp.asarray(rest.mean(axis=0), jnp.float32)
    weights = case.lin.image().weights
    root = np.linalg.cholesky(covariance)
    return nuq.LinearizedJoint(loc, weights, jnp.asarray(root, jnp.float32))


_log_prob = jax.jit(lambda joint, values: joint.log_prob(values))


def score(case, joint, noise):
    """Mean log density of new outputs with noise."""
    values = jnp.asarray(case.noisy(noise), jnp.float32)
    return np.mean(_log_prob(joint, values), dtype=float)


def normal_score(case, noise):
    """Mean log density under the normal distribution with the true mean and covariance."""
    factor = np.linalg.cholesky(case.covariance + np.diag((noise * case.sd) ** 2))
    whitened = np.linalg.solve(factor, (case.noisy(noise) - case.mean).T)
    log_scale = np.log(np.diag(factor)).sum() + len(factor) / 2 * np.log(2 * np.pi)
    return float(-(whitened**2).sum(axis=0).mean() / 2 - log_scale)


def scores(case, count, noise, number, *, with_copula):
    """Scores of all methods with one key."""
    key, scale = jax.random.key(1000 + number), noise * case.sd
    pairs = nuq.paired_draws(case.network, case.lin, key, count, progress=False)
    corrected = case.lin.corrected(pairs)
    found = [shifted(case, pairs, scale), corrected.joint(noise_scale=scale)]
    if with_copula:
        found.append(corrected.gaussian_copula(noise_scale=scale))
    return [*(score(case, joint, noise) for joint in found), *[np.nan] * (3 - len(found))]


def print_row(name, case, count, noise, given):
    """Print the scores of a case, averaged over keys."""
    found = [
        scores(case, count, noise, k, with_copula=k < given.copulas) for k in range(given.keys)
    ]
    cells = [score(case, case.lin.joint(noise_scale=noise * case.sd), noise)]
    cells += [np.mean(column[np.isfinite(column)]) for column in np.transpose(found)]
    cells.append(normal_score(case, noise))
    row(name, count, f"{noise:g}", *(f"{cell:.3f}" for cell in cells))


def main():
    """Print a table; `copulas` is the number of keys of the copula."""
    given = options(
        networks=NETWORKS, random=(), half_widths=HALF_WIDTHS, counts=COUNTS, noise=NOISE,
        outputs=6, points=2000, keys=5, copulas=1,
    )  # fmt: skip
    head("network, half-width", "pairs", "noise/sd", "tangent", *METHODS, "normal")
    for width in given.half_widths:
        cases = [
            (f"{name}, {width:g}", operator_case(name, width, given.outputs, given.points))
            for name in given.networks
        ]
        cases += [
            (f"tanh {size}, seed {seed}, {width:g}", random_case(size, width, seed, given.points))
            for size in given.random
            for seed in range(3)
        ]
        for name, case in cases:
            for count in given.counts:
                for noise in given.noise:
                    print_row(name, case, count, noise, given)


if __name__ == "__main__":
    main()
