"""The joint distribution: time of its fit and of its density, distance of the copula to the exact
distribution.

Run with ``python -m tests.benchmarks.bench_joint`` or ``make bench BENCH=bench_joint``.
"""

import math
import time

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import openturns as ot
from jax import Array

import nn_uq_dist as nuq
from tests.benchmarks._timing import markdown_table, time_interleaved
from tests.benchmarks.bench_networks import random_network
from tests.box_gaussian.joint_density_grid import joint_density_grid, total_variation

INPUTS = 31


def linear_distribution(
    key: Array, num_outputs: int, num_inputs: int = INPUTS
) -> nuq.Linearization:
    """Jacobian with standard normal entries, inputs uniform on a box."""
    jacobian = jax.random.normal(key, (num_outputs, num_inputs))
    distribution = nuq.Input.box(jnp.zeros(num_inputs), half_width=1.0)
    return nuq.Linearization(jnp.zeros(num_outputs), jacobian, distribution)


def low_rank_distribution(key: Array) -> nuq.Linearization:
    """31 outputs of rank 2, as the operators of the paper, one of them with variance 1e-12."""
    keys = jax.random.split(key)
    rows = jax.random.normal(keys[0], (31, 2)) @ jax.random.normal(keys[1], (2, INPUTS))
    distribution = nuq.Input.box(jnp.zeros(INPUTS), half_width=1.0)
    return nuq.Linearization(jnp.zeros(31), rows.at[16].multiply(1e-6), distribution)


def fit() -> None:
    """Hermite coefficients, all pairs, repair."""
    network = random_network([INPUTS, *[64] * 5, 31])
    distribution = nuq.Input.box(jnp.ones(INPUTS), half_width=0.5)
    key = jax.random.key(0)
    solve = jax.jit(lambda linear: linear.copula_correlation())
    cases = {
        "fit, 31 outputs, 31 inputs": linear_distribution(key, 31),
        "fit, 31 outputs of rank 2": low_rank_distribution(key),
        "fit, 500 outputs, 31 inputs": linear_distribution(key, 500),
    }
    timings = time_interleaved(
        {
            "1e5 Monte Carlo draws, 5 layers of 64": lambda: nuq.monte_carlo(
                network, distribution, key, 100_000, progress=False
            ),
            **{name: lambda c=case: solve(c).matrix for name, case in cases.items()},
        },
        num_rounds=5,
    )
    print("\n## Fit of the joint distribution, float32\n")
    print(markdown_table(timings, relative_to="1e5 Monte Carlo draws, 5 layers of 64"))
    for name, case in cases.items():
        found = solve(case)
        joint = nuq.GaussianCopulaJoint(case.marginals(), found.matrix)
        covariance = joint.covariance_matrix
        deviation = jnp.sqrt(jnp.diagonal(covariance))
        achieved = covariance / deviation[:, None] / deviation
        print(
            f"\n{name}: the repair moved an entry by at most {found.moved:.1e}, correlation of the "
            f"outputs off by at most {jnp.abs(achieved - case.correlation).max():.1e}"
        )


