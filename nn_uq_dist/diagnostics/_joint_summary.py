"""Errors of the joint distribution: the part of the linearization and the part of the copula."""

import dataclasses
import html
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import jax
import numpy as np

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.summary_line import summary_line
from nn_uq_dist.diagnostics import _joint_tables, _verdict, arguments
from nn_uq_dist.diagnostics.output_functions import OutputFunctions, Tails, joint_correlation
from nn_uq_dist.distributions import JointDistribution, as_output_distribution
from nn_uq_dist.linearization import LinearModel

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

WIDTH = 80
# Exact linear draws, whose calibration shows the error of the joint distribution alone.
CALIBRATION_DRAWS = 20_000
# Names of other rows and columns; a joint distribution with such a name is called "...
# distribution" instead.
_TAKEN = ("linear", "linearization", "monte carlo", "noise floor", "noise", "unknown")


@dataclasses.dataclass(frozen=True, eq=False)
class JointSummary:
    """Result of `joint_summary`; printing it gives a report.

    Attributes
    ----------
    verdict
        Sentence that names what dominates the error of the joint distribution.
    calibration
        Table of the Rosenblatt transforms, one row per output and one for the radius.
    correlation
        Dataset of correlation matrices, dimensions `output` and `other_output`.
    outside_support
        Fraction of the complete draws with an output at or beyond the end of its support.
    num_draws, num_non_finite
        Number of draws, and of those left out because an output is not finite.
    kind
        Name of the joint distribution in rows and sentences; in columns and in the names of
        matrices with underscores instead of blanks.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, nn_uq_dist as nuq
    >>> distribution = nuq.Input.box(jnp.zeros(2), half_width=1.0)
    >>> lin = nuq.Linearization([0.0, 0.0], [[1.0, 0.2], [0.2, 1.0]], distribution)
    >>> draws = lin.sample(jax.random.key(0), (2_000,))
    >>> copula = lin.gaussian_copula()
    >>> found = nuq.diagnostics.joint_summary(lin, draws, jax.random.key(1), joint=copula)
    >>> found.calibration.index.tolist()
    ['y[0]', 'y[1]', 'radius']
    """

    verdict: str
    calibration: "pd.DataFrame"
    correlation: "xr.Dataset"
    outside_support: float
    num_draws: int
    num_non_finite: int
    kind: str

    __repr__ = summary_line

    def __str__(self) -> str:
        def largest(name: str) -> float:
            return float(np.nanmax(np.abs(self.correlation[name]), initial=0))

        prefix = _joint_tables.prefix(self.kind)
        worst = self.calibration["ks"].drop("radius").nlargest(5).index
        names = {"ks": "ks", "noise_floor": "chance", f"{prefix}_ks": f"{self.kind} alone",
                 "dominates": "dominates", "p_value": "p_value"}  # fmt: skip
        shown = self.calibration.loc[[*worst, "radius"], [*names]].rename(columns=names)
        size = self.correlation.sizes["output"]
        headline = f"Joint distribution of {size} outputs: {self.verdict}"
        lines = (
            textwrap.fill(headline, WIDTH, break_on_hyphens=False) + "\n",
            f"{self.num_draws} draws, {self.num_non_finite} of them not finite",
            f"outside the analytic support: {100 * self.outside_support:.2g}%\n",
            "Largest difference of correlations:",
            f"linearization {largest('linearization_error'):.3g}",
            f"{self.kind} {largest(f'{prefix}_error'):.3g}",
            f"standard error of the draws {largest('standard_error'):.2g}\n",
            f"Joint calibration of the {self.kind}, "
            + ("all outputs:" if size <= 5 else f"the worst five of {size} outputs:"),
            shown.to_string(float_format="{:.3g}".format, line_width=WIDTH),
        )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(self.verdict)}</p>{self.calibration.to_html()}"


