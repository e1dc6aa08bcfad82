"""The uncertainty budget of a linear model: what each input contributes to each output."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.concrete import in_float64
from nn_uq_dist.diagnostics import arguments
from nn_uq_dist.distributions import LinearImage
from nn_uq_dist.linearization import Linearization

if TYPE_CHECKING:
    import pandas as pd


def uncertainty_budget(
    linearization: Linearization,
    *,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
) -> "pd.DataFrame":
    r"""What each input contributes to the standard uncertainty of each output.

    Parameters
    ----------
    linearization
        At one point, without a batch.
    input_names, output_names
        Names of the random inputs and of the outputs. Default: their keys where they come in dicts,
        else ``f[0]``, ... and ``y[0]``, ...

    Returns
    -------
    pandas.DataFrame
        A row for each input of each output, in the units of the network, and one, ``combined``,
        for the output. Columns ``estimate``, ``uncertainty`` (standard deviations :math:`u_k`),
        ``sensitivity`` (derivatives :math:`c_k`), ``contribution`` (:math:`c_k u_k`) and
        ``share``, the squared correlation of output and input: of independent inputs the share of
        the variance, and they sum to 1. ``to_string(float_format="{:.3g}".format)`` prints them all
        with three digits, ``to_html()`` is a table.

    Raises
    ------
    ImportError
        If pandas is missing.
    TypeError, ValueError
        If `linearization` is not a `Linearization` or has a batch, or names do not fit.

    Notes
    -----
    The rows are those of JCGM 100:2008, 5.1 and annex H, with the derivatives of the network at the
    means of the inputs. The standard uncertainty of a mean of readings is the standard deviation of
    its Student's t, as in JCGM 101:2008, 6.4.9: ``s / sqrt(n)`` times ``sqrt((n - 1) / (n - 3))``.

    Examples
    --------
    >>> import numpyro.distributions as dist
    >>> import nn_uq_dist as nuq
    >>> f = {"mass": dist.Normal(2.0, 0.01), "volume": dist.Uniform(0.99, 1.01)}
    >>> lin = nuq.linearize(lambda x: {"density": x["mass"] / x["volume"]}, f)
    >>> print(nuq.diagnostics.uncertainty_budget(lin).round(2))
                      estimate  uncertainty  sensitivity  contribution  share
    output  input
    density mass           2.0         0.01          1.0          0.01   0.43
            volume         1.0         0.01         -2.0         -0.01   0.57
            combined       2.0         0.02          NaN           NaN   1.00
    """
    arguments.require_numbers("uncertainty_budget", linearization)
    given: Any = linearization
    if not isinstance(given, Linearization) or given.batch_shape:
        raise TypeError(
            f"linearization must be a Linearization without a batch, got {linearization!r}; pass "
            f"linearize(network, f), or one entry of a batch, such as linearization[0]"
        )
    pandas = checks.require_extra("pandas", "diagnostics.uncertainty_budget")
    exact = in_float64(linearization)
    own = exact.input.of_same_moments
    inputs = arguments.as_names("input", input_names, len(own.taken_names), own.taken_names)
    outputs = arguments.names_of_outputs(linearization, output_names, linearization.num_outputs)
    # What the network takes is a linear map of the vector here.
    rows = np.asarray(jax.jacobian(own.taken)(own.mean), np.float64)
    jacobian = np.asarray(exact.jacobian)
    # In a unit for each input: the inverse takes rows that are much smaller than others for zero.
    units = np.abs(rows).max(axis=1)
    units = np.where(units > 0, units, 1)
    sensitivities = jacobian @ np.linalg.pinv(rows / units[:, None]) / units
    image = LinearImage(*own.columns(np.concatenate([jacobian, rows])))
    totals, uncertainties = np.split(np.asarray(image.standard_deviation), [len(jacobian)])
    shares = np.asarray(image.correlation)[: len(jacobian), len(jacobian) :] ** 2
    estimates = np.asarray(own.taken(own.mean))
    labels, found = [], []
    for j, output in enumerate(outputs):
        each = estimates, uncertainties, sensitivities[j], sensitivities[j] * uncertainties
        table = np.stack([*each, shares[j]], axis=1)
        found += [*table, [exact.mean[j], totals[j], np.nan, np.nan, 1.0]]
        labels += [(output, name) for name in (*inputs, "combined")]
    index = pandas.MultiIndex.from_tuples(labels, names=["output", "input"])
    columns = "estimate", "uncertainty", "sensitivity", "contribution", "share"
    return pandas.DataFrame(found, index, columns, dtype=float)
