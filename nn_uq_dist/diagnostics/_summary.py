"""The table that compares the distribution of every output with Monte Carlo draws.

Statistics of draws and of pairs are those of `nn_uq_dist.sampling`. Their standard errors assume
independent draws of one distribution and nothing else about it.
"""

import textwrap
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.diagnostics import _verdict, arguments
from nn_uq_dist.diagnostics._joint_summary import WIDTH, JointSummary
from nn_uq_dist.diagnostics.arguments import MINIMUM_DRAWS
from nn_uq_dist.diagnostics.output_functions import OutputFunctions, Tails
from nn_uq_dist.sampling import PairedDraws, PairedStatistics, paired_statistics

if TYPE_CHECKING:
    import pandas as pd

# Columns by statistic and value.
type Table = dict[tuple[str, str], Any]

MOMENTS = ("mean", "sd", "skewness", "excess_kurtosis")
# Values of a statistic.
VALUES = ("analytic", "monte_carlo", "error", "standard_error")
COMPARISONS = (
    *(("kolmogorov_smirnov", value) for value in ("monte_carlo", "standard_error", "noise_floor")),
    ("pit", "p_value"),
)
# Most draws for the uniformity test: with more it takes seconds and rejects every approximation.
UNIFORMITY_DRAWS = 10_000
# p-values of ArviZ's uniformity test, and the share of uniform samples with a smaller one, from
# 120,000 samples of 100 to 10,000 draws; samples of different sizes agree within 0.005.
_NOMINAL = (0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.49, 0.5)
_ACTUAL = (0.0, 0.0059, 0.0122, 0.0247, 0.0651, 0.1363, 0.2116, 0.292, 0.482, 0.744, 0.9967, 1.0)
MOST_ROWS = 20
LONGEST_NAME = 30  # that verdicts are indented for
# Columns of the main numbers, by what they are called in print.
SHOWN = {
    "mean": ("mean", "analytic"), "error": ("mean", "error"), "+-": ("mean", "standard_error"),
    "sd": ("sd", "analytic"), "error ": ("sd", "error"), "+- ": ("sd", "standard_error"),
    "KS": ("kolmogorov_smirnov", "monte_carlo"), "chance": ("kolmogorov_smirnov", "noise_floor"),
}  # fmt: skip


