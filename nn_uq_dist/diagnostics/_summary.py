"""The table that sets the linearized law of every output against Monte Carlo draws."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from numpy.typing import NDArray

from nn_uq_dist._checks import positive_int
from nn_uq_dist.diagnostics._arguments import (
    MINIMUM_DRAWS,
    as_draws,
    as_marginals,
    as_output_names,
    finite_draws,
    require_extra,
)
from nn_uq_dist.diagnostics._quantiles import quantiles_of_symmetric_laws
from nn_uq_dist.diagnostics._statistics import (
    UNKNOWN,
    Estimate,
    kolmogorov_distances,
    sample_moments,
    sample_quantiles,
    total_variation,
)

if TYPE_CHECKING:
    import pandas as pd

    from nn_uq_dist._linearization import Linearization
    from nn_uq_dist.distributions import LinearizedMarginal

MOMENTS = ("mean", "sd", "skewness", "excess_kurtosis")
# Points per output in one call of a law's distribution function.
CDF_POINTS = 2048


def summary(
    marginals: "LinearizedMarginal | Linearization",
    draws: ArrayLike,
    *,
    output_names: Sequence[str] | None = None,
    quantiles: Sequence[float] = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99),
    num_bins: int | None = None,
) -> "pd.DataFrame":
    r"""Compare the analytic law of every output with Monte Carlo draws of it.

    Parameters
    ----------
    marginals
        Laws of the `N_y` outputs: a `LinearizedMarginal` with batch shape ``(N_y,)`` or a
        `Linearization`.
    draws
        Monte Carlo draws of the outputs, shape ``(n, N_y)``, independent, ``n >= 100``; from
        `monte_carlo` usually. Draws that are NaN or infinite are left out of the statistics of
        their output, counted in the table, and warned about; an output with fewer than 100 finite
        draws gets NaN.
    output_names
        Names of the outputs, the index of the table. Default ``y[0]``, ``y[1]``, ...
    quantiles
        Levels in (0, 1), each becomes a statistic named ``q0.05`` and so on.
    num_bins
        Bins of the total-variation distance, of equal analytic probability. Default
        ``n^(1/3)``, at least 8: what a bin hides of a smooth difference falls like the square of
        its width, while the noise floor ``sqrt(num_bins / (2 pi n))`` falls with `n` as well.

    Returns
    -------
    pandas.DataFrame
        One row per output. Columns have two levels, `statistic` and `value`:

        - `mean`, `sd`, `skewness`, `excess_kurtosis` and each quantile have the values
          `analytic`, `monte_carlo`, `error` (analytic minus Monte Carlo) and `standard_error`
          (of the Monte Carlo value, hence of the error). The analytic skewness is 0: the law of a
          linear map of symmetric inputs is symmetric.
        - `kolmogorov_smirnov` (largest difference of the distribution functions) and
          `total_variation` (half the summed difference of bin masses) have `monte_carlo`,
          `standard_error` (for laws that differ) and `noise_floor`: the expected value if the
          analytic law were exactly that of the draws. Read nothing into a distance near it.
        - `draws` has `total` and `non_finite`.

        ``table["mean"]`` selects a statistic, ``table.xs("error", axis=1, level="value")`` a value,
        ``table.stack("statistic")`` gives the long form.

    Raises
    ------
    ImportError
        If pandas is missing.
    TypeError, ValueError
        If shapes, names or levels do not fit; nothing is computed before that is known.

    Notes
    -----
    The standard errors assume independent draws and finite eighth moments, not normality; formulas
    and sources are given in ``nn_uq_dist.diagnostics._statistics``. Heavy tails make that of the
    excess kurtosis too small (by 15% for Student's t with 20 degrees of freedom and 4000 draws).
    The noise floor of the Kolmogorov-Smirnov distance is the mean of the Kolmogorov law,
    ``sqrt(pi / 2) log(2) / sqrt(n)``.

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
    """
    pandas = require_extra("pandas", "diagnostics.summary")
    law, num_outputs = as_marginals(marginals)
    values = as_draws(draws, num_outputs)
    names = as_output_names(output_names, num_outputs)
    levels = _as_levels(quantiles)
    bins = _as_num_bins(num_bins, values.shape[0])
    law_at = _Evaluator(law, num_outputs)

    columns = finite_draws(values, names)
    enough = [column.size >= MINIMUM_DRAWS for column in columns]
    statistics = [*MOMENTS, *(f"q{level:g}" for level in levels)]
    table: dict[tuple[str, str], list[float] | NDArray[Any]] = {}

    quantiles_and_edges = law_at.icdf(np.concatenate([levels, np.arange(1, bins) / bins]))
    analytic = [
        law_at.mean,
        law_at.sd,
        law_at.to_numpy(0.0),
        law_at.to_numpy(law.excess_kurtosis),
        *quantiles_and_edges[: levels.size],
    ]
    estimates = [
        [*sample_moments(column).values(), *sample_quantiles(column, levels)]
        if good
        else [UNKNOWN] * len(statistics)
        for column, good in zip(columns, enough, strict=True)
    ]
    for k, statistic in enumerate(statistics):
        monte_carlo = np.array([row[k].value for row in estimates])
        table[statistic, "analytic"] = analytic[k]
        table[statistic, "monte_carlo"] = monte_carlo
        table[statistic, "error"] = analytic[k] - monte_carlo
        table[statistic, "standard_error"] = [row[k].standard_error for row in estimates]

    # Laws are compared together, so outputs with too few draws take part with a dummy.
    usable = [column if ok else np.zeros(1) for column, ok in zip(columns, enough, strict=True)]
    distances = {
        "kolmogorov_smirnov": _kolmogorov_smirnov(law_at, usable),
        "total_variation": _total_variation(law_at, usable, quantiles_and_edges[levels.size :]),
    }
    for name, found in distances.items():
        kept = [row if ok else (UNKNOWN, np.nan) for row, ok in zip(found, enough, strict=True)]
        table[name, "monte_carlo"] = [estimate.value for estimate, _ in kept]
        table[name, "standard_error"] = [estimate.standard_error for estimate, _ in kept]
        table[name, "noise_floor"] = [floor for _, floor in kept]

    table["draws", "total"] = np.full(num_outputs, values.shape[0])
    table["draws", "non_finite"] = np.array([values.shape[0] - c.size for c in columns])
    frame = pandas.DataFrame(table, index=pandas.Index(names, name="output"))
    frame.columns = pandas.MultiIndex.from_tuples(table, names=["statistic", "value"])
    return frame


def _as_levels(quantiles: Sequence[float]) -> NDArray[np.float64]:
    levels = np.asarray(quantiles, dtype=np.float64)
    if levels.ndim != 1 or not np.all((levels > 0) & (levels < 1)):
        raise ValueError(
            f"quantiles must be a sequence of levels in (0, 1), got {quantiles!r}; "
            "pass fractions such as (0.05, 0.5, 0.95)"
        )
    if len({f"{level:g}" for level in levels}) != levels.size:
        raise ValueError(
            f"quantiles must differ in their first six digits, got {quantiles!r}; "
            "their names would coincide"
        )
    return levels


def _as_num_bins(num_bins: int | None, num_draws: int) -> int:
    if num_bins is None:
        return max(8, round(math.cbrt(num_draws)))
    number = positive_int("num_bins", num_bins)
    if number < 2:
        raise ValueError("num_bins must be at least 2, got 1; a single bin sees no difference")
    return number


@jax.jit
def _cdf(law: Any, x: jax.Array) -> jax.Array:
    values: jax.Array = law.cdf(x)
    return values


class _Evaluator:
    """Distribution and quantile functions of a law at any number of points.

    All calls have one shape: a new one is compiled anew, which takes longer than the whole table.
    """

    def __init__(self, law: Any, num_outputs: int) -> None:
        self.law = law
        self.num_outputs = num_outputs
        self.mean = self.to_numpy(law.mean)
        self.sd = np.sqrt(self.to_numpy(law.variance))
        self.low, self.high = (
            self.to_numpy(getattr(law.support, name, bound))
            for name, bound in (("lower_bound", -np.inf), ("upper_bound", np.inf))
        )

    def to_numpy(self, value: Any) -> NDArray[np.float64]:
        """Return a value of every output, shape ``(N_y,)``."""
        return np.broadcast_to(np.asarray(value, dtype=np.float64), (self.num_outputs,))

    def cdf(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        """Distribution functions at points of shape ``(p, N_y)``."""
        padded = np.pad(points, [(0, -len(points) % CDF_POINTS), (0, 0)], mode="edge")
        portions = np.split(padded, len(padded) // CDF_POINTS)
        values = [np.asarray(_cdf(self.law, jnp.asarray(x)), np.float64) for x in portions]
        return np.concatenate(values)[: len(points)]

    def icdf(self, levels: NDArray[np.float64]) -> NDArray[np.float64]:
        """Quantiles of every output, shape ``(levels, N_y)``."""
        # 40 standard deviations: beyond the smallest level that a float64 holds.
        lowest = np.maximum(self.low, self.mean - 40 * self.sd)
        return quantiles_of_symmetric_laws(levels, self.cdf, self.mean, lowest, CDF_POINTS)


def _kolmogorov_smirnov(
    law_at: _Evaluator, columns: Sequence[NDArray[np.float64]]
) -> list[tuple[Estimate, float]]:
    mean_of_kolmogorov_law = np.sqrt(np.pi / 2) * np.log(2)
    distances = kolmogorov_distances(columns, law_at.cdf, CDF_POINTS)
    return [
        (distance, float(mean_of_kolmogorov_law / np.sqrt(column.size)))
        for distance, column in zip(distances, columns, strict=True)
    ]


def _total_variation(
    law_at: _Evaluator, columns: Sequence[NDArray[np.float64]], inner: NDArray[np.float64]
) -> list[tuple[Estimate, float]]:
    """Bins of equal mass, and two empty ones beyond the support if that is bounded.

    Without those, draws that the analytic law excludes would hide among those of the outer bins.
    """
    edges = np.vstack([law_at.low, inner, law_at.high])
    at_edges = np.zeros_like(edges)
    at_edges[-1] = 1
    # The masses are those between the edges as rounded, not the ones asked for.
    at_edges[1:-1] = law_at.cdf(inner)
    masses = np.diff(at_edges, axis=0, prepend=0, append=1)
    return [total_variation(column, edges[:, j], masses[:, j]) for j, column in enumerate(columns)]
