"""Verdicts in words: what part of the error dominates, and how it shows, with their thresholds.

Statistics are compared with what chance alone gives. How much more counts as a difference depends
on the scatter of the statistic, so each kind has a threshold of its own.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

MOMENTS_IN_WORDS = ("mean", "sd", "skewness")
# Quantiles and tails that are looked at, whatever a table shows.
LEVELS, TAILS = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99), (0.001, 0.01)
# Moments: a difference counts beyond this many standard errors; by chance once in 370.
MOMENT_STANDARD_ERRORS = 3.0
# Quantiles, tails, kurtosis and PIT: they are many, and their standard errors scatter more, so a
# difference counts only if chance shows it once in 16,000 cases (PIT: once in a thousand).
OTHER_STANDARD_ERRORS = 4.0
SMALLEST_P_VALUE = 1e-3
# Differences of this many roundings of the outputs' type count as none: those of pairs with a
# linear network have no standard error.
ROUNDINGS = 16.0
# A skewness this small is not a relevant feature of a distribution, however many draws show it.
NEGLIGIBLE_SKEWNESS = 0.1
# Kolmogorov-Smirnov distances count beyond this many times their mean, by chance in 0.5% of cases.
KS_NOISE_FACTOR = 2.0
# Kolmogorov-Smirnov distances up to which an error is called small, and moderate. The density of a
# normal distribution that is 5% (25%) too wide is 0.012 (0.056) away, one shifted by a tenth of its
# standard deviation is 0.04 away.
KS_SMALL, KS_MODERATE = 0.02, 0.1
# Distances of a normal distribution from one whose mean is off by one sd, whose sd is off by 100%,
# and whose skewness is off by 1, to first order: phi(0), phi(1) and, by Edgeworth's series, phi(0)
# / 6.
MEAN_DISTANCE, SD_DISTANCE, SKEWNESS_DISTANCE = 0.4, 0.24, 0.066
# A table of joint calibration shows an error by chance in one of this many cases (Bonferroni's
# bound), whatever the number of its rows.
TABLES_PER_FALSE_ALARM = 100
# The joint distribution dominates if draws of the linear distribution show more than this share of
# the distance.
JOINT_SHARE = 0.5


class Verdict(NamedTuple):
    """What dominates the error of an output, and a sentence."""

    dominates: str
    words: str


FITTED = Verdict(
    "unknown", "unknown: made of these draws; take fresh ones, paired_draws with another key"
)


def marginal_verdict(
    row: Mapping[tuple[str, str], float], eps: float, observations: int = 1
) -> Verdict:
    """Verdict on the distribution of one output from its row in the table of `summary`.

    The distribution of an output is exact for the linearized network, so any difference is due to
    the linearization, to chance, or to the rounding `eps` of the type of the outputs. Differences
    of mean and sd count as often as `observations` share what is inferred: the posterior of a mean
    that is off by `d` standard deviations is off by ``d sqrt(n)`` of its own.
    """
    if not np.isfinite(row["mean", "monte_carlo"]):
        return Verdict("unknown", "too few finite draws")
    if not np.isfinite(row["kolmogorov_smirnov", "monte_carlo"]):
        return Verdict("unknown", "the analytic distribution is not defined")
    if row["sd", "monte_carlo"] == 0:
        off = abs(row["mean", "error"]) + row["sd", "analytic"]
        # Those of a constant about zero are as narrow as variances may be.
        if off <= ROUNDINGS * eps * abs(row["mean", "monte_carlo"]) + eps**2.5:
            return Verdict("noise", "constant, as all draws")
        return Verdict("linearization", "linearization, large: all draws are equal")
    distance, sd = row["kolmogorov_smirnov", "monte_carlo"], row["sd", "monte_carlo"]
    # Of probabilities, and of values in standard deviations.
    rounding = ROUNDINGS * eps * (1 + abs(row["mean", "monte_carlo"]) / sd)
    root = observations**0.5
    features = _features(row, rounding, root)
    noise = KS_NOISE_FACTOR * row["kolmogorov_smirnov", "noise_floor"]
    many = f" for {observations} observations" if observations > 1 else ""
    if distance > max(noise, rounding) or features:
        size = _size(max([distance, *features.values()]))
        described = ", ".join(features) or "no single moment stands out"
        return Verdict("linearization", f"linearization, {size}{many}: {described}")
    hidden = ""
    if many:
        unseen = MOMENT_STANDARD_ERRORS * row["mean", "standard_error"] * root / sd
        hidden = f"; shifts of up to {unseen:.1g} sd{many} would not show"
    elif noise > KS_MODERATE:
        hidden = f"; with so few draws distances of up to {noise:.1g} would not show"
    return Verdict("noise", f"noise: no difference beyond chance{hidden}")


def _size(distance: float) -> str:
    """Return a word for a Kolmogorov-Smirnov distance."""
    return "small" if distance <= KS_SMALL else "moderate" if distance <= KS_MODERATE else "large"


def _features(
    row: Mapping[tuple[str, str], float], rounding: float, root: float
) -> dict[str, float]:
    """What differs by more than chance, in words, and how large a distance it stands for.

    Quantiles, tails, kurtosis and PIT are named only if the moments and the support show nothing.
    """
    features = {}
    sd, skewness = row["sd", "monte_carlo"], row["skewness", "analytic"]

    def counts(statistic: str, most_errors: float = MOMENT_STANDARD_ERRORS) -> bool:
        unit = sd if statistic in {"mean", "sd"} or statistic.startswith("q") else 1.0
        least = max(most_errors * row[statistic, "standard_error"], rounding * unit)
        return abs(row[statistic, "error"]) > least

    if counts("sd"):
        ratio = row["sd", "analytic"] / sd
        side = "wide" if ratio > 1 else "narrow"
        size = f"{ratio:.2g} times" if ratio > 10 else _percent(abs(ratio - 1))
        features[f"sd {size} too {side}"] = SD_DISTANCE * abs(ratio - 1) * root
    if counts("mean"):
        shift = -row["mean", "error"] / sd
        sum_of_all = f", together by {shift * root:+.2g} sd" if root > 1 else ""
        features[f"draws shifted by {shift:+.2g} sd{sum_of_all}"] = (
            MEAN_DISTANCE * abs(shift) * root
        )
    off = abs(row["skewness", "error"])
    if counts("skewness") and off > NEGLIGIBLE_SKEWNESS:
        instead = f" instead of {skewness:+.2g}" if abs(skewness) > NEGLIGIBLE_SKEWNESS else ""
        words = f"draws skewed ({row['skewness', 'monte_carlo']:+.2g}{instead})"
        features[words] = SKEWNESS_DISTANCE * off
    if (outside := row["draws", "outside_support"]) > 0:
        features[f"{_percent(outside)} of the draws beyond the support"] = 0.0
    if features:
        return features
    names = [name for name, value in row if value == "error" and name not in MOMENTS_IN_WORDS]
    others = [n.replace("_", " ") for n in names if counts(n, OTHER_STANDARD_ERRORS)]
    differ = "differs" if len(others) == 1 else "differ"
    if row["pit", "p_value"] < SMALLEST_P_VALUE:
        others.append("the PIT values")
        differ = "differ"
    return {f"{' and '.join(others[:2])} {differ} by more than chance": 0.0} if others else {}


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.095 else f"{100 * share:.2g}%"


def dominating_part(
    distance: float, p_value: float, joint: float, joint_p_value: float, kind: str, num_rows: int
) -> str:
    """What dominates the joint calibration of one output given the ones before it.

    It is ``"noise"``, the `kind` of the joint distribution, ``"linearization"`` or ``"unknown"``,
    by the distance from uniform of the network's draws under the joint distribution, by the
    probability that chance shows as much in this row if that is right, and by the same for draws of
    the linear distribution, which only an error of the joint distribution can misplace.
    """
    if not np.isfinite(distance + joint):
        return "unknown"
    level = 1 / (2 * num_rows * TABLES_PER_FALSE_ALARM)
    is_seen = joint_p_value < level
    if not is_seen and p_value >= level:
        return "noise"
    return kind if is_seen and joint > JOINT_SHARE * distance else "linearization"


def dependence_verdict(dominates: str) -> Verdict:
    """Verdict on an output whose marginal is within the noise, from its joint calibration."""
    if dominates in {"noise", "unknown"}:
        jointly = ", alone and jointly" if dominates == "noise" else "; jointly unknown"
        return Verdict("noise", f"noise: no difference beyond chance{jointly}")
    words = f"{dominates}: alone within the noise, misplaced given the outputs before it"
    return Verdict(dominates, words)


def joint_verdict(
    places: Sequence[str], distances: Sequence[float], dominates: Sequence[str], correlation: str
) -> str:
    """What dominates the error of a joint distribution; no error only if no table shows one.

    The places are the outputs and ``"radius"``, with their distances and what dominates these.
    """
    rows = zip(distances, places, dominates, strict=True)
    seen = [row for row in rows if row[2] not in {"noise", "unknown"}]
    if not seen:
        return correlation or "no error exceeds the noise of the draws"
    distance, where, cause = max(seen, key=lambda row: row[0])
    return (
        f"{_size(distance)} error by the {cause}: Kolmogorov-Smirnov distance {distance:.2g} "
        f"(see {where})"
    )


def correlation_words(
    difference: np.ndarray, standard_error: np.ndarray, names: Sequence[str], eps: float
) -> str:
    """What to say if correlations of draws and tangent differ by more than chance and `eps`."""
    above = np.triu(np.ones(difference.shape, bool), 1)
    size = np.abs(difference)
    with np.errstate(divide="ignore"):
        scores = np.divide(
            size, standard_error, np.zeros_like(size), where=above & (size > ROUNDINGS * eps)
        )
    level = 1 / (2 * max(above.sum(), 1) * TABLES_PER_FALSE_ALARM)
    if scores.max() <= -ndtri(level):
        return ""
    i, j = divmod(int(np.argmax(scores)), len(names))
    return (
        f"small error by the linearization: the correlation of {names[i]} and {names[j]} is off by "
        f"{difference[i, j]:.2g}; nothing else shows it"
    )
