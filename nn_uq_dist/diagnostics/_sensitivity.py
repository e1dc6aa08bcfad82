"""What each input contributes to each output: first-order Sobol indices, uncertainty budgets."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.concrete import FloatArray, in_float64
from nn_uq_dist.diagnostics import arguments
from nn_uq_dist.distributions import LinearImage
from nn_uq_dist.inputs.terms import are_independent, cross_covariance
from nn_uq_dist.linearization import Linearization, LinearModel

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

NUM_DRAWS = 2**16
NUM_BINS = 128
# Numbers in the draws of inputs and outputs together; with thousands of inputs there are fewer.
MOST_NUMBERS = 2**26


def sensitivity(
    linearization: LinearModel,
    *,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    key: jax.Array | None = None,
) -> "xr.DataArray":
    r"""First-order Sobol indices: the share of the variance of each output due to each input.

    Parameters
    ----------
    linearization
        The linearized network, whose indices are closed forms; or any other `LinearModel`, whose
        indices are estimated from 65,536 of its draws, without running the network. They are those
        of the model, not of the network: for the corrected model what does not depend linearly on
        an input is noise.
    input_names, output_names
        Names of the inputs and outputs, the coordinates. Default: their keys where they come in
        dicts and other structures, else ``f[0]``, ... and ``y[0]``, ...
    key
        JAX random key of the draws. Default ``jax.random.key(0)``.

    Returns
    -------
    xarray.DataArray
        Dimensions ``("output", "input")``, with those of the batch in front (``"point"``, or
        ``"point_0"``, ``"point_1"``, ...), between 0 and 1. NaN for an output that does not depend
        on the input. The attribute `additive` is 1 if the indices of an output sum to 1: the model
        is linear and the inputs are independent. The attribute `standard_error` is the largest
        standard error of an index, 0 for closed forms; usually it is below 0.006.

    Raises
    ------
    ImportError
        If xarray is missing.
    TypeError, ValueError
        If `linearization` is not a `LinearModel`, or names do not fit; if inputs of a
        `Linearization` depend on each other and are not Gaussian.

    Notes
    -----
    The index of input `k` is ``Var(E[y_j | f_k]) / Var(y_j)``. For independent inputs

    .. math:: S_{jk} = J_{jk}^2\, \mathrm{Var}(f_k) / \mathrm{Var}(y_j),
              \qquad \mathrm{Var}(f_k) = \beta_k^2 / 3 + C_{kk},

    the latter for boxes and normal inputs with the covariance :math:`C = L L^T`. If Gaussian inputs
    are correlated, ``f_k`` carries information about the others as well. The index includes that:
    it is the squared correlation of ``y_j`` and ``f_k``, and the indices of an output may sum to
    more or less than 1: they no longer partition the variance.

    The estimate for other models is the variance of the means of ``y_j`` in 128 bins of ``f_k``,
    each with the same number of draws, less what the scatter within the bins adds. Bins hide at
    most 0.2% of an index.

    References
    ----------
    I. M. Sobol, Sensitivity estimates for nonlinear mathematical models, Math. Modelling Comput.
    Experiment 1 (1993); A. Saltelli and S. Tarantola, On the relative importance of input factors
    in mathematical models, J. Amer. Statist. Assoc. 97 (2002), for correlated inputs.

    Examples
    --------
    >>> import nn_uq_dist as nuq
    >>> lin = nuq.Linearization([0.0], [[1.0, 2.0]], nuq.Input.box([0.0, 0.0], half_width=1.0))
    >>> print(nuq.diagnostics.sensitivity(lin, input_names=["wind", "tide"]).values)
    [[0.2 0.8]]
    """
    arguments.require_numbers("sensitivity", linearization, key)
    model = arguments.as_model(linearization, batched=True)
    law = model.input
    inputs = arguments.as_names("input", input_names, law.num_inputs, law.names)
    outputs = arguments.names_of_outputs(model, output_names, model.num_outputs)
    key = jax.random.key(0) if key is None else checks.as_key("key", key)
    xarray = checks.require_extra("xarray", "diagnostics.sensitivity")
    is_tangent = isinstance(model, Linearization)
    models: Any = in_float64(model) if is_tangent else model
    points = [models[index] if index else models for index in np.ndindex(*model.batch_shape)]
    indices = [_closed_form(one) if is_tangent else _explained_shares(one, key) for one in points]
    value, error = np.swapaxes(indices, 0, 1)
    axes = {**arguments.point_coordinates(model.batch_shape), "output": outputs, "input": inputs}
    attributes = {
        "additive": int(is_tangent and bool(law.has_independent_entries)),
        "standard_error": float(np.nanmax(error, initial=0.0)),
    }
    return xarray.DataArray(
        value.reshape([len(names) for names in axes.values()]), axes, [*axes],
        "first_order_sobol_index", attributes,
    )  # fmt: skip


def _closed_form(exact: Linearization) -> tuple[FloatArray, FloatArray]:
    """Indices at one point, from values in float64, shape ``(N_y, N_x)``; their errors are zero."""
    jacobian, distribution = exact.jacobian, exact.input
    if distribution.half_width is not None and not are_independent(
        distribution.terms, np.asarray(distribution.half_width) > 0
    ):
        raise ValueError(
            f"first-order indices need independent or Gaussian inputs, got {distribution!r}, some "
            "of whose bounded inputs depend on others; use independent inputs"
        )
    variance = np.asarray(distribution.variance, np.float64)
    # Scale the rows before squaring: a variance may underflow where the shares do not.
    largest = np.abs(jacobian * np.sqrt(variance)).max(axis=1, keepdims=True)
    rows = jacobian / np.where(largest > 0, largest, np.nan)
    # Of outputs and inputs: they tell all that such an input says of an output.
    shared: Any = cross_covariance(rows, distribution.terms)
    explained = shared * (shared / np.where(variance > 0, variance, 1))
    with np.errstate(invalid="ignore"):
        total = np.asarray(LinearImage(*distribution.columns(rows)).variance, np.float64)
    share = (explained / np.where(total > 0, total, np.nan)[:, None]).clip(0, 1)
    return share, np.zeros_like(share)


def _explained_shares(model: LinearModel, key: jax.Array) -> tuple[FloatArray, FloatArray]:
    """First-order indices of a model at one point, and their standard errors, ``(N_y, N_x)``."""
    width = model.input.num_inputs + model.num_outputs
    in_a_bin = max(8, min(NUM_DRAWS, MOST_NUMBERS // width) // NUM_BINS)
    inputs, outputs = model.sample_pairs(key, (NUM_BINS * in_a_bin,))
    y = np.asarray(outputs, np.float64)
    y = y - y.mean(axis=0)
    scale = np.abs(y).max(axis=0)  # before squares, which may overflow
    y = y / np.where(scale > 0, scale, np.nan)
    value, error = np.transpose([share_of_bins(x, y) for x in np.asarray(inputs).T], (1, 2, 0))
    return value, error


def share_of_bins(x: NDArray[np.floating], y: FloatArray) -> tuple[FloatArray, FloatArray]:
    r"""Estimate ``Var(E[y | x]) / Var(y)`` for the columns of `y` of mean 0, with standard errors.

    The number of draws is a multiple of that of the bins. What is left of the variance is that
    about a line in each bin: about the means of the bins it would hold the slope within the
    outermost ones. With the lines `m` and the variance `V` of `y`, the influence function of the
    share `S` is ``(2 y m - m^2 - S y^2) / V``. Where `S` is 0 this vanishes to first order, and the
    standard error is that of a sum of ``2 B`` squares, ``sqrt(4 B) / n``.
    """
    if x.min() == x.max():  # a known input
        nothing = np.where(np.isnan(y[0]), np.nan, 0.0)
        return nothing, nothing
    count = len(x)
    order = np.argsort(x, kind="stable")
    groups = y[order].reshape(NUM_BINS, -1, y.shape[1])
    from_center = x[order].astype(np.float64).reshape(NUM_BINS, -1, 1)
    from_center = from_center - from_center.mean(axis=1, keepdims=True)
    squares = np.sum(from_center**2, axis=1, keepdims=True)
    products = np.sum(from_center * groups, axis=1, keepdims=True)
    slopes = products / np.where(squares > 0, squares, np.inf)
    m = groups.mean(axis=1, keepdims=True) + slopes * from_center
    variance = np.mean(y**2, axis=0) * count / (count - 1)
    left = np.sum((groups - m) ** 2, axis=(0, 1)) / (count - 2 * NUM_BINS)
    share = np.clip(1 - left / variance, 0, 1)
    influence = (2 * groups * m - m**2 - share * groups**2) / variance
    error = np.sqrt(influence.var(axis=(0, 1)) / count + 4 * NUM_BINS / count**2)
    return share, error


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
    model: Any = linearization
    if not isinstance(model, Linearization) or model.batch_shape:
        raise TypeError(
            f"linearization must be a Linearization without a batch, got {linearization!r}; pass "
            f"linearize(network, f), or one entry of a batch, such as linearization[0]"
        )
    pandas = checks.require_extra("pandas", "diagnostics.uncertainty_budget")
    exact = in_float64(linearization)
    law = exact.input.of_same_moments
    inputs = arguments.as_names("input", input_names, len(law.taken_names), law.taken_names)
    outputs = arguments.names_of_outputs(linearization, output_names, linearization.num_outputs)
    # What the network takes is a linear map of the vector here.
    rows = np.asarray(jax.jacobian(law.taken)(law.mean), np.float64)
    jacobian = np.asarray(exact.jacobian)
    # In a unit for each input: the inverse takes rows that are much smaller than others for zero.
    units = np.abs(rows).max(axis=1)
    units = np.where(units > 0, units, 1)
    sensitivities = jacobian @ np.linalg.pinv(rows / units[:, None]) / units
    image = LinearImage(*law.columns(np.concatenate([jacobian, rows])))
    totals, uncertainties = np.split(np.asarray(image.standard_deviation), [len(jacobian)])
    shares = np.asarray(image.correlation)[: len(jacobian), len(jacobian) :] ** 2
    of_inputs = np.stack([np.asarray(law.taken(law.mean)), uncertainties], axis=1)
    budget: list[Any] = []
    for mean, total, slopes, share in zip(exact.mean, totals, sensitivities, shares, strict=True):
        budget += [*np.column_stack([of_inputs, slopes, slopes * uncertainties, share])]
        budget += [[mean, total, np.nan, np.nan, 1.0]]
    labels = [outputs, [*inputs, "combined"]]
    index = pandas.MultiIndex.from_product(labels, names=["output", "input"])
    columns = "estimate", "uncertainty", "sensitivity", "contribution", "share"
    return pandas.DataFrame(budget, index, columns, dtype=float)