def summary(
    marginals: arguments.Marginals,
    draws: arguments.NetworkDraws,
    *,
    output_names: Sequence[str] | None = None,
    quantiles: Sequence[float] = (),
    tails: Sequence[float] = (0.01,),
    joint: JointSummary | None = None,
    observations: int = 1,
    progress: bool = True,
) -> "pd.DataFrame":
    r"""Compare the analytic distribution of every output with Monte Carlo draws of it.

    Parameters
    ----------
    marginals
        Distributions of the `N_y` outputs, of one point or of a batch of points: a `Linearization`
        or any other `LinearModel`; with batch shape ``(..., N_y)`` a `LinearizedMarginal`, any
        other `OutputDistribution` or a univariate NumPyro distribution with ``cdf``;
        or a joint distribution, of which the marginals are used.
    draws
        Monte Carlo draws of the outputs, shape ``(n, ..., N_y)``, independent, ``n >= 100``;
        usually from `monte_carlo`. Draws that are NaN, infinite or beyond 1e150 are left out of the
        statistics of their output, counted in the table, and warned about; an output with fewer
        than 100 finite draws gets NaN. `PairedDraws` give sharper statistics from the same number
        of draws, even when compared with distributions other than the linearization that they were
        made with.
    output_names
        Names of the `N_y` outputs, the index of the table. Default: those of the model, else
        ``y[0]``, ``y[1]``, ...
    quantiles
        Levels in (0, 1), each becomes a statistic named ``q0.05`` and so on. The verdict looks at
        seven of them whatever is shown.
    tails
        Probabilities in (0, 0.5), each becomes two statistics, ``lower_tail_0.01`` and
        ``upper_tail_0.01``: the share of the draws beyond the analytic quantiles of that level.
    joint
        The `joint_summary` of the same outputs. With it the verdict can name the copula. Not for
        a batch of points.
    observations
        For how many independent observations the distribution is the likelihood of something that
        they share. The verdict then judges differences of mean and sd times ``sqrt(observations)``.
    progress
        Whether a progress bar may appear, which it does after two seconds of work.

    Returns
    -------
    pandas.DataFrame
        One row per output; of a batch one row per point and output, with the index levels ``point``
        (``point_0``, ``point_1``, ... for several batch axes) and ``output``. Printed, it shows the
        verdicts and the main numbers within 80 columns; in a notebook all of them. Columns have two
        levels, `statistic` and `value`:

        - `verdict` has `words` and `dominates`; see the notes.
        - `mean`, `sd`, `skewness` and each quantile have the values `analytic`, `monte_carlo`,
          `error` (analytic minus Monte Carlo) and `standard_error` (of the Monte Carlo value, hence
          of the error). The analytic skewness of a linearized network is 0: a linear map of
          symmetric inputs is symmetric. Each tail has `monte_carlo` and `standard_error`. With
          pairs they are the estimates of `nn_uq_dist.sampling.PairedStatistics`, which has more.
        - `kolmogorov_smirnov`, the largest difference of the distribution functions, has
          `monte_carlo`, `standard_error` (for distributions that differ) and `noise_floor`: the
          expected value if the analytic distribution were exactly that of the draws. A distance
          near it means nothing. With pairs it is that of the distribution function that the tail
          probabilities have, at up to 64 of the draws; the PIT uses the network's draws alone.
        - `pit`, the probability integral transforms ``F(draw)``, uniform if the distribution is
          correct: `p_value` of ArviZ's uniformity test ``pot_c``, calibrated, on the first 10,000
          draws. With many draws every approximation is rejected: judge by the distance.
        - `draws` has `total`, `non_finite` and `outside_support`, the fraction of the finite draws
          beyond an end of the analytic support by more than rounding.

        ``table["mean"]`` selects a statistic, ``table.xs("error", axis=1, level="value")`` a value,
        ``table.stack("statistic")`` gives the long form.

    Raises
    ------
    ImportError
        If pandas or arviz_stats is missing.
    TypeError, ValueError
        If shapes, names or levels do not fit; this is checked before anything is computed.

    Notes
    -----
    The verdict. An output is dominated by ``"noise"`` where distance, moments and support differ by
    no more than chance explains, and otherwise by ``"linearization"``, since the distribution of a
    single output is exact for the linearized network and no copula is involved. The words grade the
    difference (small, moderate, large) and list what differs: sd, mean in units of the sd,
    skewness, draws beyond the support. Their thresholds are in the reference of the documentation.
    A corrected model that was made of these draws is ``"unknown"``: they cannot show its errors;
    so is an output with too few finite draws. With `joint`, an output whose own distribution is
    within the noise is dominated by ``"copula"`` or ``"linearization"`` if the column `dominates`
    of ``joint.calibration`` says so of its dependence on the outputs before it.

    The standard errors assume independent draws and finite eighth moments, not normality; formulas
    and sources are in ``nn_uq_dist.sampling.weighted_sample``. With heavy tails the one of the
    excess kurtosis is too small (by 15% for Student's t with 20 degrees of freedom and 4000 draws).

    Examples
    --------
    >>> import jax, jax.numpy as jnp, nn_uq_dist as nuq
    >>> weights = jnp.array([[0.5, 0.3, 0.1], [0.2, 0.2, 0.4]])
    >>> marginals = nuq.LinearizedMarginal(jnp.zeros(2), weights)
    >>> draws = marginals.sample(jax.random.key(0), (10_000,))
    >>> table = nuq.diagnostics.summary(marginals, draws, output_names=["level", "slope"])
    >>> table.loc["level", ("sd", "analytic")].round(3)
    np.float64(0.342)
    >>> bool((abs(table["mean", "error"]) < 4 * table["mean", "standard_error"]).all())
    True
    >>> table["verdict", "words"].tolist()
    ['noise: no difference beyond chance', 'noise: no difference beyond chance']
    """
    checks.require_extra("pandas", "diagnostics.summary")
    checks.require_extra("arviz_stats", "diagnostics.summary")
    arguments.require_numbers("summary", marginals, draws, joint, quantiles, tails)
    distribution, shape = arguments.as_marginals(marginals, batched=True)
    values = arguments.as_draws(marginals, draws, shape)
    names = arguments.names_of_outputs(marginals, output_names, shape[-1])
    batch_shape = shape[:-1]
    asked = arguments.as_levels("quantiles", quantiles)
    asked_tails = arguments.as_levels("tails", tails, 0.5)
    if joint is not None:
        _check_joint(joint, arguments.flat_names(batch_shape, names))
    observations = checks.positive_int("observations", observations)

    arguments.warn_of_left_out(values, arguments.flat_names(batch_shape, names))
    functions = OutputFunctions(distribution)
    positions = Tails(functions, values, progress=progress)
    if isinstance(draws, PairedDraws):
        sampled = paired_statistics(draws)
    else:
        sampled = PairedStatistics(values.astype(np.float64))
    levels = np.union1d(asked, _verdict.LEVELS)
    tail_levels = np.union1d(asked_tails, _verdict.TAILS)
    is_enough = positions.is_finite.sum(axis=0) >= MINIMUM_DRAWS
    columns = statistics(functions, sampled, levels, tail_levels, is_enough)
    compared = comparisons(positions, sampled)
    eps = float(np.finfo(distribution.mean.dtype).eps)
    verdicts = []
    for j in range(functions.num_outputs):
        row = {name: column[j] for name, column in (columns | compared).items()}
        verdicts.append(_verdict.marginal_verdict(row, eps, observations))
        if joint is not None and verdicts[j].dominates == "noise":
            verdicts[j] = _verdict.dependence_verdict(joint.calibration["dominates"].iloc[j])
    if arguments.is_made_of(marginals, draws):
        verdicts = [_verdict.FITTED] * len(verdicts)

    shown: Table = {("verdict", field): [getattr(verdict, field) for verdict in verdicts]
                    for field in ("words", "dominates")}  # fmt: skip
    for name in (*_verdict.MOMENTS_IN_WORDS, *(f"q{level:g}" for level in asked)):
        shown |= {(name, value): columns[name, value] for value in VALUES}
    for name in (f"{side}_tail_{level:g}" for level in asked_tails for side in ("lower", "upper")):
        shown |= {(name, value): columns[name, value] for value in VALUES[1::2]}
    index = arguments.row_index(batch_shape, names)
    table: pd.DataFrame = _table_class()(shown | compared, index=index)
    table.columns = table.columns.set_names(["statistic", "value"])
    return table


