"""The table of the distributions themselves: moments, quantiles, probabilities beyond limits."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.diagnostics import arguments
from nn_uq_dist.linearization import CorrectedLinearization
from nn_uq_dist.sampling import paired_statistics

if TYPE_CHECKING:
    import pandas as pd


def table(
    marginals: arguments.Marginals,
    *,
    limits: arguments.Limits | None = None,
    upper: bool = True,
    quantiles: Sequence[float] = (0.05, 0.5, 0.95),
    output_names: Sequence[str] | None = None,
) -> "pd.DataFrame":
    """Moments, quantiles and probabilities beyond limits, from the distributions alone.

    Parameters
    ----------
    marginals
        A `Linearization`, a corrected one, another `LinearModel`, or distributions of outputs with
        batch shape ``(..., N_y)``; see `summary`.
    limits
        A number, or several, for all outputs; or a dict with the limits of some outputs by name.
        They are rounded as the outputs are.
    upper
        Whether outputs above the limits are asked for, not those below.
    quantiles
        Levels in (0, 1).
    output_names
        Names of the `N_y` outputs. Default: those of the model.

    Returns
    -------
    pandas.DataFrame
        A row for each output, of each point of a batch; columns ``mean``, ``sd``, ``q0.05`` and so
        on, and ``P(> 14)`` or ``P(< 14)``. Of a corrected linearization ``+- P(> 14)`` is the
        standard error of that probability by its pairs. NaN where a limit is not asked of an
        output.

    Raises
    ------
    ImportError
        If pandas is missing.
    TypeError, ValueError
        If an argument has the wrong type or shape, a level is not in (0, 1), or a name is unknown.

    Examples
    --------
    >>> import nn_uq_dist as nuq
    >>> lin = nuq.Linearization([1.0, 5.0], [[1.0], [2.0]], nuq.Input.box([0.0], half_width=1.0))
    >>> nuq.diagnostics.table(lin, limits={"y[1]": 6.0}, quantiles=(0.5,)).round(2)
            mean    sd  q0.5  P(> 6)
    output
    y[0]     1.0  0.58   1.0     NaN
    y[1]     5.0  1.15   5.0    0.25
    """
    arguments.require_numbers("table", marginals, limits, quantiles)
    distribution, shape = arguments.as_marginals(marginals, batched=True)
    names = arguments.names_of_outputs(marginals, output_names, shape[-1])
    if not isinstance(upper, bool):
        raise TypeError(f"upper must be True or False, got {upper!r}; leave it out")
    of_outputs = arguments.limits_of(limits, names)
    of_all = np.array(sorted({limit for limits in of_outputs for limit in limits}))
    arguments.require_distinct("limits", of_all)
    known = arguments.as_levels("quantiles", quantiles)
    pandas = checks.require_extra("pandas", "diagnostics.table")
    rows = distribution.batch_shape
    columns = {
        "mean": _row(distribution.mean, rows),
        "sd": _row(distribution.standard_deviation, rows),
    }
    for level in known:
        at = jnp.asarray(level, distribution.mean.dtype)
        columns[f"q{level:g}"] = _row(distribution.icdf(at), rows)
    repeats = len(columns["mean"]) // len(names)
    for limit in of_all:
        asked = np.tile([limit in limits for limits in of_outputs], repeats)
        at = jnp.asarray(limit, distribution.mean.dtype)
        beyond = np.exp(_row((distribution.log_sf if upper else distribution.log_cdf)(at), rows))
        title = f"P({'>' if upper else '<'} {limit:g})"
        columns[title] = np.where(asked, beyond, np.nan)
        if isinstance(marginals, CorrectedLinearization):
            error = paired_statistics(marginals.pairs).exceedance(limit).standard_error
            columns[f"+- {title}"] = np.where(asked, error.ravel(), np.nan)
    frame: pd.DataFrame = pandas.DataFrame(columns, index=arguments.row_index(shape[:-1], names))
    return frame


def _row(values: ArrayLike, shape: tuple[int, ...]) -> FloatArray:
    return np.broadcast_to(np.asarray(values, np.float64), shape).ravel()