def joint_summary(
    linearization: LinearModel,
    draws: arguments.NetworkDraws,
    key: jax.Array,
    joint: JointDistribution,
    *,
    output_names: Sequence[str] | None = None,
    progress: bool = True,
) -> JointSummary:
    r"""Compare the joint distribution of the outputs with Monte Carlo draws, and split its error.

    Three distributions are compared: that of the network (`draws`), the linear distribution, which
    can be drawn from exactly, and `joint`, a joint distribution with a density such as the Gaussian
    copula. The first and the second differ by the error of the linearization, the second and the
    third by that of the copula. Of another `LinearModel` the second is the distribution of its own
    draws.

    Parameters
    ----------
    linearization
        The linearized network, or any other `LinearModel`, without batch axes.
    draws
        Monte Carlo draws of the network's outputs, shape ``(n, N_y)``, independent; at least 100
        rows must be finite. `PairedDraws` give sharper correlations from the same number of draws.
    key
        JAX random key of the exact linear draws.
    joint
        Joint distribution of the outputs to judge, such as ``linearization.joint()`` or
        ``linearization.gaussian_copula()``, without a batch shape. Its `kind` replaces "copula"
        below.
    output_names
        Names of the outputs. Default: those of the model, else ``y[0]``, ``y[1]``, ...
    progress
        Whether a progress bar may appear, which it does after two seconds of work.

    Returns
    -------
    JointSummary
        Its tables:

        `calibration`, the Rosenblatt transforms of the draws under the copula,
        ``u_j = P(Y_j <= y_j | y_1 .. y_{j-1})``, uniform and independent if the copula is correct.
        They are ``Phi(w_j)`` with ``w = joint.rosenblatt(y)``, which for a copula is ``L^-1 z`` of
        the normal scores `z` and the Cholesky factor `L` of their correlation. They depend on the
        order of the outputs. The row `radius` is the chi-square probability of ``|w|^2`` with `N_y`
        degrees of freedom, which detects errors of the dependence that no single output shows.
        Columns:

        - `ks`: Kolmogorov-Smirnov distance from uniform, and its `noise_floor`, the mean for draws
          of the copula itself;
        - `copula_ks`, `copula_noise_floor`: the same for up to 20,000 exact linear draws, where
          only the copula can be wrong;
        - `dominates`: ``"noise"`` if neither the draws nor the exact linear ones show an error,
          ``"copula"`` if the latter do and `copula_ks` exceeds half of the larger distance, else
          ``"linearization"``;
        - `p_value`: how often chance alone shows as much of an error in one row, by `ks`, `mean` or
          `sd`. It depends on the number of draws as much as on the distribution: with 1e5 draws
          every approximation is rejected; for the size of an error look at `ks`;
        - `mean`, `sd`: mean and standard deviation of ``w_j``, 0 and 1 for a correct copula; an
          `sd` below 1 means that the copula is too wide in that direction. For `radius` they are
          those of ``|w|^2 / N_y``, 1 and ``sqrt(2 / N_y)`` for a correct copula.

        `correlation`: `monte_carlo` with `standard_error`, `linear` and `copula` (of the outputs,
        not of the scores), `linearization_error` (linear minus Monte Carlo) and `copula_error`
        (copula minus linear). With pairs `monte_carlo` is that of
        `nn_uq_dist.sampling.PairedStatistics`, and `worth` is the number of plain draws with the
        same standard error; all other entries use the network's draws alone.

    Raises
    ------
    ImportError
        If pandas or xarray is missing.
    TypeError, ValueError
        If arguments do not fit, `joint` is not a `JointDistribution` with the same number of
        outputs, an output is constant, or fewer than 100 draws are finite.

    Warns
    -----
    RuntimeWarning
        If draws are NaN or infinite; their rows are left out and counted.

    Notes
    -----
    The verdict is that of the row of `calibration` with the largest `ks` among those in which an
    error shows, graded as in `summary`, and else that of the correlations. Only if no table shows
    an error beyond chance it says that there is none; by chance each of the two shows one in 1% of
    the cases, whatever the number of outputs. A corrected model is not judged by the draws that it
    was made of.

    References
    ----------
    M. Rosenblatt, Remarks on a multivariate transformation, Ann. Math. Statist. 23 (1952).

    Examples
    --------
    >>> import jax, jax.numpy as jnp, nn_uq_dist as nuq
    >>> distribution = nuq.Input.box(jnp.array([0.3, 0.1, 0.2]), half_width=1.0)
    >>> network = lambda f: jnp.array([jnp.sin(2 * f[0]) + f[1], f[1] * jnp.exp(f[2])])
    >>> draws = nuq.monte_carlo(network, distribution, jax.random.key(0), 4_000)
    >>> lin = nuq.linearize(network, distribution)
    >>> found = nuq.diagnostics.joint_summary(
    ...     lin, draws, jax.random.key(1), joint=lin.gaussian_copula()
    ... )
    >>> found.verdict.partition(":")[0]
    'large error by the linearization'
    """
    arguments.require_numbers("joint_summary", linearization, draws, key, joint)
    remedy = "take one point: joint_summary(model[i], draws[:, i], ...), or with pairs[i]"
    size = arguments.as_model(linearization, remedy).num_outputs
    values = arguments.as_draws(linearization, draws, (size,))
    names = arguments.names_of_outputs(linearization, output_names, size)
    key = checks.as_key("key", key)
    joint = arguments.as_joint_distribution(joint, size)
    pandas = checks.require_extra("pandas", "diagnostics.joint_summary")
    xarray = checks.require_extra("xarray", "diagnostics.joint_summary")
    arguments.finite_draws(values, names)  # warns of the others
    complete = arguments.complete_rows(values)
    kind = f"{joint.kind} distribution" if joint.kind in _TAKEN else joint.kind

    num_linear = min(CALIBRATION_DRAWS, len(complete))
    linear_draws = np.asarray(linearization.sample(key, (num_linear,)), np.float64)
    distribution = OutputFunctions(as_output_distribution(joint.marginals))
    tails, of_linear = (
        Tails(distribution, part, progress=progress) for part in (complete, linear_draws)
    )
    white, white_linear = (
        _joint_tables.rosenblatt_scores(joint, part) for part in (tails, of_linear)
    )
    calibration = _joint_tables.calibration_columns(white, white_linear, kind)
    linear = np.asarray(linearization.correlation, np.float64)
    matrices = _joint_tables.correlation_matrices(
        draws, complete, linear, joint_correlation(joint), kind
    )
    off, error = matrices["linearization_error"], matrices["standard_error"]
    eps = float(np.finfo(linearization.mean.dtype).eps)
    places = [*names, "radius"]
    found = zip(calibration["ks"], calibration["dominates"], strict=True)
    verdict = _verdict.joint_verdict(
        dict(zip(places, found, strict=True)), _verdict.correlation_words(off, error, names, eps)
    )
    if arguments.is_made_of(linearization, draws):
        verdict = _verdict.FITTED.words
        calibration["dominates"] = [_verdict.FITTED.dominates] * len(places)
    return JointSummary(
        verdict=verdict,
        calibration=pandas.DataFrame(calibration, index=pandas.Index(places, name="output")),
        correlation=xarray.Dataset(
            {name: (("output", "other_output"), matrix) for name, matrix in matrices.items()},
            coords={"output": names, "other_output": names},
        ),
        outside_support=float(tails.is_outside.any(axis=1).mean()),
        num_draws=len(values),
        num_non_finite=len(values) - len(complete),
        kind=kind,
    )
