"""Draws of the outputs and their probabilities as one labelled tree for ArviZ."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.basics import checks
from nn_uq_dist.diagnostics import arguments
from nn_uq_dist.diagnostics.output_functions import OutputFunctions, Tails
from nn_uq_dist.distributions import JointDistribution
from nn_uq_dist.linearization import Linearization, LinearModel

if TYPE_CHECKING:
    import xarray as xr

NUM_CHAINS = 4
# Draws of one call; this bounds the memory.
DRAWS_PER_CALL = 500


def to_datatree(
    distribution: arguments.Marginals,
    draws: arguments.NetworkDraws,
    *,
    output_names: Sequence[str] | None = None,
    key: jax.Array | None = None,
    num_analytic_draws: int = 10_000,
    progress: bool = True,
) -> "xr.DataTree":
    r"""Collect Monte Carlo draws and draws of their analytic distribution in a tree for ArviZ.

    Parameters
    ----------
    distribution
        A `Linearization` or any other `LinearModel`; a `GaussianCopulaJoint` or any other
        `JointDistribution`; or the distributions of the outputs alone, batch shape ``(..., N_y)``,
        whose draws are independent: a `LinearizedMarginal`, any other `OutputDistribution`, a
        univariate NumPyro distribution.
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
        - `analytic`: `y`, draws of the distribution in the same layout; the attribute `source`
          names the distribution.
        - `pit`: `y`, the probability integral transforms ``F(draw)`` of `monte_carlo`. All are
          clipped to the range from 2.2e-16 to 1 - 2.2e-16, which draws beyond the support attain.
          NaN where the draw is not finite.

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
        If draws are NaN or infinite.

    Notes
    -----
    ``tree.to_netcdf(path)`` and ``xarray.open_datatree(path)`` keep everything; they need the
    package h5netcdf or netCDF4. ``arviz_base.from_numpyro`` turns results of NumPyro's MCMC into a
    tree.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, nn_uq_dist as nuq
    >>> distribution = nuq.Input.box(jnp.zeros(3), half_width=0.5)
    >>> network = lambda f: jnp.array([jnp.sin(f[0]) + f[1], f[1] * jnp.exp(f[2])])
    >>> draws = nuq.monte_carlo(network, distribution, jax.random.key(0), 4_000)
    >>> tree = nuq.diagnostics.to_datatree(
    ...     nuq.linearize(network, distribution), draws, output_names=["a", "b"]
    ... )
    >>> print(*tree.children)
    monte_carlo analytic pit
    >>> print(tree["monte_carlo"]["y"].sel(output="b").std().item().__round__(2))
    0.31
    """
    arguments.require_numbers("to_datatree", distribution, draws, key)
    marginals, shape = arguments.as_marginals(distribution, batched=True)
    values = arguments.as_draws(distribution, draws, shape)
    # The types that NetCDF and ArviZ do not support are widened.
    is_single = values.dtype.name in {"float16", "bfloat16", "float32"}
    values = values.astype(np.float32 if is_single else np.float64, copy=False)
    names = arguments.names_of_outputs(distribution, output_names, shape[-1])
    batch_shape = shape[:-1]
    key = jax.random.key(0) if key is None else checks.as_key("key", key)
    num_analytic = checks.positive_int("num_analytic_draws", num_analytic_draws)
    xarray = checks.require_extra("xarray", "diagnostics.to_datatree")

    arguments.warn_of_left_out(values, arguments.flat_names(batch_shape, names))
    positions = Tails(OutputFunctions(marginals), values, progress=progress)
    if isinstance(distribution, JointDistribution):
        source = "Gaussian copula" if distribution.kind == "copula" else distribution.kind
    elif isinstance(distribution, LinearModel):
        is_tangent = isinstance(distribution, Linearization)
        source = "linear model" if is_tangent else type(distribution).__name__
    else:
        distribution, source = marginals, "marginals, drawn independently"
    count = NUM_CHAINS * -(-num_analytic // NUM_CHAINS)
    keys = jax.random.split(key, -(-count // DRAWS_PER_CALL))
    parts = [np.asarray(distribution.sample(k, (DRAWS_PER_CALL,))) for k in keys]
    drawn = np.concatenate(parts)[:count]

    def group(array: NDArray[Any], attributes: dict[str, Any]) -> Any:
        length = len(array) // NUM_CHAINS
        of_chains = array[: NUM_CHAINS * length].reshape(NUM_CHAINS, length, *shape)
        along = {"chain": np.arange(NUM_CHAINS), "draw": np.arange(length)}
        coordinates = along | arguments.point_coordinates(batch_shape) | {"output": names}
        return xarray.Dataset({"y": ([*coordinates], of_chains)}, coordinates, attributes)

    groups = {
        "monte_carlo": group(values, {"draws_left_out": len(values) % NUM_CHAINS}),
        "analytic": group(drawn, {"source": source}),
        "pit": group(positions.probabilities(), {}),
    }
    tree = xarray.DataTree.from_dict(groups)
    tree.attrs["creation_library"] = "nn_uq_dist"
    return tree