def _check_joint(joint: object, rows: list[str]) -> None:
    names = [type(joint).__name__]
    if isinstance(joint, JointSummary):
        names = list(joint.calibration.index[:-1])
    if names != rows:
        raise ValueError(
            f"joint must be a JointSummary of the outputs {', '.join(rows)}, got "
            f"{', '.join(names)}; pass what joint_summary(...) returns for the same output_names, "
            f"of a batch for one point"
        )


@cache
def _table_class() -> Any:
    """The class of tables, a data frame; made when it is needed, as pandas is an extra."""
    import pandas as pd

    class SummaryTable(pd.DataFrame):
        """A data frame of `summary`. Parts and copies of it, and what is unpickled, are plain."""

        @property
        def _constructor(self) -> type[pd.DataFrame]:
            return pd.DataFrame

        def __reduce__(self) -> Any:
            return pd.DataFrame(self).__reduce__()

        def __repr__(self) -> str:
            return _printed(self)

        def _repr_html_(self) -> str:
            with pd.option_context("display.max_columns", None, "display.max_colwidth", None):
                return str(pd.DataFrame(self)._repr_html_())

    return SummaryTable


def _printed(table: Any) -> str:
    """The verdicts and the main numbers of a table of `summary`."""
    shown = table.iloc[:MOST_ROWS]
    names = [", ".join(map(str, k)) if isinstance(k, tuple) else str(k) for k in shown.index]
    width = min(max(map(len, [*names, "output"])), LONGEST_NAME)
    lines = [f"{'output':{width}}  verdict"]
    for name, words in zip(names, shown["verdict", "words"], strict=True):
        indent, first = " " * (width + 2), f"{name:{width}}  "
        if len(name) > width:  # stands alone
            lines, first = [*lines, name], indent
        lines += textwrap.wrap(words, WIDTH, initial_indent=first, subsequent_indent=indent)
    numbers = shown[list(SHOWN.values())].set_axis(names).set_axis(list(SHOWN), axis="columns")
    for title, (_, value) in SHOWN.items():
        digits = 3 if value == "analytic" else 2
        numbers[title] = numbers[title].map(f"{{:.{digits}g}}".format)
    lines += ["", numbers.to_string(line_width=WIDTH)]
    if len(table) > MOST_ROWS:
        lines.append(f"and {len(table) - MOST_ROWS} more rows, all with .to_string()")
    return "\n".join(lines)


