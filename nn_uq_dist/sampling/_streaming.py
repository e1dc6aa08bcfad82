"""Monte Carlo statistics that are accumulated while drawing: no draw is stored."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import Distribution

from nn_uq_dist.basics import _checks
from nn_uq_dist.inputs import AbstractInputLaw
from nn_uq_dist.sampling._monte_carlo import warn_nonfinite
from nn_uq_dist.sampling._passes import DrawPlan, Draws, run_passes
from nn_uq_dist.sampling._statistics import MonteCarloStatistics, bin_edges, moments

# Draws that set the center and the scale of the bins before the run; the run includes them.
_PILOT_SIZE = 4096
# Beyond this many scales a draw is in the first or last bin anyway; float32 holds the square.
_LARGEST = 1e9


def monte_carlo_statistics(
    network: Callable[[Any], Any],
    f: Distribution | AbstractInputLaw | Any,
    key: Array,
    num_samples: int,
    *,
    num_bins: int = 16384,
    batch_size: int | None = None,
    devices: Sequence[jax.Device] | None = None,
    progress: bool = True,
) -> MonteCarloStatistics:
    r"""Moments, quantiles and distances of the network's outputs, without storing the draws.

    Uses the draws of `monte_carlo` with the same key, so the same guarantees hold. Each output is
    counted into bins that are equally wide in :math:`t/\sqrt{1 + t^2}`, :math:`t = (y - c)/s`, with
    center :math:`c` and scale :math:`s` the mean and standard deviation of the first draws (at most
    4096). The bins cover the real line; a bin is :math:`2 s (1 + t^2)^{3/2} / \mathrm{num\_bins}`
    wide, which is 0.0001 s at the center and 0.016 s at :math:`t = 5` with the default number.
    Power sums of :math:`t` are added in the output's precision within groups of at most 4096 draws,
    and in float64 between groups.

    Parameters
    ----------
    network, f, key, num_samples, batch_size, devices, progress
        As in `monte_carlo`. Memory does not grow with `num_samples`.
    num_bins
        Number of bins per output, at least 16.

    Returns
    -------
    MonteCarloStatistics

    Raises
    ------
    TypeError, ValueError
        As for `monte_carlo`, or if `num_bins` is not an integer or is below 16.

    Warns
    -----
    RuntimeWarning
        If some draws are NaN or infinite. They are counted in ``num_nonfinite`` and left out of
        everything else.

    Examples
    --------
    >>> import jax
    >>> import jax.numpy as jnp
    >>> from nn_uq_dist import InputLaw, monte_carlo_statistics
    >>> f = InputLaw(jnp.zeros(2), half_width=1.0)
    >>> statistics = monte_carlo_statistics(jnp.tanh, f, jax.random.key(0), 100_000)
    >>> statistics.mean.shape, statistics.quantile([0.1, 0.9]).shape
    ((2,), (2, 2))
    """
    num_bins = _checks.positive_int("num_bins", num_bins)
    if num_bins < 16:
        raise ValueError(f"num_bins must be at least 16, got {num_bins}; the default is 16384")
    plan = DrawPlan.make(network, f, key, num_samples, batch_size, devices)
    center, scale = _pilot(plan)
    step = _make_step(center, scale, num_bins)
    num_outputs = center.size
    zeros = jnp.zeros((num_bins * num_outputs,), jnp.int32)

    counts = np.zeros((num_bins, num_outputs), np.int64)
    number = np.zeros(num_outputs, np.int64)
    sums = np.zeros((4, num_outputs))
    minimum = np.full(num_outputs, np.inf)
    maximum = np.full(num_outputs, -np.inf)
    for _, _, pass_counts, groups in run_passes(plan, step, zeros, progress=progress):
        by_device = pass_counts.sum(axis=0, dtype=np.int64)
        counts += by_device.reshape(num_bins, num_outputs)
        number += groups["number"].sum(axis=0, dtype=np.int64)
        sums += groups["sums"].sum(axis=0, dtype=np.float64)
        minimum = np.minimum(minimum, groups["minimum"].min(axis=0))
        maximum = np.maximum(maximum, groups["maximum"].max(axis=0))

    nothing = number == 0
    minimum, maximum = np.where(nothing, np.nan, minimum), np.where(nothing, np.nan, maximum)
    num_nonfinite = plan.num_samples - number
    warn_nonfinite(int(num_nonfinite.sum()), plan.num_samples * num_outputs)
    fields = {
        "count": number,
        "num_nonfinite": num_nonfinite,
        **moments(number, sums, center, scale),
        "minimum": minimum,
        "maximum": maximum,
        "bin_counts": counts,
        "bin_edges": bin_edges(num_bins, center, scale),
    }
    shape = plan.output_shape
    return MonteCarloStatistics(
        num_samples=plan.num_samples,
        **{name: leaf.reshape(*leaf.shape[:-1], *shape) for name, leaf in fields.items()},
    )


def _pilot(plan: DrawPlan) -> tuple[np.ndarray, np.ndarray]:
    """Return center and scale of the bins, in the dtype of the sums, shape ``(outputs,)``."""
    size = min(plan.num_samples, _PILOT_SIZE)
    pilot = dataclasses.replace(plan, num_samples=size, groups_per_pass=1)
    passes = run_passes(pilot, lambda _, group, __: (None, group.outputs), None, progress=False)
    rows = [outputs.reshape(-1, *plan.output_shape) for _, _, _, outputs in passes]
    draws = np.concatenate(rows)[:size].reshape(size, -1).astype(np.float64)
    finite = np.isfinite(draws)
    number = np.maximum(finite.sum(axis=0), 1)
    center = np.where(finite, draws, 0).sum(axis=0) / number
    square = np.where(finite, draws - center, 0) ** 2
    scale = np.sqrt(square.sum(axis=0) / number)
    dtype = jnp.promote_types(plan.output_dtype, jnp.float32)
    center, scale = center.astype(dtype), scale.astype(dtype)
    # An output that is constant in the pilot has no scale of its own.
    return center, np.where((scale > 0) & np.isfinite(scale), scale, np.ones_like(scale))


def _make_step(center: np.ndarray, scale: np.ndarray, num_bins: int) -> Callable[..., Any]:
    """Return the step of `run_passes` that reduces the outputs of one group."""
    num_outputs = center.size
    dtype = center.dtype

    def step(counts: Array, draws: Draws, is_wanted: Array) -> tuple[Array, Any]:
        values = draws.outputs.reshape(draws.outputs.shape[0], num_outputs).astype(dtype)
        used = jnp.isfinite(values) & is_wanted[:, None]
        standard = jnp.where(used, (values - center) / scale, 0)
        clipped = jnp.clip(standard, -_LARGEST, _LARGEST)
        position = clipped / jnp.sqrt(1 + clipped**2)
        index = ((position + 1) * (num_bins / 2)).astype(jnp.int32)
        index = jnp.clip(index, 0, num_bins - 1) * num_outputs + jnp.arange(num_outputs)
        counts = counts.at[index].add(used.astype(jnp.int32), mode="promise_in_bounds")
        sums = jnp.stack([jnp.sum(standard**power, axis=0) for power in (1, 2, 3, 4)])
        return counts, {
            "number": jnp.sum(used, axis=0, dtype=jnp.int32),
            "sums": sums,
            "minimum": jnp.min(jnp.where(used, values, jnp.inf), axis=0),
            "maximum": jnp.max(jnp.where(used, values, -jnp.inf), axis=0),
        }

    return step
