"""Inputs given the outputs of a linear model: moments and log evidence, in float64.

``--inputs 4 --outputs 1 4`` for a part.
"""

from collections import defaultdict
from typing import NamedTuple

import jax
import numpy as np

import nn_uq_dist as nuq
from tests.benchmarks._command_line import head, options, row
from tests.benchmarks._posterior_reference import Array, Observed, by_mpmath, by_weighted_draws

KINDS = ("normal", "box", "box and normal", "triangular", "with known inputs")
SIZES = (1, 4, 12)
NOISE = (0.02, 0.1, 0.3)  # in standard deviations of the outputs
MODELS, DATA_SETS = 2, 2


class Case(NamedTuple):
    """A batch of linear models with their inputs."""

    linear: nuq.Linearization
    box: Array  # (MODELS, N_x, n)
    normal: Array  # (MODELS, N_x, m)
    triangular: bool

    def reference(self, noise, y, model):
        """Of normal inputs in closed form, else by weighted draws."""
        jacobian = np.asarray(self.linear.jacobian)[model]
        deviation = y - np.asarray(self.linear.mean)[model]
        box, normal = self.box[model], self.normal[model]
        seen = Observed(box, normal, jacobian, deviation, noise, self.triangular)
        return by_weighted_draws(seen) if box.shape[-1] else by_mpmath(seen)


def make_case(kind, num_inputs, num_outputs):
    """Random models: standard normal Jacobians, inputs with half-widths of 0.5 to 2."""
    rng = np.random.default_rng([KINDS.index(kind), num_inputs, num_outputs])
    shape = (MODELS, num_inputs)
    loc, width = rng.normal(size=shape), rng.uniform(0.5, 2.0, shape)
    place = np.arange(num_inputs)
    boxes, normals = place >= 0, place < 0
    if kind == "box and normal":  # of one input both
        boxes, normals = place % 2 == 0, (place % 2 == 1) | (num_inputs == 1)
    elif kind == "with known inputs":
        boxes, normals = place % 3 == 0, place % 3 == 2
    half_width, scale = width * boxes, width * normals / np.sqrt(3)
    # Columns without their zeros.
    box = (half_width[..., None] * np.eye(num_inputs))[..., boxes]
    normal = (scale[..., None] * np.eye(num_inputs))[..., normals]
    if kind == "normal":
        tril = np.tril(rng.normal(size=(*shape, num_inputs)), -1)
        normal = tril + width[..., None] * np.eye(num_inputs)
        box = normal[..., :0]
        distribution = nuq.Input.normal(loc, scale_tril=normal)
    elif kind == "triangular":
        distribution = nuq.Input.triangular(loc - width, loc + width)
    else:
        distribution = nuq.Input.box(loc, half_width) + nuq.Input.normal(0 * loc, scale)
    jacobian = rng.normal(size=(MODELS, num_outputs, num_inputs))
    linear = nuq.Linearization(rng.normal(size=(MODELS, num_outputs)), jacobian, distribution)
    return Case(linear, box, normal, kind == "triangular")


def observe(linear):
    """Outputs (noise, data set, model, output) and the standard deviations of their noise."""
    scale = np.reshape(NOISE, (-1, 1, 1, 1)) * np.sqrt(np.asarray(linear.variance))
    key, key_noise = jax.random.split(jax.random.key(0))
    y = np.asarray(linear.sample(key, (len(NOISE), DATA_SETS)))
    return y + scale * np.asarray(jax.random.normal(key_noise, y.shape)), scale


def errors_of(case):
    """Errors of all observations of the case.

    Of means in sds, relative of sds, of the log evidence, and standard errors of the reference.
    """
    y, scale = observe(case.linear)
    posterior = case.linear.input_posterior(y, noise_scale=scale)
    means = np.asarray(posterior.mean - case.linear.input.mean)
    sds, evidence = np.sqrt(np.asarray(posterior.variance)), np.asarray(posterior.log_evidence)
    found = []
    for place in np.ndindex(y.shape[:-1]):
        number, _, model = place
        exact = case.reference(scale[number, 0, model], y[place], model)
        free = exact.sd > 0
        if np.any(sds[place][~free] != 0):
            raise AssertionError("known inputs must have the variance 0")
        of_mean = np.abs(means[place] - exact.mean)[free] / exact.sd[free]
        of_sd = np.abs(sds[place][free] / exact.sd[free] - 1)
        of_evidence = np.abs(evidence[place] - exact.log_evidence)
        own = max(exact.mean_error, exact.sd_error)
        found.append((of_mean, of_sd, of_evidence, own))
    return found


def moments(inputs, outputs):
    """Print errors of means, standard deviations and log evidence."""
    cells = "mean, sds: worst", "median", "sd, %: worst", "median", "log evidence: worst", "median"
    columns = "outputs than inputs", "observations", *cells, "reference's standard error"
    head("inputs", *columns, left=2)
    for kind in KINDS:
        groups = defaultdict(list)
        for n in inputs:
            for d in outputs:
                if kind == "with known inputs" and n == 1:
                    continue
                size = "at least as many" if d >= n else "fewer"
                groups[size] += errors_of(make_case(kind, n, d))
        for group, errors in groups.items():
            of_mean, of_sd, evidence, own = zip(*errors, strict=True)
            cells = []
            for part in (np.concatenate(of_mean), 100 * np.concatenate(of_sd), evidence):
                cells += [np.max(part), np.median(part)]
            row(kind, group, len(errors), *(f"{x:.2g}" for x in (*cells, max(own))))


if __name__ == "__main__":
    given = options(inputs=SIZES, outputs=SIZES)
    with jax.enable_x64(True):
        moments(given.inputs, given.outputs)
