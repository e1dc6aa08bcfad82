"""Log densities of ``W u + e`` by methods that are independent of expectation propagation."""

import functools
from typing import NamedTuple

import numpy as np
import scipy.linalg
import scipy.optimize
import scipy.special
import scipy.stats
from scipy.special import log_ndtr, logsumexp, ndtri_exp


def problem(generator, num_inputs, num_outputs, noise, num_points):
    """Random weights, a diagonal normal part of relative size ``noise``, and draws of the
    distribution."""
    weights = generator.normal(size=(num_outputs, num_inputs))
    scale = noise * np.sqrt((weights**2).sum(axis=1) / 3.0)
    inputs = generator.uniform(-1, 1, (num_points, num_inputs))
    draws = inputs @ weights.T + scale * generator.normal(size=(num_points, num_outputs))
    return draws, weights, np.diag(scale**2)


def tensor_rule(num_nodes, count):
    """Points of a tensor Gauss-Legendre rule over the box, and the logs of their probabilities."""
    nodes, rule = np.polynomial.legendre.leggauss(num_nodes)
    points = np.stack(np.meshgrid(*[nodes] * count, indexing="ij"), -1).reshape(-1, count)
    return points, sum(np.meshgrid(*[np.log(0.5 * rule)] * count, indexing="ij")).ravel()


def by_quadrature(point, weights, covariance, num_nodes):
    """Tensor Gauss-Legendre rule over the box, for up to three inputs."""
    inputs, log_rule = tensor_rule(num_nodes, weights.shape[1])
    normal = scipy.stats.multivariate_normal(np.zeros(len(point)), covariance)
    return logsumexp(log_rule + normal.logpdf(point - inputs @ weights.T))


class Estimate(NamedTuple):
    """A value and its standard error."""

    value: float
    error: float


def by_separation(point, weights, covariance, log2_samples=12, num_shifts=8):
    r"""Genz's separation of variables on scrambled Sobol points, all in logarithms.

    With fewer outputs than inputs the distribution of the inputs needs a precision of its own,
    ``ridge``, which the factor :math:`\exp(ridge |u|^2/2)` at each draw takes back.
    """
    ridge = 0.01
    count = weights.shape[1]
    whitened = np.linalg.solve(np.linalg.cholesky(covariance), np.c_[weights, point])
    columns = np.r_[whitened[:, :-1], np.sqrt(ridge) * np.eye(count)]
    target = np.r_[whitened[:, -1], np.zeros(count)]
    mean = np.linalg.lstsq(columns, target)[0]
    log_constant = -0.5 * (
        ((target - columns @ mean) ** 2).sum() + np.linalg.slogdet(2 * np.pi * covariance)[1]
    )
    totals = []
    for seed in range(num_shifts):
        sobol = scipy.stats.qmc.Sobol(count, rng=np.random.default_rng(seed))
        uniforms = np.clip(sobol.random_base2(log2_samples), 1e-300, 1.0 - 1e-16)
        points, logs = sequential_draws(columns, mean, uniforms.T)
        logs = logs + 0.5 * ridge * (points**2).sum(axis=0)
        totals.append(logsumexp(logs) - np.log(len(logs)))
    largest = max(totals)
    ratios = np.exp(np.array(totals) - largest)
    value = largest + np.log(ratios.mean()) + log_constant - count * np.log(2.0)
    return Estimate(value, ratios.std(ddof=1) / ratios.mean() / np.sqrt(num_shifts))


def sequential_draws(columns, mean, uniforms):
    """Points in the box for uniforms ``(..., n, N)``, and the logs of their weights ``(..., N)``.

    Variables with the mean and the precision ``columns^T columns`` are drawn one after another from
    their conditional normal distributions, restricted to the box, the most restricted first (A.
    Genz, 1992; Gibson, Glasbey and Elston, 1994). The mean weight is the integral of
    ``exp(-|columns (u - mean)|^2 / 2)`` over the box.
    """
    order = _most_restricted_first(mean, _spread_factor(columns))
    root = _spread_factor(columns[:, order])
    scores, points = np.zeros_like(uniforms), np.zeros_like(uniforms)
    logs = np.log(np.diagonal(root)).sum() + 0.5 * len(mean) * np.log(2 * np.pi)
    for k, name in enumerate(order):
        center = mean[name] + np.einsum("j,...js->...s", root[k, :k], scores[..., :k, :])
        ends = (-1.0 - center) / root[k, k], (1.0 - center) / root[k, k]
        mass, scores[..., k, :] = _restricted(*ends, uniforms[..., k, :])
        points[..., name, :] = np.clip(center + root[k, k] * scores[..., k, :], -1, 1)
        logs = logs + mass
    return points, logs


def by_separations(points, weights, covariance, bar, log2_samples=12):
    """`by_separation` of many points, with standard errors below `bar`; shape (N,)."""
    found = [by_separation(point, weights, covariance, log2_samples) for point in points]
    assert max(estimate.error for estimate in found) < bar
    return np.array([estimate.value for estimate in found])


