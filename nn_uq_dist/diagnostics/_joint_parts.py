"""The parts of the error of a joint law: energies, calibration, correlations."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.diagnostics._joint_statistics import (
    energy_distance,
    energy_of_random_halves,
    sample_correlation,
    uniform_distance,
)
from nn_uq_dist.diagnostics._verdict import dominating_part

Array = NDArray[np.float64]
EnergyRow = tuple[float, float, float, float, bool]

ENERGY_COLUMNS = ("energy", "standard_error", "distance", "coefficient", "counts")
NUM_SPLITS = 100
# A part counts if its energy distance exceeds this many standard deviations of the noise.
NOISE_FACTOR = 3.0
# The larger part dominates if it is at least this many times the other, as distances.
DOMINANCE = 2.0


def energies(
    draws: NDArray[Any], chosen: NDArray[Any], linear: Array, copula: Array, seed: int
) -> dict[str, EnergyRow]:
    """Rows of the table of energy distances, the outputs standardized by the draws.

    Parameters
    ----------
    draws, chosen
        All draws, and an even number of them.
    linear, copula
        Half as many draws of the linear law and of the copula.
    seed
        Of the random halves.
    """
    scale = draws.std(axis=0, dtype=np.float64)
    # A constant output has a spread of rounding errors only, which is no unit.
    rounding = 4 * np.finfo(np.float64).eps * np.abs(draws).max(axis=0).astype(np.float64)
    scale = np.where(scale > rounding, scale, linear.std(axis=0))
    center = draws.mean(axis=0, dtype=np.float64)
    network, linear, copula = ((x - center) / scale for x in (chosen, linear, copula))
    halves = energy_of_random_halves(network, NUM_SPLITS, seed)
    spread = float(np.std(halves, ddof=1))
    first = network[: len(network) // 2]
    rows = {}
    for name, x, y in (
        ("linearization", first, linear),
        ("copula", linear, copula),
        ("total", first, copula),
    ):
        value, error, coefficient = energy_distance(x, y)
        counts = value > NOISE_FACTOR * spread
        rows[name] = (value, error, np.sqrt(max(value, 0.0)), coefficient, counts)
    floor = float(np.mean(halves))
    rows["noise_floor"] = (floor, spread, np.sqrt(max(floor, 0.0)), np.nan, False)
    return rows


def energy_verdict(rows: dict[str, EnergyRow]) -> str:
    """What dominates the error of the joint law, by energy distances."""
    parts = {name: rows[name] for name in ("linearization", "copula") if rows[name][-1]}
    if not parts:
        if rows["total"][-1]:
            return "linearization and copula together exceed the noise, neither of them alone"
        return "no error exceeds the noise of the draws"
    larger = max(parts, key=lambda name: parts[name][2])
    if len(parts) == 2 and parts[larger][2] < DOMINANCE * min(row[2] for row in parts.values()):
        return "linearization and copula contribute alike"
    return f"the {larger} dominates"


def calibration_columns(white: Array, white_linear: Array) -> dict[str, Any]:
    """Columns of the table of calibration, from the independent scores of the draws.

    Parameters
    ----------
    white, white_linear
        Those of the network's draws and of exact linear draws, shapes ``(n, N_y)``.
    """
    size = white.shape[1]
    distance, p_value = uniform_distance(_uniform(white))
    copula_distance, _ = uniform_distance(_uniform(white_linear))
    floor, copula_floor = (
        np.full(size + 1, np.sqrt(np.pi / 2) * np.log(2) / np.sqrt(len(scores)))
        for scores in (white, white_linear)
    )
    described = np.hstack([white, np.sum(white**2, axis=1, keepdims=True) / size])
    return {
        "ks": distance,
        "noise_floor": floor,
        "copula_ks": copula_distance,
        "copula_noise_floor": copula_floor,
        "dominates": [
            dominating_part(*numbers)
            for numbers in zip(distance, floor, copula_distance, copula_floor, strict=True)
        ],
        "p_value": p_value,
        "mean": described.mean(axis=0),
        "sd": described.std(axis=0, ddof=1),
    }


def _uniform(white: Array) -> Array:
    """Probabilities of independent normal scores, the last column of their squared radius."""
    from scipy.special import gammainc, ndtr

    radius = np.sum(white**2, axis=1, keepdims=True)
    return np.hstack([ndtr(white), gammainc(white.shape[1] / 2, radius / 2)])


def correlation_matrices(draws: NDArray[Any], linearization: Any, joint: Any) -> dict[str, Array]:
    """Correlation matrices of the three laws, and their differences."""
    found, error = sample_correlation(draws)
    linear = np.asarray(linearization.correlation, np.float64)
    covariance = np.asarray(joint.covariance_matrix, np.float64)
    sd = np.sqrt(np.diag(covariance))
    copula = covariance / np.outer(sd, sd)
    return {
        "monte_carlo": found,
        "standard_error": error,
        "linear": linear,
        "copula": copula,
        "linearization_error": linear - found,
        "copula_error": copula - linear,
    }
