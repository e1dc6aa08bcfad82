"""Inputs given the outputs of a linear model: moments, log evidence and draws, in float64.

Run with ``python -m tests.benchmarks.bench_input_posterior`` or ``make bench
BENCH=bench_input_posterior``; ``--inputs 4 --outputs 1 4`` for a part, ``--draws 0`` without draws,
``--time`` for the times of moments alone.
"""

import argparse
from collections import defaultdict
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

import nn_uq_dist as nuq
from tests.benchmarks._posterior_reference import (
    Observed,
    Reference,
    by_mpmath,
    by_weighted_draws,
)
from tests.benchmarks._timing import markdown_table, time_interleaved

KINDS = ("normal", "box", "box and normal", "triangular", "with known inputs")
SIZES = (1, 2, 4, 8, 12)
NOISE = (0.02, 0.1, 0.3)  # in standard deviations of the outputs
MODELS, DATA_SETS = 2, 2
SIZES_OF_DRAWS = ((1, 1), (2, 1), (4, 4), (12, 4), (12, 12))  # inputs, outputs

Array = NDArray[np.float64]


class Case(NamedTuple):
    """A batch of linear models with their inputs."""

    linear: nuq.Linearization
    box: Array  # (MODELS, N_x, n)
    normal: Array  # (MODELS, N_x, m)
    triangular: bool

    def observed(self, noise: Array, y: Array, model: int) -> Observed:
        """What the reference needs."""
        jacobian = np.asarray(self.linear.jacobian)[model]
        deviation = y - np.asarray(self.linear.mean)[model]
        return Observed(
            self.box[model], self.normal[model], jacobian, deviation, noise, self.triangular
        )


def make_case(kind: str, num_inputs: int, num_outputs: int) -> Case:
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
        distribution: Any = nuq.Input.normal(loc, scale_tril=normal)
    elif kind == "triangular":
        distribution = nuq.Input.triangular(loc - width, loc + width)
    else:
        distribution = nuq.Input.box(loc, half_width) + nuq.Input.normal(0 * loc, scale)
    jacobian = rng.normal(size=(MODELS, num_outputs, num_inputs))
    linear = nuq.Linearization(rng.normal(size=(MODELS, num_outputs)), jacobian, distribution)
    return Case(linear, box, normal, kind == "triangular")


def observe(linear: nuq.Linearization) -> tuple[Array, Array]:
    """Outputs (noise, data set, model, output) and the standard deviations of their noise."""
    scale = np.reshape(NOISE, (-1, 1, 1, 1)) * np.sqrt(np.asarray(linear.variance))
    key, key_noise = jax.random.split(jax.random.key(0))
    y = np.asarray(linear.sample(key, (len(NOISE), DATA_SETS)))
    return y + scale * np.asarray(jax.random.normal(key_noise, y.shape)), scale


def reference(seen: Observed) -> Reference:
    """Of normal inputs in closed form, else by weighted draws."""
    return by_weighted_draws(seen) if seen.box.shape[-1] else by_mpmath(seen)


class Errors(NamedTuple):
    """Of the inputs of one observation: of means in sds, relative of sds, of the log evidence."""

    mean: Array
    sd: Array
    log_evidence: float
    of_reference: float

    @classmethod
    def of(cls, mean: Array, sd: Array, log_evidence: float, exact: Reference) -> "Errors":
        known = exact.sd == 0
        if np.any(sd[known] != 0):
            raise AssertionError("known inputs must have the variance 0")
        of_mean = np.abs(mean - exact.mean)[~known] / exact.sd[~known]
        of_sd = np.abs(sd / np.where(known, 1, exact.sd) - 1)[~known]
        return cls(
            of_mean, of_sd, log_evidence - exact.log_evidence, max(exact.mean_error, exact.sd_error)
        )


def errors_of(case: Case) -> dict[float, list[Errors]]:
    """Errors of all observations of the case, by the size of the noise."""
    y, scale = observe(case.linear)
    posterior = case.linear.input_posterior(y, noise_scale=scale)
    mean = np.asarray(posterior.mean - case.linear.input.mean)
    sd, evidence = np.sqrt(np.asarray(posterior.variance)), np.asarray(posterior.log_evidence)
    found = defaultdict(list)
    for place in np.ndindex(y.shape[:-1]):
        number, _, model = place
        exact = reference(case.observed(scale[number, 0, model], y[place], model))
        found[NOISE[number]].append(
            Errors.of(mean[place], sd[place], float(evidence[place]), exact)
        )
    return found