def by_quadrature_or_separation(points, weights, covariance, bar=3e-3):
    """Log densities of up to three inputs by quadrature, of more by separation; shape (N,)."""
    count = weights.shape[1]
    if count > 3:
        return by_separations(points, weights, covariance, bar)
    nodes = {1: 1000, 2: 300, 3: 80}[count]
    return np.array([by_quadrature(point, weights, covariance, nodes) for point in points])


def _restricted(low, high, uniform):
    """Log mass of a standard normal distribution in an interval, and its quantile there."""
    flip = low + high > 0
    low, high = np.where(flip, -high, low), np.where(flip, -low, high)
    below, above = log_ndtr(low), log_ndtr(high)
    gap = np.minimum(below - above, -1e-300)
    mass = above + np.log(-np.expm1(gap))
    # Phi^-1 of Phi(low) + uniform (Phi(high) - Phi(low)).
    quantile = ndtri_exp(above + np.log(uniform + (1.0 - uniform) * np.exp(gap)))
    quantile = np.clip(quantile, low, high)
    return mass, np.where(flip, -quantile, quantile)


def _spread_factor(columns):
    """Lower `L` with ``L L^T = (columns^T columns)^-1``, without squaring what is small."""
    triangle = np.linalg.qr(columns[:, ::-1], mode="r")
    factor = scipy.linalg.solve_triangular(triangle, np.eye(len(triangle)))[::-1, ::-1]
    return factor * np.sign(np.diagonal(factor))


def _most_restricted_first(mean, factor):
    """The input with the least mass in the box first, then that with the least given it."""
    count = len(mean)
    order, mean, spread = np.arange(count), mean.copy(), factor @ factor.T
    for k in range(count):
        deviation = np.sqrt(np.maximum(np.diagonal(spread)[k:], 1e-30))
        mass, score = _restricted(
            (-1.0 - mean[k:]) / deviation, (1.0 - mean[k:]) / deviation, np.full(count - k, 0.5)
        )
        pick = int(np.argmin(mass))
        swap = np.arange(count)
        swap[[k, k + pick]] = swap[[k + pick, k]]
        order, mean, spread = order[swap], mean[swap], spread[np.ix_(swap, swap)]
        column = spread[:, k] / deviation[pick]
        mean = mean + column * score[pick]
        spread = spread - np.outer(column, column)
    return order


def by_box_spline(points, weights):
    r"""Density of ``W u`` without noise, exactly: a box spline, by its recurrence; shape (N,).

    With :math:`y = \sum_k t_k w_k` for any such `t`, and a column less on the right,

    .. math:: 2 (n - d)\, p_n(y) = \sum_k \bigl[(1 + t_k) p_{n-1}(y + w_k)
        + (1 - t_k) p_{n-1}(y - w_k)\bigr]

    (C. de Boor, K. Hoellig, S. Riemenschneider, Box Splines, 1993).
    """
    size, count = weights.shape

    @functools.cache
    def density(kept, signs):
        moved = points + weights @ np.array(signs)
        columns = weights[:, kept]
        coordinates = moved @ np.linalg.pinv(columns).T
        if len(kept) == size:
            inside = (np.abs(coordinates) < 1.0).all(axis=-1)
            return inside / (2.0**size * abs(np.linalg.det(columns)))
        total = 0.0
        for k, coordinate in zip(kept, coordinates.T, strict=True):
            rest = tuple(j for j in kept if j != k)
            for sign in (1, -1):
                there = tuple(sign if j == k else old for j, old in enumerate(signs))
                total = total + (1.0 + sign * coordinate) * density(rest, there)
        return total / (2.0 * (len(kept) - size))

    return density(tuple(range(count)), (0,) * count)


def each_alone(points, sizes, scales):
    """Each output has an input for itself: differences of two normal probabilities; shape (N,)."""
    far = np.abs(points)
    masses, beyond = log_ndtr((sizes - far) / scales), log_ndtr((-sizes - far) / scales)
    masses = masses + np.log1p(-np.exp(beyond - masses))
    return (masses - np.log(2.0 * sizes)).sum(axis=-1)


def far_outside(point, weights, covariance):
    """Where the density falls steeply at the ends of some inputs: their integrals in closed form.

    At the likeliest inputs some are at an end, with slopes ``g``; each gives ``1/(2 g)``, up to the
    square of what the slope changes over ``1/g``. The others are a problem of their own.
    """
    factor = np.linalg.cholesky(covariance)
    whitened, target = np.linalg.solve(factor, weights), np.linalg.solve(factor, point)
    inputs = scipy.optimize.lsq_linear(whitened, target, (-1.0, 1.0), method="bvls", tol=1e-14).x
    slopes = np.abs(whitened.T @ (target - whitened @ inputs))
    curvatures = (whitened**2).sum(axis=0)
    at_end = (np.abs(inputs) > 1.0 - 1e-9) & (slopes > 0)
    rest = point - weights[:, at_end] @ np.sign(inputs[at_end])
    if at_end.all():
        free = -0.5 * (
            np.sum(np.linalg.solve(factor, rest) ** 2)
            + np.linalg.slogdet(2 * np.pi * covariance)[1]
        )
    else:
        free = by_separation(rest, weights[:, ~at_end], covariance).value
    value = free - np.log(2.0 * slopes[at_end]).sum()
    return Estimate(value, np.sum(curvatures[at_end] / slopes[at_end] ** 2))
