"""The table of the distributions themselves: moments, quantiles, probabilities beyond limits."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from scipy.special import ndtri

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.diagnostics import arguments
from nn_uq_dist.linearization import CorrectedLinearization
from nn_uq_dist.sampling import PairedEstimate, paired_statistics

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
        on, and ``P(> 14)`` or ``P(< 14)``. NaN where a limit is not asked of an output.

        Of a corrected linearization each has a column ``+-``, a standard error: the root of the sum
        of two squares, that of `paired_statistics` for the same pairs, and the difference from its
        value, which shows what a map of the linear output cannot follow, such as folds and point
        masses. 95% intervals held in 94% to 99% of the cases. NaN with fewer than about ten pairs,
        and where fewer than one of the pairs would lie beyond a limit or quantile, or short of it:
        there the map is extrapolated, and `nn_uq_dist.failure_probability` is right.

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
    if not isinstance(upper, bool | np.bool_):
        raise TypeError(f"upper must be True or False, got {upper!r}; leave it out")
    of_outputs = arguments.limits_of(limits, names)
    of_all = np.array(sorted({limit for limits in of_outputs for limit in limits}))
    arguments.require_distinct("limits", of_all)
    levels = arguments.as_levels("quantiles", quantiles)
    pandas = checks.require_extra("pandas", "diagnostics.table")
    dtype, shape_of_rows = distribution.mean.dtype, distribution.batch_shape
    pairs: Any = marginals.pairs if isinstance(marginals, CorrectedLinearization) else None
    sampled: Any = pairs and paired_statistics(pairs)
    columns: dict[str, FloatArray] = {}

    def add(title: str, values: Any, share: Any, estimate: PairedEstimate | None) -> None:
        """Add a column, and that of its errors; NaN where no pair tells its share."""
        columns[title] = np.broadcast_to(np.asarray(values, float), shape_of_rows).ravel()
        if estimate is not None:
            value, error = np.ravel(estimate.value), np.ravel(estimate.standard_error)
            is_seen = np.minimum(share, 1 - share) * pairs.num_samples >= 1
            errors = np.hypot(error, columns[title] - value)
            columns[f"+- {title}"] = np.where(is_seen, errors, np.nan)

    add("mean", distribution.mean, 0.5, sampled and sampled.mean)
    add("sd", distribution.standard_deviation, 0.5, sampled and sampled.sd)
    for level in levels:
        # By scores, as a level near one is rounded to it in single precision.
        values = distribution.from_normal_score(jnp.asarray(ndtri(level), dtype))
        add(f"q{level:.12g}", values, level, sampled and sampled.quantile(level))
    log_probability = distribution.log_sf if upper else distribution.log_cdf
    for limit in of_all:
        share = np.exp(np.asarray(log_probability(jnp.asarray(limit, dtype)), np.float64))
        is_asked = np.resize([limit in limits for limits in of_outputs], shape_of_rows)
        beyond = sampled and sampled.exceedance(limit)
        if beyond and not upper:
            beyond = beyond._replace(value=1 - beyond.value)
        add(
            f"P({'>' if upper else '<'} {limit:g})",
            np.where(is_asked, share, np.nan),
            share,
            beyond,
        )
    return pandas.DataFrame(columns, index=arguments.row_index(shape[:-1], names))