def row(group: tuple[str, str], errors: list[Errors]) -> str:
    """Worst and median errors of a group."""
    mean, sd = (np.concatenate([getattr(e, name) for e in errors]) for name in ("mean", "sd"))
    evidence = np.abs([e.log_evidence for e in errors])
    numbers = [mean.max(), np.median(mean), 100 * sd.max(), 100 * np.median(sd)]
    numbers += [evidence.max(), np.median(evidence), max(e.of_reference for e in errors)]
    return f"| {' | '.join(group)} | {len(errors)} | " + " | ".join(f"{x:.2g}" for x in numbers)


def moments(inputs: list[int], outputs: list[int]) -> None:
    """Print the table of moments."""
    print(
        "| inputs | outputs than inputs; noise | observations | mean, sds: worst | median "
        "| sd, %: worst | median | log evidence: worst | median | reference's standard error |\n"
        "|---|---|" + "---:|" * 8
    )
    for kind in KINDS:
        groups = defaultdict(list)
        for n in inputs:
            for d in outputs:
                if kind == "with known inputs" and n == 1:
                    continue
                size = "at least as many" if d >= n else "fewer"
                for noise, errors in errors_of(make_case(kind, n, d)).items():
                    groups[f"{size}; {'.02' if noise < 0.1 else '.1, .3'}"] += errors
        for group, errors in groups.items():
            print(row((kind, group), errors), "|", flush=True)


def draws(number: int) -> None:
    """Print errors of moments of draws, in standard errors."""
    print(
        f"\nOf {number} draws, noise 0.1, in standard errors:\n\n| inputs | numbers of inputs, "
        "outputs | means: worst | sds: worst | sd, %: worst |\n|---|---|---:|---:|---:|"
    )
    for kind in KINDS:
        for n, d in SIZES_OF_DRAWS:
            if kind == "with known inputs" and n == 1:
                continue
            case = make_case(kind, n, d)
            y, scale = observe(case.linear)
            y, scale = y[1, 0, 0], scale[1, 0, 0]
            exact = reference(case.observed(scale, y, 0))
            found = case.linear[0].input_posterior(y, noise_scale=scale)
            inputs = np.asarray(found.sample(jax.random.key(1), (number,)))
            inputs = (inputs - np.asarray(found.input.mean))[:, exact.sd > 0]
            unit = exact.sd[exact.sd > 0]
            gap = (inputs - exact.mean[exact.sd > 0]) / unit
            of_mean, of_variance = gap.mean(axis=0), (gap**2).mean(axis=0) - 1
            mean_error = np.hypot(number**-0.5, exact.mean_error)
            sd_error = np.hypot((gap**2).std(axis=0) / 2 / number**0.5, exact.sd_error)
            cells = (
                np.abs(of_mean / mean_error).max(),
                np.abs(of_variance / 2 / sd_error).max(),
                100 * np.abs(of_variance / 2).max(),
            )
            print(f"| {kind} | {n}, {d} |", " | ".join(f"{x:.2g}" for x in cells), "|", flush=True)


def times() -> None:
    """Print times of the moments of 50 observations of 12 inputs by 12 outputs."""
    case = make_case("box", 12, 12)
    y = case.linear[0].sample(jax.random.key(0), (50,))

    def get(*names: str) -> list[Any]:
        # A new one each time: what is known of the moments stays with the object.
        posterior = case.linear[0].input_posterior(y, noise_scale=0.3)
        return [getattr(posterior, name) for name in names]

    found = time_interleaved(
        {
            "mean": lambda: get("mean"),
            "mean, variance and covariance": lambda: get("mean", "variance", "covariance_matrix"),
        },
        num_rounds=3,
    )
    print(markdown_table(found, relative_to="mean"))


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--inputs", nargs="+", type=int, default=SIZES)
    parser.add_argument("--outputs", nargs="+", type=int, default=SIZES)
    parser.add_argument("--draws", type=int, default=100_000)
    parser.add_argument("--time", action="store_true")
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    if options.time:
        times()
        return
    moments(options.inputs, options.outputs)
    if options.draws:
        draws(options.draws)


if __name__ == "__main__":
    main()
