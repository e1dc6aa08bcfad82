r"""Bins of normal scores, averages of quantile functions over them from draws, and their noise.

The average over a bin, :math:`\frac{1}{v - u} \int_u^v Q(p)\,dp`, is linear in the order
statistics. To first order in :math:`1/n` its error is the mean of the influence function

.. math:: \psi(y) = \frac{\min(\max(y, Q(u)), Q(v))}{v - u} + \mathrm{const}

(R. J. Serfling, Approximation Theorems of Mathematical Statistics (1980), chapter 8): no density
needs to be estimated, and the noise of a difference of paired samples is that of the difference
of their influence functions.
"""

import dataclasses
import itertools
from collections.abc import Callable
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.basics.summary_line import summary_line

_FEWEST, _MOST = 6, 64
# Bins for each root of the number of draws: with fewer, kinks of a network fall within a bin.
_BINS = 1.5
# Mean number of draws in the outermost bins. With fewer, the smoothing alone sets the tail.
_OUTERMOST_DRAWS = 2.0
# Nodes of quadratures over a bin, within which integrands are smooth.
_INNER_NODES, _OUTER_NODES = 4, 12
# Numbers of influence functions at a time.
_MOST_NUMBERS = 2**21
# Distances beyond the edge of the outermost bin: end of its quadrature, and last knot.
_BEYOND, _LAST_KNOT = 5.0, 1.0


@dataclasses.dataclass(frozen=True)
class ScoreBins:
    """Bins of normal scores: equally wide, except the outermost, which extend to infinity.

    Attributes
    ----------
    edges
        Scores between the bins, ascending, shape ``(m - 1,)``.

    Examples
    --------
    >>> from nn_uq_dist.paired_samples import ScoreBins
    >>> bins = ScoreBins.for_samples(100)
    >>> bins.centers.size, round(float(bins.probabilities[1]), 3)
    (15, 0.02)
    """

    edges: FloatArray

    __repr__ = summary_line

    @classmethod
    def for_samples(cls, num_samples: int) -> Self:
        """About ``1.5 sqrt(n)`` bins: their number and the draws in each grow alike."""
        from scipy.special import ndtri

        count = int(np.clip(round(_BINS * num_samples**0.5), _FEWEST, _MOST))
        last = -ndtri(min(0.2, _OUTERMOST_DRAWS / num_samples))
        return cls(np.linspace(-last, last, count - 1))

    @cached_property
    def probabilities(self) -> FloatArray:
        """Probabilities of the edges with 0 and 1 around them, shape ``(m + 1,)``."""
        from scipy.special import ndtr

        return np.concatenate([[0.0], ndtr(self.edges), [1.0]])

    @property
    def widths(self) -> FloatArray:
        """Probabilities of the bins, shape ``(m,)``."""
        return np.diff(self.probabilities)

    @cached_property
    def centers(self) -> FloatArray:
        """Mean scores in the bins, shape ``(m,)``."""
        density = np.exp(-(self.edges**2) / 2) / np.sqrt(2 * np.pi)
        return -np.diff(np.concatenate([[0.0], density, [0.0]])) / self.widths

    @cached_property
    def knots(self) -> FloatArray:
        """The centers and two scores beyond them at each end, shape ``(m + 4,)``."""
        last, end = self.centers[-1], self.edges[-1] + _LAST_KNOT
        outer = np.array([(last + end) / 2, end])
        return np.concatenate([-outer[::-1], self.centers, outer])

    @cached_property
    def nodes(self) -> FloatArray:
        """Nodes of a quadrature over all bins, shape ``(q,)``."""
        return np.concatenate([nodes for nodes, _ in self._rules])

    def averages(self, values: FloatArray) -> FloatArray:
        """Averages over the bins of a function given at the nodes, ``(q, J)`` to ``(m, J)``."""
        from scipy.linalg import block_diag

        return block_diag(*(weights for _, weights in self._rules)) @ values

    @cached_property
    def _rules(self) -> list[tuple[FloatArray, FloatArray]]:
        ends = np.concatenate([[self.edges[0] - _BEYOND], self.edges, [self.edges[-1] + _BEYOND]])
        last = ends.size - 2
        rules = []
        for k, (low, high) in enumerate(itertools.pairwise(ends)):
            count = _OUTER_NODES if k in {0, last} else _INNER_NODES
            x, w = np.polynomial.legendre.leggauss(count)
            nodes = (low + high) / 2 + (high - low) / 2 * x
            weights = w * np.exp(-(nodes**2) / 2)
            rules.append((nodes, weights / weights.sum()))
        return rules


