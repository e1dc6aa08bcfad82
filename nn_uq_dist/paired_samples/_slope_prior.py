r"""Increasing maps whose log slope has one prior, from noisy averages of what they return.

The map `T` takes quantiles of the linear output to those of the network's. Its slope is
:math:`e^{u}`, with `u` a function of the normal score `z`: so it increases, and a density of the
network's output, which has the slope in its denominator, is as smooth as `u`. The prior of `u`
minus a reference is a Gaussian process,

.. math:: \sigma^2 \bigl[1 + z z' / 4 + \rho\, k(z, z')\bigr],

a constant, a tilt, and a random walk of the tilt that starts in the middle, with `k` its integral
(G. Wahba, J. R. Stat. Soc. B 40 (1978)). Grids of :math:`\sigma` and :math:`\rho` are weighted by
their evidence (C. E. Rasmussen and C. K. I. Williams, Gaussian Processes for Machine Learning
(2006), chapter 5), so the averages determine how much they bend the map, possibly not at all.
"""

from typing import Any, NamedTuple

import numpy as np

from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.paired_samples.score_bins import ScoreBins

# Standard deviations of the log slope, and ratios of the variances of its bends.
_SIGMAS = np.geomspace(3e-5, 3.0, 11)
_RATIOS = np.array([0.0, 0.03, 0.3, 3.0])
# Standard deviation of the prior of the location, in those of the network's output.
_LOCATION = 10.0
# Gauss-Newton steps; weights of the grid are taken anew in the first of them.
_STEPS, _WEIGHED = 30, 4
# Longest step of a log slope, and the step at which the map has settled.
_LONGEST, _SETTLED = 1.0, 1e-4


class Curve(NamedTuple):
    """Maps of some outputs, in units of the standard deviations of both members.

    Attributes
    ----------
    log_slopes
        At the centers of the bins, shape ``(J, m)``; constant beyond the last ones, and linear
        functions of the score between them.
    location
        Values at the first node or knot with a score of zero or more, ``(J,)``.
    """

    log_slopes: FloatArray
    location: FloatArray


class CurveAverages:
    """Averages over the bins of maps of the linear outputs, and their derivatives.

    The linear outputs have quantiles at the nodes and at the knots of the bins, ``(J, q)`` and
    ``(J, k)``.
    """

    def __init__(self, bins: ScoreBins, at_nodes: FloatArray, at_knots: FloatArray) -> None:
        self.centers = bins.centers
        scores = np.concatenate([bins.nodes, bins.knots])
        order = np.argsort(scores, kind="stable")
        linear = np.concatenate([at_nodes, at_knots], axis=1)[:, order]
        self._widths = np.diff(np.maximum.accumulate(linear, axis=1), axis=1)
        self._middle = int(np.searchsorted(scores[order], 0.0))
        self._knots = np.argsort(order)[bins.nodes.size :]
        self._rule = bins.averages(np.eye(scores.size)[: bins.nodes.size])[:, order]
        hats = [np.interp(scores[order], bins.centers, row) for row in np.eye(bins.centers.size)]
        self._hats = np.stack(hats, axis=1)
        self._by_ends = self._derivatives_by_ends()

    def _derivatives_by_ends(self) -> Any:
        """Derivatives ``(m * m, 2 rises)`` of averages by log slopes, of derivatives of the rises.

        These are by the log slopes at the left and at the right of each rise, of which few depend
        on the log slope at a center: a sparse matrix.
        """
        from scipy.sparse import csr_array

        # A rise adds to all values beyond it, and is taken from them where it is left of the
        # middle, where the values are known.
        beyond = np.cumsum(self._rule[:, ::-1], axis=1)[:, -2::-1]
        beyond[:, : self._middle] -= self._rule.sum(axis=1, keepdims=True)
        at_ends = np.concatenate([self._hats[:-1], self._hats[1:]])
        rise, center = np.nonzero(at_ends)
        size = len(beyond)
        values = np.tile(beyond, 2)[:, rise] * at_ends[rise, center]
        rows = np.arange(size)[:, None] * size + center
        places = rows.ravel(), np.broadcast_to(rise, rows.shape).ravel()
        return csr_array((values.ravel(), places), (size * size, len(at_ends)))

    def values(self, curve: Curve) -> FloatArray:
        """Values at the knots, shape ``(J, k)``."""
        return self._values(curve)[0][:, self._knots]

    def __call__(self, curve: Curve) -> tuple[FloatArray, FloatArray]:
        """Averages, shape ``(J, m)``, and their derivatives with respect to the log slopes."""
        values, by_ends = self._values(curve)
        slopes = (self._by_ends @ np.concatenate(by_ends, axis=1).T).T
        size = len(self.centers)
        return values @ self._rule.T, slopes.reshape(-1, size, size)

    def _values(self, curve: Curve) -> tuple[FloatArray, tuple[FloatArray, FloatArray]]:
        """Values at all points, and derivatives of rises by the log slopes at both ends."""
        logs = curve.log_slopes @ self._hats.T
        first, change = np.exp(logs[:, :-1]), np.diff(logs, axis=1)
        # Integrals of exp(c t) and of t exp(c t) over the unit interval.
        small = np.abs(change) < 1e-3
        c = np.where(small, 1.0, change)
        whole = np.where(small, 1 + change / 2 + change**2 / 6, np.expm1(c) / c)
        late = np.where(small, 0.5 + change / 3 + change**2 / 8, (np.exp(c) - whole) / c)
        rises = self._widths * first
        values = np.cumsum(rises * whole, axis=1)
        values = np.concatenate([np.zeros_like(values[:, :1]), values], axis=1)
        values = values - (values[:, self._middle] - curve.location)[:, None]
        return values, (rises * (whole - late), rises * late)


