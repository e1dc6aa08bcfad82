"""The joint distribution: time of its fit and density, distance from the exact one."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import nn_uq_dist as nuq
from tests.benchmarks._command_line import head, row
from tests.benchmarks._networks import random_network
from tests.benchmarks._openturns_peers import combination
from tests.benchmarks._timing import print_timings, time_interleaved, timed
from tests.box_gaussian.joint_density_grid import joint_density_grid, total_variation

INPUTS = 31


def linear_model(jacobian):
    """A linear model of this Jacobian, inputs uniform on a box."""
    outputs, inputs = jacobian.shape
    box = nuq.Input.box(jnp.zeros(inputs), half_width=1.0)
    return nuq.Linearization(jnp.zeros(outputs), jacobian, box)


def low_rank_jacobian(key):
    """31 outputs of rank 2, as the operators of the paper, one of them with variance 1e-12."""
    keys = jax.random.split(key)
    rows = jax.random.normal(keys[0], (31, 2)) @ jax.random.normal(keys[1], (2, INPUTS))
    return rows.at[16].multiply(1e-6)


def linearization():
    """Many outputs, and many means of one network."""
    wide, small = (
        random_network(0, sizes, jax.nn.leaky_relu) for sizes in ([3072, 128, 1000], [31, 64, 31])
    )
    box = nuq.Input.box(jnp.zeros(3072), half_width=0.1)
    batch = nuq.Input.box(jax.random.normal(jax.random.key(1), (10_000, 31)), half_width=0.1)
    linearize_small = jax.jit(lambda f: nuq.linearize(small, f))
    many = "linearize, 10,000 means of a 31-64-31 network"
    calls = {
        "linearize, 1000 outputs x 3072 inputs": lambda: nuq.linearize(wide, box).jacobian,
        many: lambda: linearize_small(batch).loc,
    }
    print("\n## Linearization, float32")
    print_timings(time_interleaved(calls, num_rounds=5), relative_to=many)


def fit():
    """Hermite coefficients, all pairs, repair."""
    network = random_network(0, [INPUTS, *[64] * 5, 31], jax.nn.leaky_relu)
    f = nuq.Input.box(jnp.ones(INPUTS), half_width=0.5)
    key = jax.random.key(0)
    solve = jax.jit(lambda linear: linear.copula_correlation())
    jacobians = {
        "fit, 31 outputs, 31 inputs": jax.random.normal(key, (31, INPUTS)),
        "fit, 31 outputs of rank 2": low_rank_jacobian(key),
        "fit, 500 outputs, 31 inputs": jax.random.normal(key, (500, INPUTS)),
    }
    cases = {name: linear_model(jacobian) for name, jacobian in jacobians.items()}
    peer = "1e5 Monte Carlo draws, 5 layers of 64"
    calls = {peer: lambda: nuq.monte_carlo(network, f, key, 100_000, progress=False)}
    calls |= {name: lambda c=case: solve(c).matrix for name, case in cases.items()}
    print("\n## Fit of the joint distribution, float32")
    print_timings(time_interleaved(calls, num_rounds=5), relative_to=peer)
    for name, case in cases.items():
        found = solve(case)
        covariance = nuq.GaussianCopulaJoint(case.marginals(), found.matrix).covariance_matrix
        deviation = jnp.sqrt(jnp.diagonal(covariance))
        achieved = covariance / deviation[:, None] / deviation
        print(
            f"\n{name}: the repair moved an entry by at most {found.moved:.1e}, correlation of the "
            f"outputs off by at most {jnp.abs(achieved - case.correlation).max():.1e}"
        )


def density(num_points=1000):
    """Log density and its gradient."""
    linear = linear_model(jax.random.normal(jax.random.key(1), (31, INPUTS)))
    fitted = linear.copula_correlation(noise_scale=0.5).matrix
    weights, loc, noise = linear.jacobian, linear.loc, jnp.full(31, 0.5)
    joint = nuq.GaussianCopulaJoint(linear.marginals(0.5), fitted)
    points = joint.sample(jax.random.key(2), (num_points,))

    def ours(y, m, w, s):
        marginals = nuq.LinearizedMarginal(m, w, s)
        return nuq.GaussianCopulaJoint(marginals, fitted, validate_args=False).log_prob(y).sum()

    def normal(y, m, w, s):
        scale = jnp.sqrt((w**2).sum(-1) / 3 + s**2)
        joint = dist.GaussianCopula(dist.Normal(m, scale), fitted, validate_args=False)
        return joint.log_prob(y).sum()

    own = weights * jnp.linspace(0.9, 1.1, num_points).reshape(-1, 1, 1)
    arguments, separate = (points, loc, weights, noise), (points, loc, own, noise)
    value, plain = jax.jit(ours), jax.jit(normal)
    slope, plain_slope = (
        jax.jit(jax.value_and_grad(function, argnums=(0, 1, 2, 3))) for function in (ours, normal)
    )
    peer = "NumPyro GaussianCopula, normal marginals"
    timings = time_interleaved(
        {
            peer: lambda: plain(*arguments),
            "the same with gradient": lambda: plain_slope(*arguments)[1],
            "log_prob, one joint distribution": lambda: value(*arguments),
            "log_prob and gradient, one joint distribution": lambda: slope(*arguments)[1],
            "log_prob, a distribution for each point": lambda: value(*separate),
            "log_prob and gradient, a distribution for each point": lambda: slope(*separate)[1],
        },
        num_rounds=5,
    )
    print(f"\n## Log density of {num_points} points in 31 dimensions, with normal noise, float32")
    print_timings(timings, relative_to=peer)
    seconds = openturns_seconds(weights, fitted, points[:10])
    ratio = timings["log_prob, one joint distribution"].median / num_points / seconds
    print(
        f"\nOpenTURNS JointDistribution of the same marginals and copula, float64, on 10 points: "
        f"{seconds * 1e3:.3g} ms per point; ours / OpenTURNS {ratio:.2g}"
    )


def openturns_seconds(weights, correlation, points):
    """Seconds for the log density of a point."""
    import openturns as ot

    marginals = [combination(row, 0.5) for row in np.asarray(weights)]
    matrix = ot.CorrelationMatrix(np.asarray(correlation, float).tolist())
    joint = ot.JointDistribution(marginals, ot.NormalCopula(matrix))
    for marginal in marginals:
        marginal.computePDF(0.0)
    sample = ot.Sample(np.asarray(points, float))
    return timed(lambda: joint.computeLogPDF(sample))[1] / len(points)


@jax.enable_x64(True)
def distance(num_seeds=20, num_joints=2):
    """Total variation from the exact linear distribution of two outputs, in float64.

    The density of the joint distribution takes longer: of the first seeds only.
    """
    print(
        "\n## Total variation from the exact linear distribution of two outputs\n\nJacobian "
        f"entries uniform on [-1, 1], {num_seeds} seeds ({num_joints} of the joint distribution)."
    )
    cells = "mean", "standard error", "smallest", "largest"
    head("distribution", "inputs", "grid", *cells)
    for num_inputs, num_points in ((2, 1024), (3, 512), (6, 256), (12, 128), (31, 128)):
        found = {"copula": [], "joint": []}
        for seed in range(num_seeds):
            jacobian = np.random.default_rng(seed).uniform(-1, 1, (2, num_inputs))
            grid = joint_density_grid(jacobian, num_points)
            linear = linear_model(jnp.asarray(jacobian))
            copula = linear.gaussian_copula()
            quiet = nuq.GaussianCopulaJoint(
                copula.marginals, copula.correlation_matrix, validate_args=False
            )
            joint = nuq.LinearizedJoint(linear.loc, linear.jacobian, validate_args=False)
            found["copula"].append(total_variation(grid, jax.jit(quiet.log_prob)))
            if seed < num_joints:
                found["joint"].append(total_variation(grid, jax.jit(joint.log_prob)))
        for name, values in found.items():
            error = np.std(values, ddof=1) / len(values) ** 0.5
            cells = np.mean(values), error, min(values), max(values)
            row(name, num_inputs, f"{num_points}^2", *(f"{cell:.4f}" for cell in cells))


if __name__ == "__main__":
    linearization()
    fit()
    density()
    distance()
