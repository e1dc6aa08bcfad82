"""Errors of log density and log survival against the bank of 40-digit references.

The error of a value is ``|error| / max(1, |value| / 10)``; that of OpenTURNS stands next to ours.
"""

import itertools
import re

import jax
import numpy as np
from tqdm import tqdm

from nn_uq_dist import uniform_sum
from tests.bank.loader import float32_cases, float64_cases
from tests.benchmarks._command_line import head, row
from tests.benchmarks._openturns_peers import combination
from tests.uniform_sum.stacks import stacked


def relative_error(value, reference):
    """The scale of the bar: absolute up to 10 nats, relative beyond."""
    return np.abs(value - reference) / np.maximum(1.0, np.abs(reference) / 10.0)


def ours(cases):
    """Log density and log survival of all cases by name, those of equal type compiled once."""
    results = {}
    for stack in tqdm(stacked(cases), desc="compiling and evaluating"):
        arguments = stack.distribution_per_point()
        functions = uniform_sum.logpdf, uniform_sum.logsf
        rows = [stack.rows(np.asarray(function(*arguments), float)) for function in functions]
        for (case, density), (_, survival) in zip(*rows, strict=True):
            results[case.name] = density, survival
    return results


def openturns_error(case):
    """Worst error of the log density by OpenTURNS, infinite where it has none."""
    points = case.x.astype(float)[:, None]
    found = np.asarray(combination(case.weights, case.normal_scale).computeLogPDF(points))
    with np.errstate(invalid="ignore"):
        error = relative_error(found[:, 0], case.log_density)
    return np.max(np.where(np.isnan(error), np.inf, error))


def distribution(case):
    """What cases have in common that differ in the size of the normal part, in scale or type."""
    return re.sub("(?<=_normal_part)_[0-9.]+|_times_.*|_float32", "", case.name)


def report(cases, title, *, with_peer):
    """Print worst errors, one row for each distribution."""
    results = ours(cases)
    print(f"\n## {title}")
    head("distribution", "weights", "log density", "log survival", "OpenTURNS log density")
    for name, same in itertools.groupby(sorted(cases, key=distribution), distribution):
        group = list(same)
        errors = [
            [
                relative_error(*pair).max()
                for pair in zip(
                    results[case.name], (case.log_density, case.log_survival), strict=True
                )
            ]
            for case in group
        ]
        size = len(group[0].weights)
        has_peer = with_peer and np.count_nonzero(group[0].weights) == size > 1
        peer = f"{max(map(openturns_error, group)):.0e}" if has_peer else "-"
        row(name, size, *(f"{error:.0e}" for error in np.max(errors, axis=0)), peer)


if __name__ == "__main__":
    with jax.enable_x64(True):
        report(float64_cases(), "float64, from the center to 0.993 of the edge", with_peer=True)
    report(float32_cases(), "float32, at float32-rounded arguments", with_peer=False)
