"""Mixtures of Student t laws in standard space: draws, densities, and fits to weighted draws.

Their tails are heavier than those of the posteriors that they stand for, so that weights stay
bounded. Components share what few draws cannot tell: each covariance is drawn to the pooled one.
"""

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.inference._weighted_draws import far_apart, log_sum, systematic

type Array = NDArray[np.float64]

# Lower ones waste draws on the tails in many variables, higher ones reach less far.
_DEGREES_OF_FREEDOM = 8.0
# Of the draws that are not for the fitted components: their copies with larger covariances, which
# keep weights bounded where a fit is too narrow, and the input's own law, which bounds them by the
# inverse of its share.
_WIDE_SHARE, _PRIOR_SHARE, _WIDER = 0.10, 0.03, 3.0
_EM_STEPS = 6
# The pooled covariance weighs as much as this many effective draws for each variable.
_POOLED_DRAWS = 2.0
# A component has at least this share, and this many effective draws.
_LEAST_SHARE, _LEAST_DRAWS = 0.003, 3.0
# Products of two variables that are held at once.
_PRODUCTS = 2**18
# Added to variances in units of the largest: as rounding in the draws.
_JITTER = 1e-12


@dataclasses.dataclass(frozen=True, eq=False)
class StudentMixture:
    """A mixture of t laws, with wider copies of them and the standard normal law.

    Attributes
    ----------
    shares : array, shape (K,)
        Of the components among themselves.
    means : array, shape (K, d)
    roots : array, shape (K, d, d)
        Lower Cholesky factors of the scale matrices.
    """

    shares: Array
    means: Array
    roots: Array

    @classmethod
    def of(cls, shares: Array, means: Array, covariances: Array) -> "StudentMixture":
        """The mixture with these scale matrices."""
        d = means.shape[1]
        largest = np.einsum("kii->ki", covariances).max(axis=1)
        padded = covariances + _JITTER * largest[:, None, None] * np.eye(d)
        return cls(shares / shares.sum(), means, np.linalg.cholesky(padded))

    @classmethod
    def standard(cls, d: int) -> "StudentMixture":
        """One component around zero."""
        return cls.of(np.ones(1), np.zeros((1, d)), np.eye(d)[None])

    def draw(self, rng: np.random.Generator, count: int) -> Array:
        """Draws, shape ``(count, d)``, component by component."""
        d = self.means.shape[1]
        kinds = [1 - _WIDE_SHARE - _PRIOR_SHARE, _WIDE_SHARE]
        shares = np.concatenate([kind * self.shares for kind in kinds] + [[_PRIOR_SHARE]])
        numbers = np.bincount(systematic(shares, count, rng), minlength=shares.size)
        standard = rng.standard_normal((count, d))
        t_scale = np.sqrt(_DEGREES_OF_FREEDOM / rng.chisquare(_DEGREES_OF_FREEDOM, count))
        scale = np.repeat(np.repeat([1.0, math.sqrt(_WIDER)], self.shares.size), numbers[:-1])
        kept = np.cumsum(numbers)[:-1]
        parts = []
        for k, part in enumerate(np.split(standard[: kept[-1]], kept[:-1])):
            rows = slice(kept[k] - len(part), kept[k])
            index = k % self.shares.size
            stretched = part * (t_scale[rows] * scale[rows])[:, None]
            parts.append(self.means[index] + stretched @ self.roots[index].T)
        # The last ones are of the input's own law.
        return np.concatenate([*parts, standard[kept[-1] :]])

    def squares(self, z: Array) -> Array:
        """Squared distances to the means in units of the scale matrices, shape ``(K, n)``.

        As a polynomial in `z`, whose products are formed once for all components: a tenth of the
        time of `K` triangular systems. Rounding is that of squared distances from the origin in
        these units, 1e-6 at a relative noise of 1e-4.
        """
        first, second = np.triu_indices(self.means.shape[1])
        inverse = np.linalg.inv(self.roots)
        precisions = inverse.mT @ inverse
        slopes = np.einsum("kij,kj->ki", precisions, self.means)
        quadratic = precisions[:, first, second] * np.where(first == second, 1.0, 2.0)
        columns = np.ascontiguousarray(z.T)
        found = np.empty((len(slopes), len(z)))
        size = max(1, _PRODUCTS // first.size)
        for start in range(0, len(z), size):
            part = columns[:, start : start + size]
            products = part[first]
            products *= part[second]
            found[:, start : start + size] = quadratic @ products - 2 * slopes @ part
        found += np.einsum("ki,ki->k", slopes, self.means)[:, None]
        return np.maximum(found, 0, out=found)

    def log_components(self, squares: Array) -> Array:
        """Log of share times density of each component, given `squares`, shape ``(K, n)``."""
        return self._log_components(squares, 1.0)

    def _log_components(self, squares: Array, wider: float) -> Array:
        d, nu = self.means.shape[1], _DEGREES_OF_FREEDOM
        half = (nu + d) / 2
        constant = math.lgamma(half) - math.lgamma(nu / 2) - d / 2 * math.log(nu * math.pi * wider)
        with np.errstate(divide="ignore"):
            logs = np.log(self.shares) + constant
        logs = logs - np.log(np.einsum("kii->ki", self.roots)).sum(axis=1)
        return logs[:, None] - half * np.log1p(squares / (nu * wider))

    def log_density(self, z: Array) -> Array:
        """Log density of all that is drawn from, shape ``(n,)``."""
        squares = self.squares(z)
        fitted = log_sum(self._log_components(squares, 1.0))
        wide = log_sum(self._log_components(squares, _WIDER))
        prior = -0.5 * (np.sum(z**2, axis=1) + z.shape[1] * math.log(2 * math.pi))
        shares = 1 - _WIDE_SHARE - _PRIOR_SHARE, _WIDE_SHARE, _PRIOR_SHARE
        logs = np.log(shares)[:, None] + np.stack([fitted, wide, prior])
        return log_sum(logs)


def fit_mixture(z: Array, weights: Array, number: int, rng: np.random.Generator) -> StudentMixture:
    """Fit a mixture of at most `number` components by the EM algorithm for t laws.

    From starts far from each other. The degrees of freedom are fixed (D. Peel and G. J. McLachlan,
    Statistics and Computing 10, 2000).

    Parameters
    ----------
    z
        Draws, shape ``(n, d)``.
    weights
        Their weights, with sum one.
    """
    d = z.shape[1]
    center = weights @ z
    pooled = (z - center).T @ ((z - center) * weights[:, None])
    chosen = far_apart(_whitened(z - center, pooled), weights, number, rng)
    number = len(chosen)
    covariances = np.repeat(pooled[None] * number ** (-2 / d), number, axis=0)
    mixture = StudentMixture.of(np.ones(number), z[chosen], covariances)
    for _ in range(_EM_STEPS):
        mixture = _step(z, weights, mixture)
    return mixture


def _whitened(deviations: Array, covariance: Array) -> Array:
    values, vectors = np.linalg.eigh(covariance)
    return deviations @ (vectors / np.sqrt(np.maximum(values, _JITTER * values[-1] + 1e-300)))


def _step(z: Array, weights: Array, mixture: StudentMixture) -> StudentMixture:
    """One step of the EM algorithm."""
    d = z.shape[1]
    squares = mixture.squares(z)
    logs = mixture.log_components(squares)
    belongs = np.exp(logs - log_sum(logs)) * weights
    shares = belongs.sum(axis=1)
    effective = shares**2 / np.maximum(np.sum(belongs**2, axis=1), 1e-300)
    kept = (shares > _LEAST_SHARE) & (effective > _LEAST_DRAWS)
    if not kept.any():
        return mixture
    belongs, shares, squares, effective = (
        part[kept] for part in (belongs, shares, squares, effective)
    )
    # Draws far out count less, as the t law expects them.
    robust = belongs * (_DEGREES_OF_FREEDOM + d) / (_DEGREES_OF_FREEDOM + squares)
    means = robust @ z / robust.sum(axis=1)[:, None]
    own = np.stack(
        [
            (z - mean).T @ ((z - mean) * row[:, None]) / share
            for mean, row, share in zip(means, robust, shares, strict=True)
        ]
    )
    pooled = np.tensordot(shares / shares.sum(), own, axes=1)
    prior = _POOLED_DRAWS * d
    mixed = (effective[:, None, None] * own + prior * pooled) / (effective + prior)[:, None, None]
    return StudentMixture.of(shares, means, mixed)