def fit_curve(
    model: CurveAverages, averages: FloatArray, noise: FloatArray, reference: FloatArray
) -> Curve:
    """Find the most likely map, from averages ``(J, m)`` whose errors have a known covariance.

    The reference is the prior mean of the log slopes.
    """
    lines, walk = _shapes(model.centers)
    size = averages.shape[1]
    noise = noise + _LOCATION**2
    largest = np.trace(noise, axis1=1, axis2=2)[:, None, None] / size
    whiten = np.linalg.inv(np.linalg.cholesky(noise + 1e-13 * largest * np.eye(size)))
    curve = Curve(reference, np.zeros(len(averages)))
    curve = curve._replace(location=np.median(averages - model(curve)[0], axis=1))
    prior = np.zeros_like(noise)
    for step in range(_STEPS):
        modeled, jacobian = model(curve)
        away = curve.log_slopes - reference
        rest = averages - modeled + (jacobian @ away[..., None])[..., 0]
        white = whiten @ jacobian
        data = (whiten @ rest[..., None])[..., 0]
        if step < _WEIGHED:
            straight, bent = _variances(white, data, lines, walk)
            prior = straight[:, None, None] * (lines @ lines.T) + bent[:, None, None] * walk
        spread = white @ prior @ white.mT + np.eye(size)
        pull = np.linalg.solve(spread, data[..., None])
        move = (prior @ white.mT @ pull)[..., 0] - away
        shift = _LOCATION**2 * np.sum(whiten.mT @ pull, axis=(1, 2))
        longest = np.max(np.abs(move), axis=1)
        share = _LONGEST / np.maximum(longest, _LONGEST)
        curve = Curve(curve.log_slopes + share[:, None] * move, curve.location + share * shift)
        if longest.max() < _SETTLED and step >= _WEIGHED:
            break
    return curve


def _variances(
    white: FloatArray, data: FloatArray, lines: FloatArray, walk: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Mean variances of lines and of bends on the grid, weighted by their evidence, each ``(J,)``.

    In the basis in which the covariance of the bends is diagonal all their variances are cheap, and
    lines add two dimensions to it (the formula of Sherman, Morrison and Woodbury).
    """
    values, vectors = np.linalg.eigh(white @ walk @ white.mT)
    turned = vectors.mT @ np.concatenate([white @ lines, data[..., None]], axis=-1)
    variance = _SIGMAS[:, None] ** 2
    spread = 1 + variance[..., None] * _RATIOS[:, None] * np.maximum(values, 0)[:, None, None]
    # Products of two lines and the data, shape (J, s, r, 3, 3).
    products = np.einsum("jmi,jsrm,jmk->jsrik", turned, 1 / spread, turned)
    inner = products[..., :2, :2] + np.eye(2) / variance[..., None, None]
    along = products[..., :2, 2:]
    explained = (along.mT @ np.linalg.solve(inner, along))[..., 0, 0]
    logs = explained - products[..., 2, 2] - np.sum(np.log(spread), axis=-1)
    logs = 0.5 * (logs - np.linalg.slogdet(inner)[1] - 2 * np.log(variance))
    weights = np.exp(logs - np.max(logs, axis=(1, 2), keepdims=True))
    weights /= np.sum(weights, axis=(1, 2), keepdims=True)
    straight = np.sum(weights * variance, axis=(1, 2))
    return straight, np.sum(weights * variance * _RATIOS, axis=(1, 2))


def _shapes(scores: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Two lines ``(m, 2)``, and the covariance of the bends ``(m, m)``."""
    size = np.abs(scores)
    nearer, farther = np.minimum.outer(size, size), np.maximum.outer(size, size)
    same_side = np.outer(scores, scores) > 0
    walk = np.where(same_side, nearer**2 * (3 * farther - nearer) / 6, 0.0)
    return np.stack([np.ones_like(scores), scores / 2], axis=1), walk
