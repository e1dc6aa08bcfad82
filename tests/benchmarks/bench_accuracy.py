"""Errors of log density and log survival against the bank of 40-digit references.

Run with ``python -m tests.benchmarks.bench_accuracy`` or ``make bench``. The error of a value is
``|error| / max(1, |value| / 10)``; The error of OpenTURNS is shown next to ours if it is installed.
"""

from collections import defaultdict
from collections.abc import Sequence

import jax
import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from nn_uq_dist import uniform_sum
from tests.bank.loader import ValueCase, float32_cases, float64_cases


def relative_error(value: NDArray[np.floating], reference: NDArray[np.floating]) -> NDArray:
    """The scale of the bar: absolute up to 10 nats, relative beyond."""
    return np.abs(value - reference) / np.maximum(1.0, np.abs(reference) / 10.0)


def ours(cases: Sequence[ValueCase]) -> dict[str, tuple[NDArray, NDArray]]:
    """Log density and log survival of all cases, those of equal type compiled once."""
    groups = defaultdict(list)
    for case in cases:
        groups[len(case.weights), case.normal_scale is not None].append(case)
    results = {}
    for (_, has_normal_part), members in tqdm(groups.items(), desc="compiling and evaluating"):
        x = np.concatenate([case.x for case in members])
        weights = np.concatenate([np.tile(c.weights, (len(c.x), 1)) for c in members])
        scale = None
        if has_normal_part:
            scale = np.concatenate([np.full(len(c.x), c.normal_scale, c.x.dtype) for c in members])
        values = [
            np.asarray(function(x, weights, scale), float)
            for function in (uniform_sum.logpdf, uniform_sum.logsf)
        ]
        ends = np.cumsum([len(case.x) for case in members])[:-1]
        for case, density, survival in zip(
            members, *(np.split(value, ends) for value in values), strict=True
        ):
            results[case.name] = density, survival
    return results


def openturns(case: ValueCase) -> tuple[NDArray, NDArray]:
    """Log density and log survival by OpenTURNS."""
    import openturns as ot

    parts = [ot.Uniform(-1.0, 1.0)] * len(case.weights)
    coefficients = case.weights.astype(float).tolist()
    if case.normal_scale is not None:
        parts, coefficients = [*parts, ot.Normal()], [*coefficients, float(case.normal_scale)]
    distribution = ot.LinearCombinationDistribution(parts, coefficients)
    points = case.x.astype(float)[:, None]
    density = np.asarray(distribution.computeLogPDF(points))[:, 0]
    with np.errstate(divide="ignore"):
        survival = np.log(np.asarray(distribution.computeComplementaryCDF(points))[:, 0])
    return density, survival


def report(cases: Sequence[ValueCase], title: str, *, with_peer: bool) -> None:
    """Print worst errors, one row for each case."""
    results = ours(cases)
    print(f"\n## {title}\n")
    print("| distribution | weights | log density | log survival | OpenTURNS log density |")
    print("|---|---:|---:|---:|---:|")
    for case in cases:
        density, survival = results[case.name]
        peer = "-"
        nonzero = np.count_nonzero(case.weights)
        if with_peer and nonzero == len(case.weights) > 1:
            with np.errstate(invalid="ignore"):
                error = relative_error(openturns(case)[0], case.log_density)
            peer = f"{np.max(np.where(np.isnan(error), np.inf, error)):.0e}"
        print(
            f"| {case.name} | {len(case.weights)} "
            f"| {relative_error(density, case.log_density).max():.0e} "
            f"| {relative_error(survival, case.log_survival).max():.0e} | {peer} |"
        )


if __name__ == "__main__":
    with jax.enable_x64(True):
        report(float64_cases(), "float64, from the center to 0.993 of the edge", with_peer=True)
    report(float32_cases(), "float32, at float32-rounded arguments", with_peer=False)
