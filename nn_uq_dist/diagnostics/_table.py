"""The table of the distributions themselves: moments, quantiles, probabilities beyond limits."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import ndtri
from tqdm import tqdm

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.diagnostics import arguments
from nn_uq_dist.distributions import OutputDistribution
from nn_uq_dist.linearization import CorrectedLinearization
from nn_uq_dist.sampling import PairedDraws

if TYPE_CHECKING:
    import pandas as pd

# Groups of independent pairs that are left out in turn, and other keys of corrections. Errors of
# random tanh networks are 1.2 to 1.5 times those that are seen over keys, of the borehole .7 to
# 1.1; 89 to 96% of 95% intervals hold.
GROUPS, KEYS = 10, 5
type Probabilities = Callable[[OutputDistribution], FloatArray]
PER_PAIR = "base_inputs", "network", "linear"


def table(
    marginals: arguments.Marginals,
    *,
    limits: arguments.Limits | None = None,
    upper: bool = True,
    quantiles: Sequence[float] = (0.05, 0.5, 0.95),
    output_names: Sequence[str] | None = None,
    progress: bool = True,
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
    progress
        Whether a progress bar may appear, which it does after two seconds of work.

    Returns
    -------
    pandas.DataFrame
        A row for each output, of each point of a batch; columns ``mean``, ``sd``, ``q0.05`` and so
        on, and ``P(> 14)`` or ``P(< 14)``. Of a corrected linearization ``+- P(> 14)`` is the
        standard error of that probability: it is corrected anew without each tenth of the pairs, or
        each of their Sobol sequences, in turn (the jackknife: B. Efron and C. Stein, Ann. Statist.
        9, 1981). They are 1 to 2.5 times too large with few pairs, and 3 to 4 times where so many
        fewer make a simpler polynomial, as from 150 pairs for three inputs. NaN where a limit is
        not asked of an output; errors of fewer than 20 pairs, and where fewer than one of the pairs
        would lie beyond the limit, or short of it: there the map is extrapolated, which these
        errors do not see (up to 20 times too small), and `nn_uq_dist.failure_probability` is right.

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
    for level in known:
        # By scores, as a level near one is rounded to it in single precision.
        score = jnp.asarray(ndtri(level), dtype)
        columns[f"q{level:.12g}"] = distribution.from_normal_score(score)

    def beyond(of: OutputDistribution) -> FloatArray:
        log_probability = of.log_sf if upper else of.log_cdf
        found = [log_probability(jnp.asarray(limit, dtype)) for limit in of_all]
        return np.exp(np.array(found, np.float64)).reshape(-1, *rows)

    shares, errors = beyond(distribution), None
    if isinstance(marginals, CorrectedLinearization):
        errors = _standard_errors(marginals, beyond, shares, progress=progress)
    for k, limit in enumerate(of_all):
        asked = np.resize([limit in limits for limits in of_outputs], rows)
        title = f"P({'>' if upper else '<'} {limit:g})"
        columns[title] = np.where(asked, shares[k], np.nan)
        if errors is not None:
            columns[f"+- {title}"] = np.where(asked, errors[k], np.nan)
    values = {k: np.broadcast_to(np.asarray(v, float), rows).ravel() for k, v in columns.items()}
    return pandas.DataFrame(values, index=arguments.row_index(shape[:-1], names))


def _standard_errors(
    model: CorrectedLinearization, beyond: Probabilities, shares: FloatArray, *, progress: bool
) -> FloatArray:
    """Standard errors of probabilities beyond limits, by leaving out groups of pairs.

    Corrections of a single point draw from a polynomial of the inputs with the key of the pairs:
    with few pairs left out the same draws are made, and what these add is seen with other keys. NaN
    where they say nothing.
    """
    number = model.pairs.num_samples
    if not shares.size or number < 2 * GROUPS:
        return np.full(shares.shape, np.nan)
    groups, others = list(_left_out(model.pairs)), []
    if not model.batch_shape:
        keys = jax.random.split(model.pairs.key, KEYS)
        others = [dataclasses.replace(model.pairs, key=key) for key in keys]
    found = []
    for pairs in tqdm([*groups, *others], delay=2, disable=not progress):
        anew, _ = arguments.as_marginals(model.linearization.corrected(pairs), batched=True)
        found.append(beyond(anew))
    variance = np.var(found[: len(groups)], axis=0) * (len(groups) - 1)
    if others:
        variance += np.var(found[len(groups) :], axis=0, ddof=1)
    fewer = np.minimum(shares, 1 - shares) * number
    return np.where(fewer < 1, np.nan, np.sqrt(variance))


def _left_out(pairs: PairedDraws) -> Iterator[PairedDraws]:
    """The pairs without each group of them in turn."""
    sequences = pairs.num_randomizations if pairs.num_randomizations > 1 else 0
    number = sequences or GROUPS
    group = np.arange(pairs.num_samples) * number // pairs.num_samples
    for k in range(number):
        fields = {name: getattr(pairs, name)[group != k] for name in PER_PAIR}
        yield dataclasses.replace(pairs, **fields, num_randomizations=max(sequences - 1, 0))
