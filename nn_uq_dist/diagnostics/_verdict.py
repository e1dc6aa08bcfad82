"""Words for what a table says: which part of the error dominates an output, and how it shows."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

# A difference counts beyond this many standard errors: by chance once in 370 cases.
STANDARD_ERRORS = 3.0
# A Kolmogorov-Smirnov distance counts beyond this many times its mean: by chance in 0.5%.
NOISE_FACTOR = 2.0
# Kolmogorov-Smirnov distances up to which an error is called small, and moderate. The density of a
# normal law that is 5% (25%) too wide is 0.012 (0.056) away, one shifted by a tenth of its standard
# deviation 0.04.
SMALL, MODERATE = 0.02, 0.1
# The copula dominates if it alone makes more than this share of the whole distance.
DOMINANCE = 0.5


class Verdict(NamedTuple):
    """What dominates the error of an output, and a sentence."""

    dominates: str
    words: str


def marginal_verdict(row: Mapping[tuple[str, str], float]) -> Verdict:
    """Verdict on the law of one output from the numbers of its row in the table of `summary`.

    The law of an output is exact for the linearized network, so that all that can differ is the
    linearization, or the draws by chance.
    """
    if not np.isfinite(row["mean", "monte_carlo"]):
        return Verdict("unknown", "too few finite draws")
    if not np.isfinite(row["kolmogorov_smirnov", "monte_carlo"]):
        return Verdict("unknown", "the analytic law is not defined")
    if row["sd", "monte_carlo"] == 0:
        return Verdict("linearization", "linearization, large: all draws are equal")
    distance = row["kolmogorov_smirnov", "monte_carlo"]
    features = [*_features(row)]
    seen = distance > NOISE_FACTOR * row["kolmogorov_smirnov", "noise_floor"]
    if not seen and not features:
        return Verdict("noise", "noise: no difference beyond chance")
    size = "small" if distance <= SMALL else "moderate" if distance <= MODERATE else "large"
    described = ", ".join(features) or "no single moment stands out"
    return Verdict("linearization", f"linearization, {size}: {described}")


def dominating_part(distance: float, floor: float, copula: float, copula_floor: float) -> str:
    """What dominates the joint calibration of one output given the ones before it.

    Parameters
    ----------
    distance, floor
        Kolmogorov-Smirnov distance from uniform of the network's draws under the copula, and its
        expected value if the copula is right.
    copula, copula_floor
        The same of draws of the linear law, which the copula alone can misplace.

    Returns
    -------
    str
        ``"noise"``, ``"copula"`` or ``"linearization"``.
    """
    if not np.isfinite(distance + copula):
        return "unknown"
    is_seen = copula > NOISE_FACTOR * copula_floor
    if not is_seen and distance <= NOISE_FACTOR * floor:
        return "noise"
    return "copula" if is_seen and copula > DOMINANCE * distance else "linearization"


def dependence_verdict(dominates: str) -> Verdict:
    """Verdict on an output whose own law is within the noise, from its joint calibration."""
    if dominates == "unknown":
        return Verdict("noise", "noise: no difference beyond chance; jointly unknown")
    if dominates == "noise":
        return Verdict("noise", "noise: no difference beyond chance, alone and jointly")
    words = f"{dominates}: alone within the noise, misplaced given the outputs before it"
    return Verdict(dominates, words)


def _features(row: Mapping[tuple[str, str], float]) -> list[str]:
    """What differs by more than chance, in words."""
    found = []
    sd = row["sd", "monte_carlo"]

    def counts(statistic: str) -> bool:
        return abs(row[statistic, "error"]) > STANDARD_ERRORS * row[statistic, "standard_error"]

    if counts("sd"):
        ratio = row["sd", "analytic"] / sd
        side = "wide" if ratio > 1 else "narrow"
        found.append(f"sd {_percent(abs(ratio - 1))} too {side}")
    if counts("mean"):
        found.append(f"draws shifted by {-row['mean', 'error'] / sd:+.2g} sd")
    if counts("skewness") and abs(row["skewness", "monte_carlo"]) > 0.1:
        found.append(f"draws skewed ({row['skewness', 'monte_carlo']:+.2g})")
    outside = row["draws", "outside_support"]
    if outside > 0:
        found.append(f"{_percent(outside)} of the draws beyond the support")
    return found


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.095 else f"{100 * share:.2g}%"
