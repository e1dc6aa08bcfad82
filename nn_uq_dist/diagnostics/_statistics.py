"""Statistics of draws and of pairs beside those of the distributions: columns of a summary.

They are those of `nn_uq_dist.sampling`: draws are a weighted sample with equal weights. Their
standard errors assume independent draws of one distribution and nothing else about it.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.diagnostics.arguments import MINIMUM_DRAWS
from nn_uq_dist.diagnostics.output_functions import OutputFunctions, Tails
from nn_uq_dist.sampling import PairedStatistics
from nn_uq_dist.sampling.distribution_functions import exceedances, kolmogorov_smirnov, quantiles
from nn_uq_dist.sampling.weighted_sample import MOMENTS, WeightedSample

# Columns by statistic and value.
type Table = dict[tuple[str, str], NDArray[Any]]

# Values of a statistic.
VALUES = ("analytic", "monte_carlo", "error", "standard_error")
COMPARISONS = (
    *(("kolmogorov_smirnov", value) for value in ("monte_carlo", "standard_error", "noise_floor")),
    ("pit", "p_value"),
)
# Most draws for the uniformity test: with more it takes seconds and rejects every approximation.
UNIFORMITY_DRAWS = 10_000
# p-values of ArviZ's uniformity test, and the share of uniform samples with a smaller one, from
# 120,000 samples of 100 to 10,000 draws; samples of different sizes agree within 0.005.
_NOMINAL = (0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.49, 0.5)
_ACTUAL = (0.0, 0.0059, 0.0122, 0.0247, 0.0651, 0.1363, 0.2116, 0.292, 0.482, 0.744, 0.9967, 1.0)


def statistics(
    functions: OutputFunctions,
    columns: Sequence[FloatArray],
    levels: FloatArray,
    tails: FloatArray,
    paired: PairedStatistics | None,
) -> Table:
    """Columns of moments, quantiles and tails, NaN if fewer than 100 draws are finite."""
    from scipy.special import ndtr, ndtri

    points = functions.values(np.concatenate([ndtri(levels), ndtri(tails), -ndtri(tails)]))
    at = points[levels.size :]
    # The masses are those beyond the rounded points, not the requested ones.
    ends = functions.scores(at)
    ends[tails.size :] *= -1
    analytic = np.vstack([functions.moments, points[: levels.size], ndtr(ends)])
    names = [
        *MOMENTS,
        *(f"q{level:g}" for level in levels),
        *(f"{side}_tail_{level:g}" for side in ("lower", "upper") for level in tails),
    ]
    found = np.full((2, len(names), len(columns)), np.nan)
    estimates: list[Any]
    if paired is not None:
        of_pairs = at.reshape(-1, *paired.batch_shape, paired.num_outputs)
        estimates = [getattr(paired, name) for name in MOMENTS]
        estimates += [paired.quantile(levels), paired.exceedance(of_pairs)]
        parts = [np.reshape(part[:2], (2, -1, len(columns))) for part in estimates]
        found = np.concatenate(parts, axis=1)
    for j, y in enumerate(columns):
        if y.size < MINIMUM_DRAWS:
            found[..., j] = np.nan
        elif paired is None:
            sample = WeightedSample.equal(y.size)
            estimates = [statistic(sample, y) for statistic in MOMENTS.values()]
            estimates += [quantiles(sample, y, levels), exceedances(sample, y, at[:, j])]
            found[..., j] = np.hstack([np.reshape(part[:2], (2, -1)) for part in estimates])
    lower = slice(len(names) - 2 * tails.size, len(names) - tails.size)
    found[0, lower] = 1 - found[0, lower]
    values = dict(zip(VALUES, (analytic, found[0], analytic - found[0], found[1]), strict=True))
    return {(name, kind): rows[i] for i, name in enumerate(names) for kind, rows in values.items()}


def comparisons(
    columns: Sequence[FloatArray], positions: Tails, paired: PairedStatistics | None
) -> Table:
    """Columns of distances and of the PIT, NaN if they are not known."""
    found = np.full((len(columns), len(COMPARISONS)), np.nan)
    transforms = positions.probabilities()
    for j, column in enumerate(columns):
        in_order = transforms[positions.is_finite[:, j], j]
        # Too few draws, or a distribution with an invalid parameter.
        if column.size < MINIMUM_DRAWS or np.isnan(in_order).any():
            continue
        distance = kolmogorov_smirnov(in_order)
        if paired is not None:
            distance = paired.kolmogorov_smirnov(j, transforms[:, j])
        found[j] = [*distance, uniformity_p_value(in_order)]
    return dict(zip(COMPARISONS, found.T, strict=True))


def uniformity_p_value(probabilities: FloatArray) -> float:
    """P-value of the hypothesis that probabilities are independent and uniform.

    ArviZ's pointwise order statistics test with a Cauchy combination (``pot_c``), calibrated: in
    simulations its own p-value is below 0.05 for 6.5% of uniform samples, so it is replaced by the
    share of uniform samples with a smaller one. The first 10,000 draws are tested.

    References
    ----------
    Tesso and Vehtari (2026), arXiv 2603.02928, as cited by ArviZ for the truncated combination.
    """
    array_stats = checks.require_extra("arviz_stats.base", "diagnostics.summary").array_stats
    p_value, _, _ = array_stats.uniformity_test(probabilities[:UNIFORMITY_DRAWS], method="pot_c")
    return float(np.interp(p_value, _NOMINAL, _ACTUAL))
