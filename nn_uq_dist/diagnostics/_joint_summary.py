"""Errors of the joint distribution: the part of the linearization and the part of the copula."""

import dataclasses
import html
import textwrap
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtr, chdtrc, gammainc, ndtr

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.chunks import in_padded_chunks
from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.basics.summary_line import summary_line
from nn_uq_dist.diagnostics import _verdict, arguments, output_functions
from nn_uq_dist.diagnostics.output_functions import OutputFunctions, Tails, joint_correlation
from nn_uq_dist.distributions import JointDistribution
from nn_uq_dist.linearization import LinearModel
from nn_uq_dist.sampling import PairedDraws, paired_statistics
from nn_uq_dist.sampling.sample_distribution_functions import (
    kolmogorov_noise_floor,
    kolmogorov_smirnov,
)

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
    >>> summary = nuq.diagnostics.joint_summary(lin, draws, jax.random.key(1), joint=copula)
    >>> summary.calibration.index.tolist()
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

        prefix = self.kind.replace(" ", "_")
        worst = self.calibration["ks"].drop("radius").nlargest(5).index
        names = {"ks": "ks", "noise_floor": "chance", f"{prefix}_ks": f"{self.kind} alone",
                 "dominates": "dominates", "p_value": "p_value"}  # fmt: skip
        shown = self.calibration.loc[[*worst, "radius"], [*names]].rename(columns=names)
        size = self.correlation.sizes["output"]
        headline = f"Joint distribution of {size} outputs: {self.verdict}"
        which = "all outputs" if size <= 5 else f"the worst five of {size} outputs"
        return f"""{textwrap.fill(headline, WIDTH, break_on_hyphens=False)}

{self.num_draws} draws, {self.num_non_finite} of them not finite
outside the analytic support: {100 * self.outside_support:.2g}%

Largest difference of correlations:
linearization {largest("linearization_error"):.3g}
{self.kind} {largest(f"{prefix}_error"):.3g}
standard error of the draws {largest("standard_error"):.2g}

Joint calibration of the {self.kind}, {which}:
{shown.to_string(float_format="{:.3g}".format, line_width=WIDTH)}"""

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(self.verdict)}</p>{self.calibration.to_html()}"


