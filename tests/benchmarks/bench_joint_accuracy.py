"""Joint distributions against references: log densities, conditional moments and coverage.

``--tables density`` picks some of ``density conditional coverage``, ``--points 5 --pairs 2`` for a
short run. All but the coverage is in float64.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats

import nn_uq_dist as nuq
from tests.benchmarks._command_line import head, print_tables, row
from tests.benchmarks._networks import OPERATORS, VARYING, operator_and_box
from tests.benchmarks._posterior_reference import Observed, by_weighted_draws
from tests.box_gaussian.references import by_quadrature, by_separation

MODELS, LOG2_POINTS = 4, 14
OTHERS = 4  # outputs that are not known
NUM_DRAWS, PLACES = 199, (9, 189)  # of these draws, the 10th and the 190th are a 90% interval


def normal_entries(outputs, inputs, rng):
    """Weights without structure."""
    return rng.normal(size=(outputs, inputs))


def equal_columns(outputs, different, times, gap, rng):
    """Each column several times, equal up to a share `gap` of its entries."""
    columns = np.repeat(rng.normal(size=(outputs, different)), times, axis=1)
    return columns + gap * rng.normal(size=columns.shape)


def product(outputs, rank, inputs, rng):
    """Weights of a smaller rank."""
    return rng.normal(size=(outputs, rank)) @ rng.normal(size=(rank, inputs))


FULL = (
    (2, 6, 0.05), (2, 6, 0.3), (3, 2, 0.1), (3, 7, 0.1), (4, 2, 0.1), (4, 6, 0.1), (4, 9, 0.2),
    (6, 3, 0.05), (6, 6, 0.1), (6, 12, 0.1), (12, 3, 0.1), (12, 12, 0.1), (12, 12, 0.3),
    (12, 31, 0.1),
)  # fmt: skip
CASES = [
    *((f"{n}, {d}", partial(normal_entries, d, n), noise) for n, d, noise in FULL),
    ("2, 1, equal columns", partial(equal_columns, 1, 1, 2, 0.0), 0.1),
    ("2, 12, equal columns", partial(equal_columns, 12, 1, 2, 0.0), 0.1),
    ("4, 6, equal columns", partial(equal_columns, 6, 1, 4, 0.0), 0.1),
    ("4, 2, two equal pairs", partial(equal_columns, 2, 2, 2, 0.0), 0.1),
    ("4, 8, two equal pairs", partial(equal_columns, 8, 2, 2, 0.0), 0.1),
    ("4, 8, pairs equal up to .1", partial(equal_columns, 8, 2, 2, 0.1), 0.1),
    ("4, 8, pairs equal up to .3", partial(equal_columns, 8, 2, 2, 0.3), 0.1),
    ("6, 8, two equal triples", partial(equal_columns, 8, 2, 3, 0.0), 0.1),
    ("6, 20, rank 2", partial(product, 20, 2, 6), 0.1),
    ("12, 31, rank 3", partial(product, 31, 3, 12), 0.05),
]


def model_of(weights, noise):
    """A linear model of inputs in [-1, 1], and its noise in units of the outputs."""
    outputs, inputs = weights.shape
    box = nuq.Input.box(jnp.zeros(inputs), half_width=1.0)
    linear = nuq.Linearization(jnp.zeros(outputs), jnp.asarray(weights), box)
    return linear, noise * np.sqrt((weights**2).sum(axis=1) / 3)


def exact(points, weights, scale):
    """Log densities by quadrature (two inputs) or separation of variables, and standard errors."""
    covariance = np.diag(scale**2)
    if weights.shape[1] == 2:
        return np.array([by_quadrature(y, weights, covariance, 300) for y in points]), 0.0
    found = [by_separation(y, weights, covariance, LOG2_POINTS) for y in points]
    return np.array([one.value for one in found]), np.array([one.error for one in found])


@jax.enable_x64(True)
def density(given):
    """Errors of the log density, and what a copula and a normal distribution lose."""
    columns = "noise / sd", "error: mean of its size", "worst", "with the correction: the same"
    losses = "loss by the copula", "by a multivariate normal", "reference's standard error"
    head("inputs, outputs", *columns, "worst", *losses)
    for name, make, noise in CASES:
        parts = []
        for seed in range(MODELS):
            linear, scale = model_of(make(np.random.default_rng(seed)), noise)
            joint = linear.joint(noise_scale=scale)
            points = joint.sample(jax.random.key(seed), (given.points,))
            values, errors = exact(np.asarray(points), np.asarray(linear.jacobian), scale)
            first = joint.log_prob(points) - values
            copula = linear.gaussian_copula(noise_scale=scale).log_prob(points)
            normal = scipy.stats.multivariate_normal(linear.loc, joint.covariance_matrix)
            parts.append([
                first, first + joint.log_prob_correction(points), values - copula,
                values - normal.logpdf(points), errors + 0 * values,
            ])  # fmt: skip
        first, second, copula, normal, errors = np.concatenate(parts, axis=1)
        sizes = (x for part in (abs(first), abs(second)) for x in (part.mean(), part.max()))
        cells = *(f"{x:.4f}" for x in sizes), f"{copula.mean():.2f}", f"{normal.mean():.2f}"
        row(name, noise, *cells, f"{np.sqrt(np.mean(errors**2)):.4f}")


@jax.enable_x64(True)
def conditional(_):
    """Errors of the moments of the other outputs, where some are known.

    In the reference the other outputs, with their noise, are inputs as well.
    """
    cells = "error of the mean, sds: worst", "root mean square", "of the sd: worst"
    head("inputs, known outputs", "noise / sd", *cells, "root mean square")
    for inputs, known, noise in (
        (3, 2, 0.1), (6, 2, 0.1), (6, 3, 0.1), (6, 6, 0.1), (6, 6, 0.3), (12, 6, 0.1),
        (12, 12, 0.1), (12, 12, 0.3),
    ):  # fmt: skip
        of_mean, of_sd = [], []
        for seed in range(6):
            weights = normal_entries(known + OTHERS, inputs, np.random.default_rng(seed))
            linear, scale = model_of(weights, noise)
            joint = linear.joint(noise_scale=scale)
            y = joint.sample(jax.random.key(seed))
            found = joint.condition(tuple(range(known)), y[:known])
            box = np.concatenate([np.eye(inputs), weights[known:]])
            normal = np.concatenate([np.zeros((inputs, OTHERS)), np.diag(scale[known:])])
            jacobian = np.concatenate([weights[:known], np.zeros((known, OTHERS))], axis=1)
            observed = Observed(box, normal, jacobian, np.asarray(y[:known]), scale[:known], False)
            reference = by_weighted_draws(observed)
            mean, sd = reference.mean[inputs:], reference.sd[inputs:]
            of_mean.append((found.mean - mean) / sd)
            of_sd.append(np.sqrt(found.variance) / sd - 1)
        cells = []
        for part, form in ((np.abs(of_mean), ".3f"), (np.abs(of_sd), ".1%")):
            cells += [format(part.max(), form), format(np.sqrt(np.mean(part**2)), form)]
        row(f"{inputs}, {known}", noise, *cells)


def coverage(given):
    """How many 90% intervals of the other outputs hold, given two, in percent."""
    head("operator", "noise / sd", "joint", "normal", "copula", "standard error of the first")
    for name in OPERATORS:
        network, f = operator_and_box(name, 1.0)
        linear = nuq.linearize(network, f)
        linear = nuq.Linearization(linear.loc[VARYING], linear.jacobian[VARYING], f)
        for noise in (0.05, 0.2):
            scale = noise * jnp.sqrt(linear.variance)
            models = linear.joint(noise_scale=scale), linear.gaussian_copula(noise_scale=scale)
            held = []
            for number in range(given.pairs):
                rng, keys = np.random.default_rng(number), jax.random.split(jax.random.key(number))
                known = rng.choice(len(VARYING), 2, replace=False)
                other = np.delete(np.arange(len(VARYING)), known)
                y = models[0].sample(keys[0], (given.values,))
                seen = [model.condition(tuple(known), y[:, known]) for model in models]
                found = [np.sort(part.sample(keys[1], (NUM_DRAWS,)), axis=0) for part in seen]
                joint, copula = (draws[PLACES, ...] for draws in found)
                intervals = joint, normal_intervals(models[0], known, other, y), copula
                new = np.asarray(y[:, other])
                inside = [(low <= new) & (new <= high) for low, high in intervals]
                held.append([part.mean(axis=1) for part in inside])
            shares = np.concatenate(held, axis=1)
            error = shares[0].std() / shares.shape[1] ** 0.5
            row(name, noise, *(f"{100 * x:.1f}" for x in (*shares.mean(axis=1), error)))


def normal_intervals(joint, known, other, y):
    """90% intervals of a normal distribution of the same moments."""
    covariance = np.asarray(joint.covariance_matrix, float)
    gain = np.linalg.solve(covariance[np.ix_(known, known)], covariance[np.ix_(known, other)])
    mean = joint.mean[other] + np.asarray(y[:, known] - joint.mean[known]) @ gain
    left = covariance[np.ix_(other, other)] - covariance[np.ix_(other, known)] @ gain
    reach = scipy.stats.norm.ppf(0.95) * np.sqrt(np.diag(left))
    return mean - reach, mean + reach


if __name__ == "__main__":
    print_tables((density, conditional, coverage), points=15, pairs=8, values=100)