def sample_averages(sample: FloatArray, bins: ScoreBins) -> FloatArray:
    """Averages of the quantile function of a sample, ``(n, J)`` to ``(m, J)``."""
    count, ordered = len(sample), np.sort(sample, axis=0)
    # The integral of the quantile function, a step function, up to each probability. The median is
    # subtracted first: sums with a large mean would lose digits.
    center = ordered[count // 2]
    sums = np.cumsum(ordered - center, axis=0)
    sums = np.concatenate([np.zeros_like(sums[:1]), sums]) / count
    at_edges = _between(sums, bins.probabilities * count)
    return center + (at_edges[1:] - at_edges[:-1]) / bins.widths[:, None]


def _between(rows: FloatArray, position: FloatArray) -> FloatArray:
    """Linear interpolation between the rows around each position."""
    below = np.minimum(position.astype(int), len(rows) - 2)
    share = (position - below)[:, None]
    return rows[below] * (1 - share) + rows[below + 1] * share


def influence(sample: FloatArray, bins: ScoreBins) -> FloatArray:
    """Influence functions of `sample_averages` at the draws, minus their means, ``(m, n, J)``."""
    ordered = np.sort(sample, axis=0)
    at_edges = _between(ordered, bins.probabilities[1:-1] * (len(sample) - 1))
    low = np.concatenate([ordered[:1], at_edges])[:, None]
    high = np.concatenate([at_edges, ordered[-1:]])[:, None]
    clipped = np.clip(sample, low, high) / bins.widths[:, None, None]
    return clipped - np.mean(clipped, axis=1, keepdims=True)


def differences(
    one: FloatArray, other: FloatArray, bins: ScoreBins, parts: int, num_inside: int | None = None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mean difference of the averages of two samples in equal parts, and two variances, ``(m, J)``.

    The one is between the parts. The other is that of a draw's influence, by the first
    `num_inside`: divided by their number it is the variance for independent draws.
    """

    def of_some(one: FloatArray, other: FloatArray) -> tuple[FloatArray, ...]:
        pairs = zip(np.split(one, parts), np.split(other, parts), strict=True)
        rises = np.stack([sample_averages(a, bins) - sample_averages(b, bins) for a, b in pairs])
        psi = influence(one[:num_inside], bins) - influence(other[:num_inside], bins)
        means = rises.mean(axis=0), np.var(rises, axis=0, ddof=1), np.mean(psi**2, axis=1)
        return tuple(mean.T for mean in means)

    mean, between, inside = by_outputs(of_some, bins, len(one[:num_inside]), one, other)
    return mean.T, between.T, inside.T


def by_outputs(
    function: Callable[..., tuple[FloatArray, ...]],
    bins: ScoreBins,
    num_draws: int,
    *arrays: NDArray[Any],
) -> list[FloatArray]:
    """Results of a function of arrays with outputs last, which are first in what it returns.

    Influence functions have a number for each bin, draw and output: they are computed for a few
    outputs at a time.
    """
    size = max(1, _MOST_NUMBERS // (bins.centers.size * num_draws))
    starts = range(0, arrays[0].shape[-1], size)
    parts = [function(*(array[..., k : k + size] for array in arrays)) for k in starts]
    return [np.concatenate(part) for part in zip(*parts, strict=True)]