def density(num_points: int = 1000) -> None:
    """Log density and its gradient."""
    linear = linear_distribution(jax.random.key(1), 31)
    fitted = linear.copula_correlation(noise_scale=0.5).matrix
    weights, loc, noise = linear.jacobian, linear.loc, jnp.full(31, 0.5)
    points = nuq.GaussianCopulaJoint(linear.marginals(0.5), fitted).sample(
        jax.random.key(2), (num_points,)
    )

    def ours(y: Array, m: Array, w: Array, s: Array) -> Array:
        joint = nuq.GaussianCopulaJoint(
            nuq.LinearizedMarginal(m, w, s), fitted, validate_args=False
        )
        return joint.log_prob(y).sum()

    def normal(y: Array, m: Array, w: Array, s: Array) -> Array:
        scale = jnp.sqrt((w**2).sum(-1) / 3 + s**2)
        joint = dist.GaussianCopula(dist.Normal(m, scale), fitted, validate_args=False)
        return joint.log_prob(y).sum()

    own = jnp.broadcast_to(weights, (num_points, *weights.shape)) * jnp.linspace(
        0.9, 1.1, num_points
    ).reshape(-1, 1, 1)
    arguments = (points, loc, weights, noise)
    separate = (points, loc, own, noise)
    value, slope = jax.jit(ours), jax.jit(jax.value_and_grad(ours, argnums=(0, 1, 2, 3)))
    plain = jax.jit(normal)
    plain_slope = jax.jit(jax.value_and_grad(normal, argnums=(0, 1, 2, 3)))

    distributions = [
        ot.LinearCombinationDistribution(
            [ot.Uniform(-1, 1)] * INPUTS + [ot.Normal(0, 1)], [*map(float, row), 0.5]
        )
        for row in np.asarray(weights)
    ]
    matrix = ot.CorrelationMatrix(np.asarray(fitted, float).tolist())
    peer = ot.JointDistribution(distributions, ot.NormalCopula(matrix))
    few = ot.Sample(np.asarray(points[:10], float))
    for distribution in distributions:
        distribution.computePDF(0.0)
    start = time.perf_counter()
    peer.computeLogPDF(few)
    peer_seconds = (time.perf_counter() - start) / len(few)

    timings = time_interleaved(
        {
            "NumPyro GaussianCopula, normal marginals": lambda: plain(*arguments),
            "the same with gradient": lambda: plain_slope(*arguments)[1],
            "log_prob, one joint distribution": lambda: value(*arguments),
            "log_prob and gradient, one joint distribution": lambda: slope(*arguments)[1],
            "log_prob, a distribution for each point": lambda: value(*separate),
            "log_prob and gradient, a distribution for each point": lambda: slope(*separate)[1],
        },
        num_rounds=5,
    )
    print(f"\n## Log density of {num_points} points in 31 dimensions, with normal noise, float32")
    print("\nGradient in value, loc, weights and noise.\n")
    print(
        markdown_table(
            timings,
            relative_to="NumPyro GaussianCopula, normal marginals",
            units=dict.fromkeys(timings, num_points),
        )
    )
    ratio = timings["log_prob, one joint distribution"].median / num_points / peer_seconds
    print(
        f"\nOpenTURNS JointDistribution of the same marginals and copula, float64, on 10 points: "
        f"{peer_seconds * 1e3:.3g} ms per point; ours / OpenTURNS {ratio:.2g}"
    )
    gradients = slope(*arguments)[1]
    print(f"all gradients finite: {all(bool(jnp.isfinite(g).all()) for g in gradients)}")


def distance(num_seeds: int = 20) -> None:
    """Total variation between the copula and the exact linear distribution, two outputs."""
    print(
        "\n## Total variation between the Gaussian copula and the exact linear distribution, two "
        "outputs"
    )
    print(
        f"\nJacobian entries uniform on [-1, 1], {num_seeds} seeds: mean, standard error, smallest "
        f"and largest.\n"
    )
    print("| inputs | grid | mean | standard error | smallest | largest |")
    print("|---:|---:|---:|---:|---:|---:|")
    for num_inputs, num_points in ((2, 1024), (3, 512), (6, 256), (12, 128), (31, 128)):
        found = []
        for seed in range(num_seeds):
            rows = np.random.default_rng(seed).uniform(-1, 1, (2, num_inputs))
            distribution = nuq.Input.box(jnp.zeros(num_inputs), half_width=1.0)
            linear = nuq.Linearization(jnp.zeros(2), jnp.asarray(rows), distribution)
            grid = joint_density_grid(rows, num_points)
            joint = linear.gaussian_copula()
            quiet = nuq.GaussianCopulaJoint(
                joint.marginals, joint.correlation_matrix, validate_args=False
            )
            found.append(total_variation(grid, jax.jit(quiet.log_prob)))
        error = np.std(found, ddof=1) / math.sqrt(num_seeds)
        print(
            f"| {num_inputs} | {num_points}^2 | {np.mean(found):.4f} | {error:.4f} | "
            f"{min(found):.4f} | {max(found):.4f} |",
            flush=True,
        )


if __name__ == "__main__":
    fit()
    density()
    distance()
