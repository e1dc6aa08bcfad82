"""Monte Carlo statistics that are accumulated while drawing: no draw is stored."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from numpyro.distributions import Distribution

from nn_uq_dist.basics import _checks
from nn_uq_dist.basics._summary_line import summary_line
from nn_uq_dist.inputs import AbstractInputLaw
from nn_uq_dist.sampling._monte_carlo import warn_nonfinite
from nn_uq_dist.sampling._passes import DrawPlan, Draws, all_draws, run_passes

# Draws that set the center and the scale of the bins before the run; the run includes them.
_PILOT_SIZE = 4096
# Beyond this many scales a draw is in the first or last bin anyway; float32 holds the square.
_LARGEST = 1e9


@dataclasses.dataclass(frozen=True, eq=False)
class MonteCarloStatistics:
    """Moments and a fine histogram of each output of a network, over finite draws.

    Made by `monte_carlo_statistics`. All arrays are NumPy arrays in float64 or int64; ``shape``
    below is ``batch_shape + (N_y,)``. If no draw of an output is finite, its values are NaN.

    Attributes
    ----------
    num_samples : int
        Number of draws.
    count : numpy.ndarray
        Number of finite draws, ``shape``.
    num_nonfinite : numpy.ndarray
        Number of NaN or infinite draws, ``shape``; no other field includes them.
    mean : numpy.ndarray
        Sample mean, ``shape``.
    variance : numpy.ndarray
        Unbiased sample variance, ``shape``.
    skewness : numpy.ndarray
        Third central moment over the 3/2 power of the second, ``shape``; NaN for a constant output.
    excess_kurtosis : numpy.ndarray
        Fourth central moment over the square of the second, minus 3, ``shape``.
    minimum, maximum : numpy.ndarray
        Extreme draws, ``shape``.
    bin_counts : numpy.ndarray
        Draws per bin, ``(num_bins,) + shape``.
    bin_edges : numpy.ndarray
        Edges of the bins, ``(num_bins + 1,) + shape``, the outer ones infinite.

    Examples
    --------
    >>> import jax
    >>> import jax.numpy as jnp
    >>> from nn_uq_dist import InputLaw, monte_carlo_statistics
    >>> f = InputLaw(jnp.zeros(1), half_width=1.0)
    >>> statistics = monte_carlo_statistics(lambda x: 2 * x, f, jax.random.key(0), 100_000)
    >>> bool(statistics.ks_distance(lambda y: jnp.clip((y + 2) / 4, 0, 1))[0] < 0.01)
    True
    """

    num_samples: int
    count: np.ndarray
    num_nonfinite: np.ndarray
    mean: np.ndarray
    variance: np.ndarray
    skewness: np.ndarray
    excess_kurtosis: np.ndarray
    minimum: np.ndarray
    maximum: np.ndarray
    bin_counts: np.ndarray
    bin_edges: np.ndarray

    def __repr__(self) -> str:
        return summary_line(self)

    @property
    def max_bin_mass(self) -> np.ndarray:
        """Largest share of the draws in one bin, ``shape``: the resolution of `ks_distance`."""
        return self._share(self.bin_counts.max(axis=0))

    def empirical_cdf(self) -> np.ndarray:
        """Share of the draws below each inner edge ``bin_edges[1:-1]``; exact, no binning error."""
        return self._share(np.cumsum(self.bin_counts[:-1], axis=0))

    def quantile(self, q: ArrayLike) -> np.ndarray:
        """Quantiles of the draws, linear within a bin.

        Parameters
        ----------
        q
            Probabilities in [0, 1], any shape.

        Returns
        -------
        numpy.ndarray
            Shape ``q.shape + shape``; off by less than the width of the bin, see
            `quantile_bounds`.

        Raises
        ------
        ValueError
            If `q` is not in [0, 1].
        """
        return np.asarray(self._quantile(q)[0])

    def quantile_bounds(self, q: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Return the edges of the bin that holds the empirical quantile, as ``(lower, upper)``.

        Parameters and errors are those of `quantile`.
        """
        _, lower, upper = self._quantile(q)
        return lower, upper

    def ks_distance(self, cdf: Callable[[Any], ArrayLike]) -> np.ndarray:
        r"""Kolmogorov-Smirnov distance between the draws and a law, from the bin edges.

        The empirical CDF is known exactly at the edges; between two edges the difference from `cdf`
        can exceed that at the edges by at most the share of the draws in the bin. The exact
        distance is therefore between the returned value and that value plus `max_bin_mass`.

        Parameters
        ----------
        cdf
            CDF of the outputs, such as ``linearization.marginals().cdf``. It is called with the
            inner edges, shape ``(num_bins - 1,) + shape``, and must return that shape.

        Returns
        -------
        numpy.ndarray
            Shape ``shape``. For draws of the law itself it is about ``0.87 / sqrt(count)``.

        Raises
        ------
        ValueError
            If `cdf` returns another shape.
        """
        edges = self.bin_edges[1:-1]
        values = np.asarray(cdf(edges), np.float64)
        if values.shape != edges.shape:
            raise ValueError(
                f"cdf must return the shape {edges.shape} of its argument, got {values.shape}; "
                f"pass the cdf of a distribution with batch_shape {self.count.shape}"
            )
        return np.asarray(np.abs(self.empirical_cdf() - values).max(axis=0))

    def _share(self, number: np.ndarray) -> np.ndarray:
        # The shares of an output without finite draws are NaN, without NumPy's warning.
        with np.errstate(invalid="ignore"):
            return np.asarray(number / self.count)

    def _quantile(self, q: ArrayLike) -> np.ndarray:
        """Quantiles, and the lower and upper edges of their bins, stacked."""
        q = np.asarray(q, np.float64)
        if not ((q >= 0) & (q <= 1)).all():
            raise ValueError(f"q must be in [0, 1], got {q}; pass probabilities, not percentages")
        # The draws lie between the extreme ones, so the outer bins end there.
        edges = np.clip(self.bin_edges, self.minimum, self.maximum)
        num_bins = self.bin_counts.shape[0]
        result = np.full((3, q.size, self.count.size), np.nan)
        of_outputs = self.bin_counts.reshape(num_bins, -1).T, edges.reshape(num_bins + 1, -1).T
        for output, (counts, column) in enumerate(zip(*of_outputs, strict=True)):
            if not counts.any():
                continue
            cumulative = np.cumsum(counts)
            # Empty bins hold no quantile: q = 0 means the first bin with a draw.
            target = np.maximum(q.ravel() * cumulative[-1], 0.5 * np.finfo(float).tiny)
            index = np.searchsorted(cumulative, target)
            lower, upper = column[index], column[index + 1]
            below = cumulative[index] - counts[index]
            inside = lower + (upper - lower) * (target - below) / counts[index]
            result[:, :, output] = inside, lower, upper
        return result.reshape(3, *q.shape, *self.count.shape)


