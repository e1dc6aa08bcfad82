"""Tails of a linearized network's distribution by several methods, against 40-digit references."""

from collections.abc import Callable
from fractions import Fraction

import jax
import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

import nn_uq_dist as nuq
from tests.bank.reference import log_values
from tests.benchmarks import _peers as peers

TAILS = (1e-3, 1e-6, 1e-9, 1e-12)
NEAR_EDGE = 0.98
NUM_OUTPUTS = 3
NUM_DRAWS = 1_000_000

type FloatArray = NDArray[np.float64]
type Values = tuple[FloatArray, FloatArray]


def ours(dtype: str) -> Callable[[FloatArray, FloatArray], Values]:
    """Density and survival function by `nn_uq_dist.uniform_sum`, as logarithms."""

    def values(weights: FloatArray, x: FloatArray) -> Values:
        with jax.enable_x64(dtype == "float64"):
            arguments = x.astype(dtype), weights.astype(dtype)
            log_density = nuq.uniform_sum.logpdf(*arguments)
            log_survival = nuq.uniform_sum.logsf(*arguments)
        return np.asarray(log_density, float), np.asarray(log_survival, float)

    return values


def normal(weights: FloatArray, x: FloatArray) -> Values:
    """The normal distribution of the same variance."""
    scale = np.sqrt((weights**2).sum() / 3)
    return norm.logpdf(x, scale=scale), norm.logsf(x, scale=scale)


def openturns(weights: FloatArray, x: FloatArray) -> Values:
    """The distribution that OpenTURNS makes of the same weights."""
    import openturns as ot

    distribution = ot.LinearCombinationDistribution(
        [ot.Uniform(-1.0, 1.0)] * len(weights), weights.tolist()
    )
    points = x[:, None]
    survival = np.asarray(distribution.computeComplementaryCDF(points))[:, 0]
    return np.asarray(distribution.computeLogPDF(points))[:, 0], np.log(survival)


def real_axis(weights: FloatArray, x: FloatArray) -> Values:
    """The inverse Fourier integral on the real axis."""
    density, survival = peers.on_the_real_axis(weights, x)
    return np.log(np.maximum(density, 0)), np.log(np.maximum(survival, 0))


def fixed_grid(weights: FloatArray, x: FloatArray) -> Values:
    """The inverse Fourier integral on a grid of 2048 frequencies; density only."""
    return np.log(peers.on_a_fixed_grid(weights, x)), np.full(len(x), np.nan)


def drawn(weights: FloatArray, x: FloatArray) -> Values:
    """Draws of the linear distribution; no density."""
    signs = np.random.default_rng(0).uniform(-1, 1, size=(NUM_DRAWS, len(weights)))
    draws = signs @ weights
    return np.full(len(x), np.nan), np.log([np.mean(draws > value) for value in x])


METHODS = {
    "nn_uq_dist, float64": ours("float64"),
    "nn_uq_dist, float32": ours("float32"),
    "normal distribution (delta method)": normal,
    "inverse Fourier integral": real_axis,
    "the same, 2048 fixed frequencies": fixed_grid,
    "OpenTURNS": openturns,
    f"Monte Carlo, {NUM_DRAWS:,} draws": drawn,
}


def distribution_errors(title: str, net: nuq.LeakyReLUNetwork, distribution: nuq.Input) -> None:
    """Print worst relative errors of tail probabilities and densities over some outputs.

    The points have the upper tail probabilities `TAILS` under the linear distribution; the last one
    lies at 0.98 of the edge of the support.
    """
    rows = np.asarray(nuq.linearize(net, distribution).marginals().weights, float)
    rows = rows[:: len(rows) // NUM_OUTPUTS][:NUM_OUTPUTS]
    errors: dict[str, list[FloatArray]] = {name: [] for name in METHODS}
    edge = []
    for weights in rows:
        with jax.enable_x64(True):
            x = -np.asarray(nuq.uniform_sum.ppf(np.array(TAILS), weights))
        x = np.append(x, NEAR_EDGE * np.abs(weights).sum())
        exact = [Fraction(float(w)) for w in weights]
        reference = [log_values(Fraction(float(point)), exact) for point in x]
        edge.append(float(reference[-1].log_survival))
        for name, method in METHODS.items():
            with np.errstate(divide="ignore", invalid="ignore"):
                log_density, log_survival = method(weights, x)
                pairs = [(log_survival, 1), (log_density, 0)]
                errors[name].append(
                    np.stack(
                        [
                            np.abs(np.expm1(value - np.array([float(r[k]) for r in reference])))
                            for value, k in pairs
                        ]
                    )
                )
    columns = [f"{p:.0e}" for p in TAILS] + [f"{NEAR_EDGE} of edge"]
    print(f"\n## Distribution of the linearized network: {title}, {NUM_OUTPUTS} outputs\n")
    print(f"At {NEAR_EDGE} of the edge P(Y > q) is {np.exp(min(edge)):.0e} at the least.\n")
    print(
        "| relative error of P(Y > q) at | " + " | ".join(columns) + " | density at 1e-6 | "
        f"density, {NEAR_EDGE} of edge |"
    )
    print("|---|" + "---:|" * (len(columns) + 2))
    for name, parts in errors.items():
        worst = np.max(np.stack(parts), axis=0)
        shown = [*worst[0], worst[1][TAILS.index(1e-6)], worst[1][-1]]
        cells = ["-" if np.isnan(v) and np.isnan(worst).any() else f"{v:.1g}" for v in shown]
        print(f"| {name} | " + " | ".join(cells) + " |")
