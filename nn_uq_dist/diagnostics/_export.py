"""Draws, probabilities, densities and moments of the outputs as one labelled tree for ArviZ."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.basics import _checks
from nn_uq_dist.diagnostics import _arguments
from nn_uq_dist.diagnostics._estimates import sample_correlation
from nn_uq_dist.diagnostics._law_functions import LawFunctions, Tails, joint_correlation
from nn_uq_dist.distributions._contract_joint import JointLaw
from nn_uq_dist.distributions._contract_output import OutputLaw
from nn_uq_dist.linearization._linear_model import LinearModel
from nn_uq_dist.linearization._linearized_network import Linearization
from nn_uq_dist.sampling._moments import MOMENTS
from nn_uq_dist.sampling._weighted_sample import WeightedSample

if TYPE_CHECKING:
    import xarray as xr

NUM_CHAINS = 4
# Half of the range of the grids: a normal law has a probability of 2e-9 beyond it.
RANGE_IN_SD = 6.0
# Random numbers that one call draws; this bounds the memory.
BLOCK_NUMBERS = 2**23


def to_datatree(
    law: _arguments.Marginals,
    draws: _arguments.NetworkDraws,
    *,
    output_names: Sequence[str] | None = None,
    key: jax.Array | None = None,
    num_analytic_draws: int = 10_000,
    num_grid_points: int = 401,
    progress: bool = True,
) -> "xr.DataTree":
    r"""Collect Monte Carlo draws and their analytic distribution in a tree that ArviZ accepts.

    Parameters
    ----------
    law
        A `Linearization` or any other `LinearModel`; a `GaussianCopulaJoint` or any other
        `JointLaw`; or the laws of the outputs alone, batch shape ``(..., N_y)``, whose draws are
        independent: a `LinearizedMarginal`, any other `OutputLaw`, a univariate NumPyro
        distribution.
    draws
        Monte Carlo draws of the outputs, shape ``(n, ..., N_y)``, independent, ``n >= 100``; from
        `PairedDraws`, those of the network are used.
    output_names
        Names of the `N_y` outputs, the coordinate `output`. Default: those of the model, else
        ``y[0]``, ``y[1]``, ...
    key
        JAX random key of the analytic draws. Default ``jax.random.key(0)``.
    num_analytic_draws
        Number of analytic draws, rounded up to a multiple of four.
    num_grid_points
        Points of the grid of each output, at least 2.
    progress
        Whether a progress bar may appear, which it does after two seconds of work.

    Returns
    -------
    xarray.DataTree
        With the groups

        - `monte_carlo`: `y` with dimensions `chain`, `draw`, `output`. Independent draws are shown
          as four chains of equal length, because a single chain has no ``r_hat``; up to three draws
          at the end are left out (counted in the attribute `draws_left_out`). Draws that are not
          finite are kept.
        - `analytic`: `y`, draws of the law in the same layout; the attribute `source` names the
          law.
        - `pit`: `y`, the probability integral transforms ``F(draw)`` of `monte_carlo`. All are
          clipped to the range from 2.2e-16 to 1 - 2.2e-16, which draws beyond the support attain.
          NaN where the draw is not finite.
        - `analytic_grid`: `x`, `density`, `cdf` and `log_sf` (log survival) with dimensions
          `output`, `grid_point`; the grid extends 6 standard deviations to either side, or to the
          end of the support.
        - `moments`, of all draws: `mean`, `sd`, `skewness`, `excess_kurtosis` with dimensions
          `law` (``"analytic"``, ``"monte_carlo"``) and `output`; `correlation` with
          `law`, `output`, `other_output`, the analytic one NaN where only marginals are given;
          the standard errors of the Monte Carlo values as `mean_standard_error` and so on;
          `outside_support` (fraction of the finite draws) and `non_finite` (count) of each output.

        Of a batch, the batch axes are dimensions in front of `output`: ``point``, or ``point_0``,
        ``point_1``, ... if there are several.

    Raises
    ------
    ImportError
        If xarray is missing.
    TypeError, ValueError
        If shapes or names do not fit, or an output is constant; this is checked before anything is
        computed.

    Warns
    -----
    RuntimeWarning
        If draws are NaN or infinite. The moments leave them out, the correlations leave out every
        row that contains one; with fewer than 100 left they are NaN.

    Notes
    -----
    ``tree.to_netcdf(path)`` and ``xarray.open_datatree(path)`` keep everything; they need the
    package h5netcdf or netCDF4. ``arviz_base.from_numpyro`` turns results of NumPyro's MCMC into a
    tree.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, nn_uq_dist as nuq
    >>> law = nuq.Input.box(jnp.zeros(3), half_width=0.5)
    >>> network = lambda f: jnp.array([jnp.sin(f[0]) + f[1], f[1] * jnp.exp(f[2])])
    >>> draws = nuq.monte_carlo(network, law, jax.random.key(0), 4_000)
    >>> tree = nuq.diagnostics.to_datatree(
    ...     nuq.linearize(network, law), draws, output_names=["a", "b"]
    ... )
    >>> print(*tree.children)
    monte_carlo analytic pit analytic_grid moments
    >>> print(tree["moments"]["sd"].sel(output="b").values.round(2))
    [0.29 0.31]
    """
    if isinstance(law, JointLaw):
        _arguments.as_joint_law("law", law, batched=True)
    marginals, shape = _arguments.as_marginals(law, batched=True)
    values = _as_storable(_arguments.as_draws(draws, shape))
    names = _arguments.names_of_outputs(law, output_names, shape[-1])
    batch_shape, num_columns = shape[:-1], values.shape[1]
    key = jax.random.key(0) if key is None else _checks.as_key("key", key)
    num_analytic = _checks.positive_int("num_analytic_draws", num_analytic_draws)
    num_points = _checks.positive_int("num_grid_points", num_grid_points)
    if num_points < 2:
        raise ValueError("num_grid_points must be at least 2, got 1; a grid has two ends")
    xarray = _checks.require_extra("xarray", "diagnostics.to_datatree")

    columns = _arguments.finite_draws(values, _arguments.flat_names(batch_shape, names))
    positions = Tails(marginals, values, progress=progress)
    functions = LawFunctions(marginals)
    drawn = _drawn(law, marginals, shape)
    per_chain = -(-num_analytic // NUM_CHAINS)
    analytic = _sample(drawn, key, NUM_CHAINS * per_chain, num_columns)

    dims = (*_arguments.point_coordinates(batch_shape), "output")
    coordinates = {**_arguments.point_coordinates(batch_shape), "output": names}

    def draws_of(array: NDArray[Any], attributes: dict[str, Any]) -> Any:
        length = len(array) // NUM_CHAINS
        of_chains = array[: NUM_CHAINS * length].reshape(NUM_CHAINS, length, *shape)
        along = {"chain": np.arange(NUM_CHAINS), "draw": np.arange(length)}
        named = {"y": (("chain", "draw", *dims), of_chains)}
        return xarray.Dataset(named, coordinates | along, attributes)

    groups = {
        "monte_carlo": draws_of(values, {"draws_left_out": values.shape[0] % NUM_CHAINS}),
        "analytic": draws_of(analytic, {"source": drawn.source}),
        "pit": draws_of(positions.probabilities(), {}),
        "analytic_grid": xarray.Dataset(
            {
                name: ((*dims, "grid_point"), array.reshape(*shape, num_points))
                for name, array in _grid(functions, num_points).items()
            },
            coordinates,
        ),
        "moments": xarray.Dataset(
            _moments(functions, drawn, values, columns, shape)
            | {
                "outside_support": (dims, positions.outside_support.reshape(shape)),
                "non_finite": (dims, positions.non_finite.reshape(shape)),
            },
            coordinates | {"other_output": names, "law": ["analytic", "monte_carlo"]},
        ),
    }
    tree: xr.DataTree = xarray.DataTree.from_dict(groups)
    tree.attrs["creation_library"] = "nn_uq_dist"
    return tree


class _Drawn(NamedTuple):
    """The source of the analytic draws."""

    law: Any
    source: str
    correlation: NDArray[np.float64]
    random_numbers: int  # for one draw of all outputs


def _as_storable(draws: NDArray[Any]) -> NDArray[Any]:
    """Keep float32 and float64; widen the types that NetCDF and ArviZ do not support."""
    if draws.dtype in {np.dtype(np.float32), np.dtype(np.float64)}:
        return draws
    small = draws.dtype.name in {"float16", "bfloat16"}
    return draws.astype(np.float32 if small else np.float64)


def _drawn(law: _arguments.Marginals, marginals: OutputLaw, shape: tuple[int, ...]) -> _Drawn:
    size = math.prod(shape)
    if isinstance(law, JointLaw):
        source = "Gaussian copula" if law.kind == "copula" else law.kind
        return _Drawn(law, source, joint_correlation(law), size)
    if isinstance(law, LinearModel):
        correlation = np.asarray(law.correlation, np.float64)
        source = "linear model" if isinstance(law, Linearization) else type(law).__name__
        numbers = size + math.prod(law.batch_shape) * law.input.num_inputs
        return _Drawn(law, source, correlation, numbers)
    unknown = np.where(np.eye(shape[-1], dtype=bool), 1, np.nan)
    unknown = np.broadcast_to(unknown, (*shape, shape[-1]))
    # A linear combination draws one number for each of its weights.
    numbers = sum(np.size(leaf) for leaf in jax.tree.leaves(marginals))
    return _Drawn(marginals, "marginals, drawn independently", unknown, max(size, numbers))


def _sample(drawn: _Drawn, key: jax.Array, count: int, num_columns: int) -> NDArray[Any]:
    """Draw in blocks of one size, each with its own key, one column for each output and point."""
    block = min(count, max(1, BLOCK_NUMBERS // drawn.random_numbers))
    keys = jax.random.split(key, -(-count // block))
    parts = [np.asarray(drawn.law.sample(k, (block,))) for k in keys]
    return np.concatenate(parts)[:count].reshape(count, num_columns)


def _grid(functions: LawFunctions, num_points: int) -> dict[str, NDArray[np.float64]]:
    """Values on the grids, a row for each output and point of the batch."""
    from scipy.special import log_ndtr, ndtr

    reach = RANGE_IN_SD * functions.sd
    low = np.maximum(functions.mean - reach, functions.low)
    high = np.minimum(functions.mean + reach, functions.high)
    x = np.linspace(low, high, num_points)
    scores, log_density = functions.scores_and_log_densities(x)
    columns = {
        "x": x,
        "density": np.exp(log_density),
        "cdf": ndtr(scores),
        "log_sf": log_ndtr(-scores),
    }
    return {name: column.T for name, column in columns.items()}


def _moments(
    functions: LawFunctions,
    drawn: _Drawn,
    draws: NDArray[Any],
    columns: Sequence[NDArray[np.float64]],
    shape: tuple[int, ...],
) -> dict[str, Any]:
    """Moments of the law and of the draws, and the standard errors of the latter."""
    dims = (*_arguments.point_coordinates(shape[:-1]), "output")
    found = np.full((len(columns), 4, 2), np.nan)
    for j, column in enumerate(columns):
        if column.size >= _arguments.MINIMUM_DRAWS:
            sample = WeightedSample.equal(column.size)
            found[j] = [statistic(sample, column)[:2] for statistic in MOMENTS.values()]
    variables: dict[str, Any] = {}
    analytic = (functions.mean, functions.sd, *functions.shape)
    for k, (name, value) in enumerate(zip(MOMENTS, analytic, strict=True)):
        both = np.array([value, found[:, k, 0]])
        variables[name] = (("law", *dims), both.reshape(2, *shape))
        variables[f"{name}_standard_error"] = (dims, found[:, k, 1].reshape(shape))

    size = shape[-1]
    of_points = np.split(draws, len(columns) // size, axis=1)
    both = np.array([_correlation(draws) for draws in of_points])
    correlation, error = both.swapaxes(0, 1).reshape(2, *shape, size)
    pairs = (*dims, "other_output")
    variables["correlation"] = (("law", *pairs), np.stack([drawn.correlation, correlation]))
    variables["correlation_standard_error"] = (pairs, error)
    return variables


def _correlation(draws: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Correlation of the outputs of a point and its standard errors, NaN with too few draws."""
    complete = draws[np.isfinite(draws).all(axis=1)]
    if len(complete) >= _arguments.MINIMUM_DRAWS:
        return sample_correlation(complete)
    unknown = np.full((draws.shape[1], draws.shape[1]), np.nan)
    return unknown, unknown
