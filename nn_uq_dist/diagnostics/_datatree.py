"""Draws, probabilities, densities and moments of the outputs as one labelled tree for ArviZ."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from numpy.typing import NDArray

from nn_uq_dist import _checks
from nn_uq_dist.diagnostics._arguments import (
    MINIMUM_DRAWS,
    as_draws,
    as_marginals,
    as_output_names,
    finite_draws,
    require_extra,
)
from nn_uq_dist.diagnostics._joint_statistics import sample_correlation
from nn_uq_dist.diagnostics._statistics import UNKNOWN, sample_moments
from nn_uq_dist.diagnostics._tails import Tails, upper_tails_and_densities

if TYPE_CHECKING:
    import xarray as xr

    from nn_uq_dist._linearization import Linearization
    from nn_uq_dist.distributions import GaussianCopulaJoint, LinearizedMarginal

NUM_CHAINS = 4
# Half of the range of the grids: beyond, 2e-9 of a normal law are left.
RANGE_IN_SD = 6.0
# Random numbers that one call draws: bounds the memory.
BLOCK_NUMBERS = 2**23
SAMPLE_DIMS = ("chain", "draw", "output")


def to_datatree(
    law: "Linearization | LinearizedMarginal | GaussianCopulaJoint",
    draws: ArrayLike,
    *,
    output_names: Sequence[str] | None = None,
    key: jax.Array | None = None,
    num_analytic_draws: int = 10_000,
    num_grid_points: int = 401,
    progress: bool = True,
) -> "xr.DataTree":
    r"""Collect Monte Carlo draws and their analytic law in a tree that ArviZ takes.

    Parameters
    ----------
    law
        A `Linearization`, whose draws are exact; a `GaussianCopulaJoint` of `LinearizedMarginal`
        laws; or such laws alone, batch shape ``(N_y,)``, whose draws are independent.
    draws
        Monte Carlo draws of the outputs, shape ``(n, N_y)``, independent, ``n >= 100``.
    output_names
        Names of the outputs, the coordinate `output`. Default ``y[0]``, ``y[1]``, ...
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
          as four chains of equal length, because one chain has no ``r_hat``; up to three draws at
          the end find no place (counted in the attribute `draws_left_out`). Draws that are not
          finite stay.
        - `analytic`: `y`, draws of the law in the same layout; the attribute `source` says of what.
        - `pit`: `y`, the probability integral transforms ``F(draw)`` of `monte_carlo`. Those of
          draws beyond the support are 0 or 1; all are held within 2.2e-16 of these. NaN where the
          draw is not finite.
        - `analytic_grid`: `x`, `density`, `cdf` and `log_sf` (log survival) with dimensions
          `output`, `point`; the grid reaches 6 standard deviations to either side, or to the end of
          the support.
        - `moments`, of all draws: `mean`, `sd`, `skewness`, `excess_kurtosis` with dimensions
          `law` (``"analytic"``, ``"monte_carlo"``) and `output`; `correlation` with
          `law`, `output`, `other_output`, the analytic one NaN where only marginals are given;
          the standard errors of the Monte Carlo values as `mean_standard_error` and so on;
          `outside_support` (fraction of the finite draws) and `non_finite` (count) of each output.

    Raises
    ------
    ImportError
        If xarray is missing.
    TypeError, ValueError
        If shapes or names do not fit, or an output is constant; nothing is computed before that is
        known.

    Warns
    -----
    RuntimeWarning
        If draws are NaN or infinite. The moments leave them out, and the correlations every row
        that holds one; with fewer than 100 left they are NaN.

    Notes
    -----
    ``tree.to_netcdf(path)`` and ``xarray.open_datatree(path)`` keep everything; they need the
    package h5netcdf or netCDF4. Results of NumPyro's MCMC become a tree by
    ``arviz_base.from_numpyro``.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, nn_uq_dist as nuq
    >>> law = nuq.InputLaw(jnp.zeros(3), half_width=0.5)
    >>> net = lambda f: jnp.array([jnp.sin(f[0]) + f[1], f[1] * jnp.exp(f[2])])
    >>> draws = nuq.monte_carlo(net, law, jax.random.key(0), 4_000)
    >>> tree = nuq.diagnostics.to_datatree(nuq.linearize(net, law), draws, output_names=["a", "b"])
    >>> print(*tree.children)
    monte_carlo analytic pit analytic_grid moments
    >>> print(tree["moments"]["sd"].sel(output="b").values.round(2))
    [0.29 0.31]
    """
    joint = _as_joint(law)
    marginals, num_outputs = as_marginals(law if joint is None else joint.marginals)
    values = _as_storable(as_draws(draws, num_outputs))
    names = as_output_names(output_names, num_outputs)
    key = jax.random.key(0) if key is None else _checks.as_key("key", key)
    num_analytic = _checks.positive_int("num_analytic_draws", num_analytic_draws)
    num_points = _checks.positive_int("num_grid_points", num_grid_points)
    if num_points < 2:
        raise ValueError("num_grid_points must be at least 2, got 1; a grid has two ends")
    xarray = require_extra("xarray", "diagnostics.to_datatree")

    columns = finite_draws(values, names)
    tails = Tails(marginals, values, progress=progress)
    drawn = _analytic(law, joint, marginals, num_outputs)
    per_chain = -(-num_analytic // NUM_CHAINS)
    analytic = _sample(drawn, key, NUM_CHAINS * per_chain, num_outputs)

    coordinates = {"output": names}
    groups = {
        "monte_carlo": xarray.Dataset(
            {"y": (SAMPLE_DIMS, _in_chains(values))},
            coordinates,
            {"draws_left_out": values.shape[0] % NUM_CHAINS},
        ),
        "analytic": xarray.Dataset(
            {"y": (SAMPLE_DIMS, _in_chains(analytic))}, coordinates, {"source": drawn.source}
        ),
        "pit": xarray.Dataset({"y": (SAMPLE_DIMS, _in_chains(tails.probabilities()))}, coordinates),
        "analytic_grid": xarray.Dataset(
            {
                name: (("output", "point"), array)
                for name, array in _grid(marginals, num_outputs, num_points).items()
            },
            coordinates,
        ),
        "moments": xarray.Dataset(
            _moments(marginals, drawn, values, columns)
            | {
                "outside_support": ("output", _fraction(tails.is_outside, columns)),
                "non_finite": ("output", [values.shape[0] - c.size for c in columns]),
            },
            coordinates | {"other_output": names, "law": ["analytic", "monte_carlo"]},
        ),
    }
    for name in ("monte_carlo", "analytic", "pit"):
        groups[name] = groups[name].assign_coords(
            chain=np.arange(NUM_CHAINS), draw=np.arange(groups[name].sizes["draw"])
        )
    tree: xr.DataTree = xarray.DataTree.from_dict(groups)
    tree.attrs["creation_library"] = "nn_uq_dist"
    return tree


class _Drawn(NamedTuple):
    """What the analytic draws come from."""

    law: Any
    source: str
    correlation: NDArray[np.float64]
    random_numbers: int  # for one draw of all outputs


def _as_joint(law: Any) -> Any | None:
    """Return the law if it is a joint one."""
    from nn_uq_dist.distributions import GaussianCopulaJoint

    if not isinstance(law, GaussianCopulaJoint):
        return None
    if law.batch_shape:
        raise ValueError(
            f"law must have no batch shape, got {law.batch_shape}; linearize at one mean at a time"
        )
    return law


def _as_storable(draws: NDArray[Any]) -> NDArray[Any]:
    """Float32 and float64 stay; the types that NetCDF and ArviZ do not know are widened."""
    if draws.dtype in {np.dtype(np.float32), np.dtype(np.float64)}:
        return draws
    small = draws.dtype.name in {"float16", "bfloat16"}
    return draws.astype(np.float32 if small else np.float64)


def _analytic(law: Any, joint: Any | None, marginals: Any, num_outputs: int) -> _Drawn:
    if joint is not None:
        covariance = np.asarray(joint.covariance_matrix, np.float64)
        sd = np.sqrt(np.diag(covariance))
        return _Drawn(joint, "Gaussian copula", covariance / np.outer(sd, sd), num_outputs)
    if marginals is not law:
        correlation = np.asarray(law.correlation, np.float64)
        return _Drawn(law, "linear model", correlation, num_outputs + law.input.num_inputs)
    unknown = np.where(np.eye(num_outputs, dtype=bool), 1, np.nan)
    size = num_outputs * law.weights.shape[-1]
    return _Drawn(law, "marginals, drawn independently", unknown, size)


def _sample(drawn: _Drawn, key: jax.Array, count: int, num_outputs: int) -> NDArray[Any]:
    """Draw in blocks of one size, each with its own key, shape ``(count, N_y)``."""
    block = min(count, max(1, BLOCK_NUMBERS // drawn.random_numbers))
    keys = jax.random.split(key, -(-count // block))
    parts = [np.asarray(drawn.law.sample(k, (block,))) for k in keys]
    return np.concatenate(parts)[:count].reshape(count, num_outputs)


def _in_chains(draws: NDArray[Any]) -> NDArray[Any]:
    per_chain = len(draws) // NUM_CHAINS
    return draws[: NUM_CHAINS * per_chain].reshape(NUM_CHAINS, per_chain, -1)


def _grid(law: Any, num_outputs: int, num_points: int) -> dict[str, NDArray[np.float64]]:
    """Values on the grids, shape ``(N_y, points)``: by symmetry from those of the upper half."""
    mean, sd, half_width = (
        np.broadcast_to(np.asarray(value, np.float64), (num_outputs,))[:, None]
        for value in (law.mean, jnp.sqrt(law.variance), _half_width(law.support))
    )
    fractions = np.linspace(-1, 1, num_points)[num_points // 2 :]
    upper = np.minimum(RANGE_IN_SD * sd, half_width) * fractions
    log_sf, log_density = (part.T for part in upper_tails_and_densities(law, (mean + upper).T))
    tail, density = np.exp(log_sf), np.exp(log_density)

    def mirrored(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return values[:, num_points % 2 :][:, ::-1]  # the center of an odd grid is there once

    return {
        "x": np.hstack([mean - mirrored(upper), mean + upper]),
        "density": np.hstack([mirrored(density), density]),
        "cdf": np.hstack([mirrored(tail), 1 - tail]),
        "log_sf": np.hstack([np.log1p(-mirrored(tail)), log_sf]),
    }


def _half_width(support: Any) -> Any:
    if hasattr(support, "lower_bound"):
        return (support.upper_bound - support.lower_bound) / 2
    return np.inf


def _moments(
    law: Any, drawn: _Drawn, draws: NDArray[Any], columns: Sequence[NDArray[np.float64]]
) -> dict[str, Any]:
    """Moments of the law and of the draws, and the standard errors of the latter."""
    size = len(columns)
    analytic = {
        "mean": law.mean,
        "sd": jnp.sqrt(law.variance),
        "skewness": 0.0,
        "excess_kurtosis": law.excess_kurtosis,
    }
    found = [sample_moments(c) if c.size >= MINIMUM_DRAWS else {} for c in columns]
    variables: dict[str, Any] = {}
    for name, value in analytic.items():
        estimates = [moments.get(name, UNKNOWN) for moments in found]
        both = [
            np.broadcast_to(np.asarray(value, np.float64), (size,)),
            [estimate.value for estimate in estimates],
        ]
        variables[name] = (("law", "output"), np.array(both))
        errors = [estimate.standard_error for estimate in estimates]
        variables[f"{name}_standard_error"] = ("output", errors)

    pairs = ("output", "other_output")
    complete = draws[np.isfinite(draws).all(axis=1)]
    if len(complete) >= MINIMUM_DRAWS:
        correlation, error = sample_correlation(complete)
    else:
        correlation = error = np.full((size, size), np.nan)
    variables["correlation"] = (("law", *pairs), np.stack([drawn.correlation, correlation]))
    variables["correlation_standard_error"] = (pairs, error)
    return variables


def _fraction(
    is_outside: NDArray[np.bool_], columns: Sequence[NDArray[np.float64]]
) -> NDArray[np.float64]:
    counts = np.array([column.size for column in columns], dtype=np.float64)
    return is_outside.sum(axis=0) / np.where(counts > 0, counts, np.nan)
