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
from nn_uq_dist.sampling import PairedDraws, paired_statistics

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
    known = arguments.as_levels("quantiles", quantiles)
    pandas = checks.require_extra("pandas", "diagnostics.table")
    dtype, rows = distribution.mean.dtype, distribution.batch_shape
    columns = {"mean": distribution.mean, "sd": distribution.standard_deviation}
    shares: list[Any] = [0.5, 0.5, *known]
    for level in known:
        # By scores, as a level near one is rounded to it in single precision.
        score = jnp.asarray(ndtri(level), dtype)
        columns[f"q{level:.12g}"] = distribution.from_normal_score(score)
    log_probability = distribution.log_sf if upper else distribution.log_cdf
    for limit in of_all:
        share = np.exp(np.asarray(log_probability(jnp.asarray(limit, dtype)), np.float64))
        asked = np.resize([limit in limits for limits in of_outputs], rows)
        shares.append(np.where(asked, share, np.nan))
        columns[f"P({'>' if upper else '<'} {limit:g})"] = shares[-1]
    values = {k: np.broadcast_to(np.asarray(v, float), rows) for k, v in columns.items()}
    if isinstance(marginals, CorrectedLinearization):
        values = _with_errors(values, shares, marginals.pairs, known, of_all, upper=upper)
    values = {k: v.ravel() for k, v in values.items()}
    return pandas.DataFrame(values, index=arguments.row_index(shape[:-1], names))


def _with_errors(
    values: dict[str, FloatArray],
    shares: list[Any],
    pairs: PairedDraws,
    levels: FloatArray,
    limits: FloatArray,
    *,
    upper: bool,
) -> dict[str, FloatArray]:
    """The columns, each followed by that of its errors; NaN where no pair tells a share."""
    statistics = paired_statistics(pairs)
    found: dict[str, FloatArray] = {}
    seen = [statistics.mean, statistics.sd, *map(statistics.quantile, levels)]
    for limit in limits:
        beyond = statistics.exceedance(limit)
        seen.append(beyond if upper else beyond._replace(value=1 - beyond.value))
    for (title, value), share, estimate in zip(values.items(), shares, seen, strict=True):
        of_pairs, own_error = (part.reshape(value.shape) for part in estimate[:2])
        error = np.hypot(own_error, value - of_pairs)
        is_seen = np.minimum(share, 1 - np.asarray(share)) * pairs.num_samples >= 1
        found |= {title: value, f"+- {title}": np.where(is_seen, error, np.nan)}
    return found