def joint_summary(
    linearization: LinearModel,
    draws: arguments.NetworkDraws,
    key: jax.Array,
    joint: JointDistribution | None = None,
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
        Joint distribution of the outputs to judge, without a batch shape, such as
        ``linearization.gaussian_copula()``. Default: ``linearization.joint()``. Its `kind` replaces
        "copula" below.
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
    >>> summary = nuq.diagnostics.joint_summary(
    ...     lin, draws, jax.random.key(1), joint=lin.gaussian_copula()
    ... )
    >>> summary.verdict.partition(":")[0]
    'large error by the linearization'
    """
    arguments.require_numbers("joint_summary", linearization, draws, key, joint)
    size = arguments.as_model(linearization).num_outputs
    joint = linearization.joint() if joint is None else joint
    values = arguments.as_draws(linearization, draws, (size,))
    names = arguments.names_of_outputs(linearization, output_names, size)
    key = checks.as_key("key", key)
    functions = OutputFunctions(arguments.as_joint_marginals(joint, size))
    pandas = checks.require_extra("pandas", "diagnostics.joint_summary")
    xarray = checks.require_extra("xarray", "diagnostics.joint_summary")
    arguments.warn_of_left_out(values, names)
    complete = arguments.complete_rows(values)
    kind = f"{joint.kind} distribution" if joint.kind in _TAKEN else joint.kind

    num_linear = min(CALIBRATION_DRAWS, len(complete))
    linear_draws = np.asarray(linearization.sample(key, (num_linear,)), np.float64)
    of_network, of_linear = (
        Tails(functions, x, progress=progress) for x in (complete, linear_draws)
    )
    white, white_linear = rosenblatt_scores(joint, of_network), rosenblatt_scores(joint, of_linear)
    calibration = calibration_columns(white, white_linear, kind)

    matrices: dict[str, FloatArray] = {}
    if isinstance(draws, PairedDraws):  # they carry more information than their complete rows
        network, error, matrices["worth"] = paired_statistics(draws).correlation
    else:
        network, error = sample_correlation(complete)
    linear, of_joint = np.asarray(linearization.correlation, np.float64), joint_correlation(joint)
    prefix = kind.replace(" ", "_")
    matrices |= {"monte_carlo": network, "standard_error": error, "linear": linear,
                 prefix: of_joint, "linearization_error": linear - network,
                 f"{prefix}_error": of_joint - linear}  # fmt: skip
    eps = float(np.finfo(linearization.mean.dtype).eps)
    words = _verdict.correlation_words(linear - network, error, names, eps)
    places = [*names, "radius"]
    verdict = _verdict.joint_verdict(places, calibration["ks"], calibration["dominates"], words)
    if arguments.is_made_of(linearization, draws):
        verdict = _verdict.FITTED.words
        calibration["dominates"] = [_verdict.FITTED.dominates] * len(places)
    of_pairs = ("output", "other_output")
    return JointSummary(
        verdict,
        pandas.DataFrame(calibration, index=pandas.Index(places, name="output")),
        xarray.Dataset(
            {name: (of_pairs, matrix) for name, matrix in matrices.items()},
            coords=dict.fromkeys(of_pairs, names),
        ),
        outside_support=float(of_network.is_outside.any(axis=1).mean()),
        num_draws=len(values),
        num_non_finite=len(values) - len(complete),
        kind=kind,
    )


def rosenblatt_scores(joint: JointDistribution, tails: Tails) -> FloatArray:
    """Normal scores of each output given those before it, shape ``(n, N_y)``.

    Draws beyond the support have infinite scores; they are clipped at 38 so that means stay finite.
    """
    arrays = (tails.points, tails.normal_scores())
    white = in_padded_chunks(
        partial(_rosenblatt, joint), *arrays, size=output_functions.POINTS_PER_CALL
    )
    # Given an impossible value, the other outputs have no distribution.
    is_impossible = np.isnan(white) & tails.is_outside.any(axis=1, keepdims=True)
    white = np.where(is_impossible, np.inf, white)
    return np.where(np.isinf(white), np.copysign(output_functions.LARGEST_SCORE, white), white)


@jax.jit
def _rosenblatt(joint: JointDistribution, value: jax.Array, scores: jax.Array) -> jax.Array:
    return joint.rosenblatt_from_scores(value, scores)


def calibration_columns(white: FloatArray, white_linear: FloatArray, kind: str) -> dict[str, Any]:
    """Columns of the table of calibration, from the scores of the network's and of linear draws.

    If the joint distribution is right, they are independent and standard normal.
    """
    size, prefix = white.shape[1], kind.replace(" ", "_")
    distance, p_value = from_uniform(white)
    of_linear, linear_p_value = from_uniform(white_linear)
    described = np.hstack([white, np.sum(white**2, axis=1, keepdims=True) / size])
    return {
        "ks": distance,
        "noise_floor": kolmogorov_noise_floor(len(white)),
        f"{prefix}_ks": of_linear,
        f"{prefix}_noise_floor": kolmogorov_noise_floor(len(white_linear)),
        "dominates": [
            _verdict.dominating_part(*numbers, kind, size + 1)
            for numbers in zip(distance, p_value, of_linear, linear_p_value, strict=True)
        ],
        "p_value": p_value,
        "mean": described.mean(axis=0),
        "sd": described.std(axis=0, ddof=1),
    }


def from_uniform(white: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Distances of the outputs and of the radius from uniform, and their p-values.

    A p-value is that of the most significant of three tests, times three: Kolmogorov and Smirnov's,
    a mean of 0, a variance of 1. For the radius the second is that of a mean of `N_y`, and there is
    no third.
    """
    from scipy.stats import kstwo

    count, size = white.shape
    radius = np.sum(white**2, axis=1, keepdims=True)
    uniform = np.hstack([ndtr(white), gammainc(size / 2, radius / 2)])
    distance = np.array([kolmogorov_smirnov(column).value for column in uniform.T])
    p_value = kstwo.sf(distance, count)
    of_mean = 2 * ndtr(-np.abs(white.mean(axis=0)) * np.sqrt(count))
    squares, freedom = np.sum((white - white.mean(axis=0)) ** 2, axis=0), count - 1
    of_sd = 2 * np.minimum(chdtr(freedom, squares), chdtrc(freedom, squares))
    total = radius.sum()
    of_radius = 2 * min(chdtr(count * size, total), chdtrc(count * size, total))
    least = np.minimum(p_value, np.append(np.minimum(of_mean, of_sd), of_radius))
    return distance, np.minimum(3 * least, 1.0)


def sample_correlation(draws: NDArray[Any]) -> tuple[FloatArray, FloatArray]:
    r"""Correlation matrix of the rows, and the standard errors of its entries.

    To first order in ``1/n`` a correlation `r` is the average of its influence function
    ``z_i z_j - r (z_i^2 + z_j^2) / 2`` of the standardized draw, whose variance needs only the
    fourth moments. These are taken from the sample: no normality is assumed. For normal draws the
    standard error is the textbook ``(1 - r^2) / sqrt(n)`` (H. Cramer, Mathematical Methods of
    Statistics (1946)). Both are NaN for constant columns.
    """
    count, largest = len(draws), np.abs(draws).max(axis=0).astype(np.float64)
    x = draws / np.where(largest > 0, largest, 1)  # the squares of small numbers would be zero
    z = x - x.mean(axis=0)
    scale = z.std(axis=0)
    # The spread of a constant column is only rounding error.
    z /= np.where(scale > 4 * np.finfo(np.float64).eps, scale, np.nan)
    square = z * z
    r, m22, m31 = z.T @ z / count, square.T @ square / count, (square * z).T @ z / count
    m40 = np.diag(m22)
    variance = m22 - r * (m31 + m31.T) + r**2 / 4 * (m40[:, None] + 2 * m22 + m40)
    error = np.sqrt(np.maximum(variance, 0) / count)
    is_own = np.eye(len(r), dtype=bool) & ~np.isnan(r)
    return np.where(is_own, 1.0, np.clip(r, -1, 1)), np.where(is_own, 0.0, error)
