"""Results of a Monte Carlo run that does not store its draws."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from nn_uq_dist.basics._summary_line import summary_line


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
        return self._quantile(q)[0]

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
        difference = np.abs(self.empirical_cdf() - self._cdf_at_edges(cdf))
        return np.asarray(difference.max(axis=0))

    def tv_distance(self, cdf: Callable[[Any], ArrayLike], num_cells: int = 64) -> np.ndarray:
        r"""Total-variation distance between the draws and a law, over cells of about equal mass.

        :math:`\frac12 \sum_c |\hat p_c - p_c|`, where each cell :math:`c` is a run of bins with
        about ``1/num_cells`` of the draws. Differences within cells are not seen, and the noise of
        the draws adds about ``sqrt(num_cells / (2 pi count))``.

        Parameters
        ----------
        cdf
            As in `ks_distance`.
        num_cells
            Number of cells, from 2 to the number of bins.

        Raises
        ------
        ValueError
            If `num_cells` is out of range or `cdf` returns another shape.
        """
        num_bins = self.bin_counts.shape[0]
        if not 2 <= num_cells <= num_bins:
            raise ValueError(
                f"num_cells must be between 2 and the number of bins {num_bins}, got {num_cells}; "
                f"the default is 64"
            )
        outer = np.zeros((1, *self.count.shape))
        empirical = np.concatenate([outer, self.empirical_cdf(), outer + 1])
        analytic = np.concatenate([outer, self._cdf_at_edges(cdf), outer + 1])
        rows = empirical.reshape(num_bins + 1, -1)
        levels = np.arange(1, num_cells) / num_cells
        inner = np.stack([np.searchsorted(column, levels) for column in rows.T], axis=-1)
        ends = np.zeros((1, inner.shape[1]), int)
        # A bin with more mass than a cell makes two cut points equal; the cell between is empty.
        cuts = np.concatenate([ends, inner, ends + num_bins]).reshape(-1, *self.count.shape)
        masses = [np.diff(np.take_along_axis(c, cuts, 0), axis=0) for c in (empirical, analytic)]
        return np.asarray(np.abs(masses[0] - masses[1]).sum(axis=0) / 2)

    def _share(self, number: np.ndarray) -> np.ndarray:
        # The shares of an output without finite draws are NaN, without NumPy's warning.
        with np.errstate(invalid="ignore"):
            return np.asarray(number / self.count)

    def _cdf_at_edges(self, cdf: Callable[[Any], ArrayLike]) -> np.ndarray:
        edges = self.bin_edges[1:-1]
        values = np.asarray(cdf(edges), np.float64)
        if values.shape != edges.shape:
            raise ValueError(
                f"cdf must return the shape {edges.shape} of its argument, got {values.shape}; "
                f"pass the cdf of a distribution with batch_shape {self.count.shape}"
            )
        return values

    def _quantile(self, q: ArrayLike) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        q = np.asarray(q, np.float64)
        if not ((q >= 0) & (q <= 1)).all():
            raise ValueError(f"q must be in [0, 1], got {q}; pass probabilities, not percentages")
        # The draws lie between the extreme ones, so the outer bins end there.
        edges = np.clip(self.bin_edges, self.minimum, self.maximum)
        num_bins = self.bin_counts.shape[0]
        result = np.full((3, q.size, self.count.size), np.nan)
        columns = zip(
            self.bin_counts.reshape(num_bins, -1).T,
            edges.reshape(num_bins + 1, -1).T,
            strict=True,
        )
        for output, (counts, column) in enumerate(columns):
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
        shape = (*q.shape, *self.count.shape)
        return result[0].reshape(shape), result[1].reshape(shape), result[2].reshape(shape)


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
