"""The row of one output in the table of `summary`: its law against its draws."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.diagnostics._arguments import MINIMUM_DRAWS
from nn_uq_dist.diagnostics._distances import (
    Distance,
    kolmogorov_smirnov,
    total_variation,
    uniformity_p_value,
    wasserstein,
    wasserstein_of_probabilities,
)
from nn_uq_dist.diagnostics._estimates import (
    UNKNOWN,
    Estimate,
    exceedances,
    sample_moments,
    sample_quantiles,
)
from nn_uq_dist.diagnostics._log_scores import LogScores, log_scores
from nn_uq_dist.diagnostics._paired import Paired, PairedValue, sharper

Array = NDArray[np.float64]
Row = dict[tuple[str, str], Any]

MOMENTS = ("mean", "sd", "skewness", "excess_kurtosis")
UNKNOWN_DISTANCE = Distance(np.nan, np.nan, np.nan)
UNKNOWN_SCORES = LogScores(np.nan, np.nan, np.nan, np.nan)


class Analytic(NamedTuple):
    """Values of the law of one output."""

    moments: Array  # in the order of MOMENTS
    quantiles: Array
    tail_points: Array  # lower ones, then upper ones
    tail_masses: Array  # beyond them
    edges: Array  # of the bins, with the ends of the support
    masses: Array  # of the bins, with those beyond the support
    grid: Array
    cdf: Array  # on the grid


class Sampled(NamedTuple):
    """The draws of one output and where they lie under its law."""

    total: int  # draws, including those that are not finite
    draws: Array  # the finite ones, ascending
    log_density: Array  # at these
    probabilities: Array  # of the finite draws, in the order in which they came
    outside_support: float  # fraction of the finite draws
    paired: Paired | None = None  # estimates from pairs, None for plain draws
    is_paired: bool = False  # true even if there are too few pairs


def output_row(analytic: Analytic, sampled: Sampled, levels: Array, tails: Array) -> Row:
    """Every number of the row but the verdict.

    Parameters
    ----------
    analytic, sampled
        The law and the draws.
    levels, tails
        Levels of the quantiles and of the tails.

    Returns
    -------
    dict
        Keys are pairs of statistic and value, as the columns of the table. Values that need draws
        are NaN if fewer than 100 draws are finite.
    """
    count = sampled.draws.size
    is_enough = count >= MINIMUM_DRAWS
    statistics: Mapping[str, Estimate | PairedValue] = {}
    if is_enough and sampled.paired is not None:
        statistics = _paired_statistics(sampled.paired, levels, tails)
    elif is_enough:
        statistics = _statistics(analytic, sampled.draws, levels, tails)
    row: Row = {}
    for name, value in _analytic_values(analytic, levels, tails).items():
        estimate = statistics.get(name, UNKNOWN)
        row[name, "analytic"] = value
        row[name, "monte_carlo"] = estimate.value
        row[name, "error"] = value - estimate.value
        row[name, "standard_error"] = estimate.standard_error
        if sampled.is_paired:
            row[name, "worth"] = estimate.worth if isinstance(estimate, PairedValue) else np.nan
    if is_enough and not np.isnan(sampled.probabilities).any():
        row |= _comparisons(analytic, sampled)
    else:  # too few draws, or a law with an invalid parameter
        unknown = [UNKNOWN_DISTANCE] * 3
        row |= _comparison_columns(unknown, UNKNOWN_SCORES, np.nan, UNKNOWN_DISTANCE)
    row["draws", "total"] = sampled.total
    row["draws", "non_finite"] = sampled.total - count
    row["draws", "outside_support"] = sampled.outside_support
    return row


def _analytic_values(analytic: Analytic, levels: Array, tails: Array) -> dict[str, float]:
    names = _statistic_names(levels, tails)
    values = [*analytic.moments, *analytic.quantiles, *analytic.tail_masses]
    return dict(zip(names, map(float, values), strict=True))


def _statistic_names(levels: Array, tails: Array) -> list[str]:
    return [*MOMENTS, *(f"q{level:g}" for level in levels), *_tail_names(tails)]


def _tail_names(tails: Array) -> list[str]:
    return [f"{side}_tail_{level:g}" for side in ("lower", "upper") for level in tails]


def _statistics(
    analytic: Analytic, draws: Array, levels: Array, tails: Array
) -> Mapping[str, Estimate]:
    lower, upper = np.split(analytic.tail_points, 2)
    beyond = [*exceedances(draws, lower, above=False), *exceedances(draws, upper, above=True)]
    quantiles = sample_quantiles(draws, levels)
    return {
        **sample_moments(draws),
        **{f"q{level:g}": found for level, found in zip(levels, quantiles, strict=True)},
        **dict(zip(_tail_names(tails), beyond, strict=True)),
    }


def _paired_statistics(paired: Paired, levels: Array, tails: Array) -> Mapping[str, PairedValue]:
    names = _statistic_names(levels, tails)
    return dict(zip(names, [*paired.moments, *paired.quantiles, *paired.tails], strict=True))


def _comparisons(analytic: Analytic, sampled: Sampled) -> Row:
    draws = sampled.draws
    probabilities = np.sort(sampled.probabilities)
    binned, floor = total_variation(draws, analytic.edges, analytic.masses)
    is_constant = draws[0] == draws[-1]  # has no kernel density
    largest = kolmogorov_smirnov(probabilities)
    if sampled.paired is not None:
        largest = sharper(largest, sampled.paired.kolmogorov_smirnov)
    return _comparison_columns(
        [
            largest,
            wasserstein(draws, analytic.grid, analytic.cdf),
            Distance(*binned, floor),
        ],
        UNKNOWN_SCORES if is_constant else log_scores(draws, sampled.log_density),
        uniformity_p_value(sampled.probabilities),
        wasserstein_of_probabilities(probabilities),
    )


def _comparison_columns(
    distances: list[Distance], scores: LogScores, p_value: float, misplaced: Distance
) -> Row:
    row: Row = {}
    names = ("kolmogorov_smirnov", "wasserstein", "total_variation")
    for name, distance in zip(names, distances, strict=True):
        row[name, "monte_carlo"] = distance.value
        row[name, "standard_error"] = distance.standard_error
        row[name, "noise_floor"] = distance.noise_floor
    row["log_score", "analytic"] = scores.law
    row["log_score", "monte_carlo"] = scores.kernel
    row["log_score", "error"] = scores.difference
    row["log_score", "standard_error"] = scores.standard_error
    row["pit", "p_value"] = p_value
    row["pit", "distance"] = misplaced.value
    row["pit", "standard_error"] = misplaced.standard_error
    row["pit", "noise_floor"] = misplaced.noise_floor
    return row
