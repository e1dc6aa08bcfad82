"""Log densities of ``W u + e`` by methods that share nothing with expectation propagation."""

import numpy as np
import scipy.special
import scipy.stats


def problem(generator, num_inputs, num_outputs, noise, num_points):
    """Random weights, a diagonal normal part of relative size ``noise``, and draws of the law."""
    weights = generator.normal(size=(num_outputs, num_inputs))
    scale = noise * np.sqrt((weights**2).sum(axis=1) / 3.0)
    inputs = generator.uniform(-1, 1, (num_points, num_inputs))
    draws = inputs @ weights.T + scale * generator.normal(size=(num_points, num_outputs))
    return draws, weights, np.diag(scale**2)


def by_quadrature(point, weights, covariance, num_nodes):
    """Tensor Gauss-Legendre rule over the box, for up to three inputs."""
    nodes, rule = np.polynomial.legendre.leggauss(num_nodes)
    count = weights.shape[1]
    inputs = np.stack(np.meshgrid(*[nodes] * count, indexing="ij"), -1).reshape(-1, count)
    log_rule = sum(np.meshgrid(*[np.log(0.5 * rule)] * count, indexing="ij")).ravel()
    normal = scipy.stats.multivariate_normal(np.zeros(len(point)), covariance)
    return scipy.special.logsumexp(log_rule + normal.logpdf(point - inputs @ weights.T))


def by_genz(point, weights, covariance):
    """Probability of the box under the normal law of the inputs given the outputs, by SciPy."""
    precision = weights.T @ np.linalg.solve(covariance, weights)
    spread = np.linalg.inv(precision)
    mean = spread @ weights.T @ np.linalg.solve(covariance, point)
    count = weights.shape[1]
    mass = scipy.stats.multivariate_normal.cdf(
        np.ones(count),
        mean,
        spread,
        lower_limit=-np.ones(count),
        abseps=1e-7,
        releps=1e-4,
        maxpts=200_000,
        rng=np.random.default_rng(0),
    )
    # N(y; W u, S0) = N(u; mean, spread) times what does not depend on u.
    rest = point - weights @ mean
    log_constant = -0.5 * (
        rest @ np.linalg.solve(covariance, rest)
        + np.linalg.slogdet(2 * np.pi * covariance)[1]
        - np.linalg.slogdet(2 * np.pi * spread)[1]
    )
    return np.log(mass) + log_constant - count * np.log(2.0)
