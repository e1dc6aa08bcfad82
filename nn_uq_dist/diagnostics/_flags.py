"""Outputs of a linearized network that need a second look before their laws are trusted."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.basics import _checks
from nn_uq_dist.basics._known_values import in_float64
from nn_uq_dist.diagnostics._arguments import as_names, unbatched
from nn_uq_dist.diagnostics._sensitivity import first_order_indices
from nn_uq_dist.linearization._linear_model import LinearModel
from nn_uq_dist.linearization._linearized_network import Linearization

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]


def flag_outputs(
    linearization: LinearModel,
    *,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    negligible: float = 1e-6,
    dominated: float = 0.95,
) -> "pd.DataFrame":
    r"""List outputs that hardly vary, do not vary, or follow a single input.

    Parameters
    ----------
    linearization
        The linearized network, or any other `LinearModel`, without batch axes.
    input_names, output_names
        Names of the inputs and outputs. Default ``f[0]``, ... and ``y[0]``, ...
    negligible
        Ratio of variances, in (0, 1), below which an output is negligible compared with its
        neighbors.
    dominated
        Share of the variance, in (0, 1), above which one input dominates an output.

    Returns
    -------
    pandas.DataFrame
        One row per output, with the columns

        - `sd`: the standard deviation;
        - `constant`: the output does not depend on the input. It has no density, and `marginals`
          and `joint` raise an error;
        - `negligible_variance`: the output varies, but its variance is below `negligible` times
          that of its neighbors: the larger of the adjacent outputs' variances and of the median
          over all outputs that vary. If all outputs have the same unit, its variation is then
          training noise, and correlations with it mean nothing;
        - `dominated_by`: the input whose first-order Sobol index (`sensitivity`) exceeds
          `dominated`, the largest if there are several; else an empty string. The law is nearly
          that of this input (a box for a box input), so a normal approximation is poor;
        - `remark`: the same in words, empty if there is nothing to report.

    Raises
    ------
    ImportError
        If pandas is missing.
    TypeError, ValueError
        If `linearization` is not a `LinearModel` or has batch axes, or names or thresholds do not
        fit.

    Examples
    --------
    >>> import nn_uq_dist as nuq
    >>> jacobian = [[1.0, 2.0], [1e-7, 1e-7], [3.0, 0.1]]
    >>> lin = nuq.Linearization([0.0] * 3, jacobian, nuq.InputLaw([0.0, 0.0], half_width=1.0))
    >>> table = nuq.diagnostics.flag_outputs(lin)
    >>> print(table.query("negligible_variance").index.tolist(), table.loc["y[2]", "remark"])
    ['y[1]'] f[0] explains 100% of the variance
    """
    num_inputs = unbatched(linearization, "pass linearization[i]").input.num_inputs
    inputs = as_names("input", input_names, num_inputs)
    outputs = as_names("output", output_names, linearization.num_outputs)
    for name, value in (("negligible", negligible), ("dominated", dominated)):
        if not 0 < value < 1:
            raise ValueError(f"{name} must lie in (0, 1), got {value!r}; pass a fraction")
    pandas = _checks.require_extra("pandas", "diagnostics.flag_outputs")

    sd = standard_deviations(linearization)
    is_constant = sd == 0
    beside = _sd_beside(sd)
    is_negligible = ~is_constant & (sd < np.sqrt(negligible) * beside)
    indices = np.where(is_constant[:, None], 0, first_order_indices(linearization).value)
    strongest = indices.argmax(axis=1)
    share = indices.max(axis=1)
    rows = []
    for j in range(sd.size):
        remarks = []
        if is_constant[j]:
            remarks.append("does not depend on the input: no density")
        if is_negligible[j]:
            remarks.append(
                f"variance negligible: sd {sd[j]:.1e}, its neighbors' sd {beside[j]:.1e}"
            )
        is_dominated = share[j] > dominated
        if is_dominated:
            remarks.append(f"{inputs[strongest[j]]} explains {share[j]:.0%} of the variance")
        rows.append({
            "sd": sd[j],
            "constant": is_constant[j],
            "negligible_variance": is_negligible[j],
            "dominated_by": inputs[strongest[j]] if is_dominated else "",
            "remark": "; ".join(remarks),
        })  # fmt: skip
    table: pd.DataFrame = pandas.DataFrame(rows, index=pandas.Index(outputs, name="output"))
    return table


def standard_deviations(linearization: LinearModel) -> Array:
    """Standard deviations of the outputs, where possible without the underflow of variances."""
    if isinstance(linearization, Linearization):
        return np.asarray(in_float64(linearization).image().standard_deviation)
    return np.sqrt(np.asarray(linearization.variance, np.float64))


def _sd_beside(sd: Array) -> Array:
    """Standard deviation to compare each output with: that of its neighbors or the median."""
    padded = np.pad(sd, 1)
    adjacent = np.maximum(padded[:-2], padded[2:])
    varying = sd[sd > 0]
    median = np.sqrt(np.median(varying**2)) if varying.size else 0.0
    return np.maximum(adjacent, median)