def bin_edges(num_bins: int, center: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Edges of bins that are equally wide in ``t / sqrt(1 + t**2)``, ``t = (y - center)/scale``."""
    position = np.linspace(-1, 1, num_bins + 1)[1:-1]
    standard = position / np.sqrt((1 - position) * (1 + position))
    standard = np.concatenate([[-np.inf], standard, [np.inf]])
    return center.astype(np.float64) + scale.astype(np.float64) * standard[:, None]


def moments(
    count: np.ndarray, sums: np.ndarray, center: np.ndarray, scale: np.ndarray
) -> dict[str, np.ndarray]:
    """Moments from the sums of the first four powers of ``t = (y - center)/scale``.

    The center is within sampling error of the mean, so shifting the moments to it loses no digits.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        m1, m2, m3, m4 = sums / count
        second = np.maximum(m2 - m1**2, 0)
        third = m3 - 3 * m1 * m2 + 2 * m1**3
        fourth = m4 - 4 * m1 * m3 + 6 * m1**2 * m2 - 3 * m1**4
        unbiased = second * count / (count - 1)
        return {
            "mean": center + scale.astype(np.float64) * m1,
            "variance": scale.astype(np.float64) ** 2 * unbiased,
            "skewness": third / second**1.5,
            "excess_kurtosis": fourth / second**2 - 3,
        }


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
    draws = all_draws(pilot, lambda group: group.outputs, progress=False)
    draws = draws.reshape(size, -1).astype(np.float64)
    finite = np.isfinite(draws)
    number = np.maximum(finite.sum(axis=0), 1)
    center = np.where(finite, draws, 0).sum(axis=0) / number
    square = np.where(finite, draws - center, 0) ** 2
    scale = np.sqrt(square.sum(axis=0) / number)
    dtype = jnp.promote_types(plan.network.dtype, jnp.float32)
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