def statistics(
    functions: OutputFunctions,
    sampled: PairedStatistics,
    levels: FloatArray,
    tails: FloatArray,
    is_enough: NDArray[np.bool_],
) -> Table:
    """Columns of moments, quantiles and tails, NaN where draws are too few."""
    points = functions.values(np.concatenate([ndtri(levels), ndtri(tails), -ndtri(tails)]))
    quantiles, ends = np.split(points, [levels.size])
    # The masses are those beyond the rounded points, not the requested ones.
    scores = functions.scores(ends)
    scores[tails.size :] *= -1
    of = functions.distribution
    exact = functions.each(of.mean, of.standard_deviation, of.skewness, of.excess_kurtosis)
    analytic = np.vstack([exact, quantiles, ndtr(scores)])
    names = [
        *MOMENTS,
        *(f"q{level:g}" for level in levels),
        *(f"{side}_tail_{level:g}" for side in ("lower", "upper") for level in tails),
    ]
    shape = *sampled.batch_shape, sampled.num_outputs
    estimates = [getattr(sampled, name) for name in MOMENTS]
    estimates += [sampled.quantile(levels), sampled.exceedance(ends.reshape(-1, *shape))]
    rows = [np.reshape(estimate[:2], (2, -1, is_enough.size)) for estimate in estimates]
    draws, errors = np.where(is_enough, np.concatenate(rows, axis=1), np.nan)
    lower = slice(len(names) - 2 * tails.size, len(names) - tails.size)
    draws[lower] = 1 - draws[lower]
    tables = zip(VALUES, (analytic, draws, analytic - draws, errors), strict=True)
    return {(name, value): row for value, table in tables
            for name, row in zip(names, table, strict=True)}  # fmt: skip


def comparisons(positions: Tails, sampled: PairedStatistics) -> Table:
    """Columns of distances and of the PIT, NaN if they are not known, and counts of draws."""
    transforms, is_finite = positions.probabilities(), positions.is_finite
    total, counts = len(transforms), is_finite.sum(axis=0)
    compared = np.full((len(COMPARISONS), counts.size), np.nan)
    for j in np.flatnonzero(counts >= MINIMUM_DRAWS).tolist():
        uniform = transforms[is_finite[:, j], j]
        if not np.isnan(uniform).any():  # of a distribution with an invalid parameter
            distance = sampled.kolmogorov_smirnov(j, transforms[:, j])
            compared[:, j] = *distance, uniformity_p_value(uniform)
    # NaN if there are none.
    outside = positions.is_outside.sum(axis=0) / np.where(counts > 0, counts, np.nan)
    return dict(zip(COMPARISONS, compared, strict=True)) | {
        ("draws", "total"): np.full(counts.size, total),
        ("draws", "non_finite"): total - counts,
        ("draws", "outside_support"): outside,
    }


def uniformity_p_value(probabilities: FloatArray) -> float:
    """P-value of the hypothesis that probabilities are independent and uniform.

    ArviZ's pointwise order statistics test with a Cauchy combination (``pot_c``), calibrated: in
    simulations its own p-value is below 0.05 for 6.5% of uniform samples, so it is replaced by the
    share of uniform samples with a smaller one. The first 10,000 draws are tested.

    References
    ----------
    Tesso and Vehtari (2026), arXiv 2603.02928, as cited by ArviZ for the truncated combination.
    """
    array_stats = checks.require_extra("arviz_stats.base", "diagnostics.summary").array_stats
    p_value, _, _ = array_stats.uniformity_test(probabilities[:UNIFORMITY_DRAWS], method="pot_c")
    return float(np.interp(p_value, _NOMINAL, _ACTUAL))
