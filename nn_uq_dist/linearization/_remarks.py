"""Remarks on what a smooth, increasing map of a linear law cannot represent."""

from typing import Any

import numpy as np

# More equal draws than this share, and at least this number, indicate a point mass.
_POINT_MASS, _FEWEST_EQUAL = 0.01, 5
# Share of knots at which the estimated map would decrease.
_FLAT = 0.1
# Excess kurtosis, 0 for a normal law; above this value moments rest on a few draws.
_HEAVY = 10.0


def remarks(network: Any, flattened: Any, own_scale: Any) -> tuple[str, ...]:
    """A remark on each output, empty where there is nothing to say.

    Parameters
    ----------
    network
        Draws of the network's outputs, shape ``(n, J)``.
    flattened, own_scale
        As in `CorrectedLinearization`, shape ``(J,)``; `own_scale` may be ``None``.
    """
    own_scale = np.zeros(network.shape[1]) if own_scale is None else own_scale
    return tuple(
        "; ".join(_of_output(column, float(flat), float(scale)))
        for column, flat, scale in zip(network.T, flattened, own_scale, strict=True)
    )


def _of_output(draws: Any, flat: float, own_scale: float) -> list[str]:
    found = []
    if draws.std() == 0:
        return ["all draws are equal: a constant has no density, and its law is arbitrary"]
    values, counts = np.unique(draws, return_counts=True)
    share = counts.max() / draws.size
    if share > _POINT_MASS and counts.max() >= _FEWEST_EQUAL:
        value = values[counts.argmax()]
        found.append(
            f"point mass: {share:.0%} of the draws are {value:.4g}, which a density cannot "
            f"represent; the law puts about that probability into a narrow peak"
        )
    elif flat > _FLAT:
        found.append(
            f"narrow peak: the estimated quantiles of the network do not increase at {flat:.0%} of "
            f"the knots, where the density is arbitrary"
        )
    if own_scale > 0:
        found.append(
            "no sensitivity at the mean: a normal law stands in for the linear one, and its "
            "dependence on other outputs is not represented"
        )
    kurtosis = np.mean((draws - draws.mean()) ** 4) / draws.var() ** 2 - 3
    if kurtosis > _HEAVY:
        found.append(
            f"heavy tail: excess kurtosis {kurtosis:.2g}; sd and tails rest on a few draws"
        )
    return found
