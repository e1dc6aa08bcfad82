"""Mixtures of Student t in standard space: draws, densities, and fits to weighted draws.

Their tails are heavier than those of the posteriors that they stand for, so that weights stay
bounded. Components share what few draws cannot tell: each covariance is drawn to the pooled one.
"""

import dataclasses
import math

import numpy as np

from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.inference._importance_weights import kmeans_plus_plus, log_sum, systematic

# Lower ones waste draws on the tails in many variables, higher ones reach less far.
_DEGREES_OF_FREEDOM = 8.0
# Of the draws that are not for the fitted components: their copies with larger covariances, which
# keep weights bounded where a fit is too narrow, and the input's own distribution, which bounds
# them by the inverse of its share.
_WIDE_SHARE = 0.10
_PRIOR_SHARE = 0.03
_WIDER = 3.0
_EM_STEPS = 6
# The pooled covariance weighs as much as this many effective draws for each variable.
_POOLED_DRAWS = 2.0
# A component has at least this share, and this many effective draws.
_LEAST_SHARE, _LEAST_DRAWS = 0.003, 3.0
# Numbers that are held at once, so few that they stay in the cache of a core, and least points.
_NUMBERS, _LEAST_POINTS = 2**16, 64
# Largest rounding of squared distances from polynomials.
_MOST_ROUNDING = 1e-3
# Added to variances in units of the largest: as rounding in the draws.
_JITTER, _ROUNDING = 1e-12, np.finfo(float).eps


@dataclasses.dataclass(frozen=True, eq=False)
class StudentMixture:
    """A mixture of t distributions, with wider copies of them and the standard normal distribution.

    Attributes
    ----------
    shares : array, shape (K,)
        Of the components among themselves.
    means : array, shape (K, d)
    roots : array, shape (K, d, d)
        Lower Cholesky factors of the scale matrices.
    """

    shares: FloatArray
    means: FloatArray
    roots: FloatArray

    @classmethod
    def of(cls, shares: FloatArray, means: FloatArray, covariances: FloatArray) -> "StudentMixture":
        """The mixture with these scale matrices."""
        d = means.shape[1]
        largest = np.einsum("kii->ki", covariances).max(axis=1)
        padded = covariances + _JITTER * largest[:, None, None] * np.eye(d)
        return cls(shares / shares.sum(), means, np.linalg.cholesky(padded))

    def draw(self, rng: np.random.Generator, count: int) -> FloatArray:
        """Draws, shape ``(count, d)``, component by component."""
        d = self.means.shape[1]
        kinds = [1 - _WIDE_SHARE - _PRIOR_SHARE, _WIDE_SHARE]
        shares = np.concatenate([kind * self.shares for kind in kinds] + [[_PRIOR_SHARE]])
        numbers = np.bincount(systematic(shares, count, rng), minlength=shares.size)
        # The last draws stay as they are: those of the input's own distribution.
        draws = rng.standard_normal((count, d))
        t_scale = np.sqrt(_DEGREES_OF_FREEDOM / rng.chisquare(_DEGREES_OF_FREEDOM, count))
        ends = np.cumsum(numbers).tolist()
        for k, end in enumerate(ends[:-1]):
            rows, (wide, index) = slice(end - numbers[k], end), divmod(k, self.shares.size)
            stretched = draws[rows] * (t_scale[rows] * math.sqrt(_WIDER**wide))[:, None]
            draws[rows] = self.means[index] + stretched @ self.roots[index].T
        return draws

    def log_density(self, z: FloatArray) -> FloatArray:
        """Log density at points ``(n, d)``."""
        d = z.shape[1]
        half = (_DEGREES_OF_FREEDOM + d) / 2
        squared_distances, (heights, log_height) = self.squared_distances(), self.heights()
        logs = np.empty((3, len(z)))
        logs[2] = -0.5 * (np.sum(z**2, axis=1) + d * math.log(2 * math.pi))
        size = max(_LEAST_POINTS, _NUMBERS // max(self.shares.size, (d + 1) * (d + 2) // 2))
        for start in range(0, len(z), size):
            part = slice(start, start + size)
            distances = squared_distances(z[part], monomials(z[part]))
            for row, wider, more in ((0, 1.0, 1.0), (1, _WIDER, _WIDER - 1)):
                # Of wider components times `wider`, which ratios of distances do not show.
                distances += more
                nearest, powers = _powers(distances, half)
                with np.errstate(divide="ignore"):
                    sums = np.log(heights @ powers) - half * np.log(nearest / wider)
                logs[row, part] = sums + (log_height - d / 2 * math.log(wider))
        shares = 1 - _WIDE_SHARE - _PRIOR_SHARE, _WIDE_SHARE, _PRIOR_SHARE
        return log_sum(logs + np.log(shares)[:, None])

    def squared_distances(self) -> "SquaredDistances":
        r"""Those to the means, in units of the scale matrices times :math:`\nu`."""
        inverse = np.linalg.inv(self.roots)
        return SquaredDistances(inverse.mT @ inverse / _DEGREES_OF_FREEDOM, self.means)

    def heights(self) -> tuple[FloatArray, float]:
        """Share times density at the mean of each component, over the largest; log of that."""
        d, nu = self.means.shape[1], _DEGREES_OF_FREEDOM
        with np.errstate(divide="ignore"):
            logs = np.log(self.shares) - np.log(np.einsum("kii->ki", self.roots)).sum(axis=1)
        constant = math.lgamma((nu + d) / 2) - math.lgamma(nu / 2) - d / 2 * math.log(nu * math.pi)
        return np.exp(logs - logs.max()), float(logs.max()) + constant


def monomials(z: FloatArray) -> FloatArray:
    """Products of two variables, variables, and one, of points ``(n, d)``, shape ``(m, n)``."""
    columns = np.ascontiguousarray(z.T)
    d, count = columns.shape
    products = np.empty((d * (d + 1) // 2 + d + 1, count))
    stop = 0
    for i in range(d):
        start, stop = stop, stop + d - i
        np.multiply(columns[i:], columns[i], out=products[start:stop])
    products[stop:-1], products[-1] = columns, 1.0
    return products


class SquaredDistances:
    """Squared distances of points to means, each in the units of its precision.

    They are polynomials in a point, whose monomials are formed once for all means: a tenth of the
    time of `K` triangular systems. Where rounding, which is that of the distance from the origin in
    these units, would be more than a thousandth, they are formed from differences: of narrow
    components, at a relative noise below 3e-7, log densities would be off by whole numbers.

    Parameters
    ----------
    precisions, means
        Shapes ``(K, d, d)`` and ``(K, d)``.
    """

    def __init__(self, precisions: FloatArray, means: FloatArray) -> None:
        first, second = np.triu_indices(means.shape[1])
        slopes = np.einsum("kij,kj->ki", precisions, means)
        quadratic = precisions[:, first, second] * np.where(first == second, 1.0, 2.0)
        constant = np.einsum("ki,ki->k", slopes, means)
        self._coefficients = np.column_stack([quadratic, -2 * slopes, constant])
        sizes = np.einsum("kii->k", precisions) * (1 + np.sum(means**2, axis=1))
        self._narrow = np.flatnonzero(_ROUNDING * sizes > _MOST_ROUNDING)
        values, vectors = np.linalg.eigh(precisions[self._narrow])
        self._roots = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
        self._means = means

    def __call__(self, z: FloatArray, monomials: FloatArray) -> FloatArray:
        """Squared distances of points ``(n, d)`` with these monomials, shape ``(K, n)``."""
        squares = self._coefficients @ monomials
        for k, root in zip(self._narrow, self._roots, strict=True):
            squares[k] = np.sum(((z - self._means[k]) @ root) ** 2, axis=1)
        return np.maximum(squares, 0.0, out=squares)


def _powers(distances: FloatArray, exponent: float) -> tuple[FloatArray, FloatArray]:
    """The least distance of each point, and powers of its ratios to all distances.

    The exponent is a multiple of one half. By products: no logarithm and exponential for each
    component, which would take most of the time.
    """
    nearest = distances.min(axis=0)
    base = nearest / distances
    powers = np.sqrt(base) if exponent % 1 else np.ones_like(base)
    whole = int(exponent)
    while whole:
        if whole % 2:
            powers *= base
        whole //= 2
        if whole:
            base *= base
    return nearest, powers


def fit_student_mixture(
    z: FloatArray, weights: FloatArray, number: int, rng: np.random.Generator
) -> StudentMixture:
    """Fit a mixture of at most `number` components by the EM algorithm for t distributions.

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
    values, vectors = np.linalg.eigh((z - center).T @ ((z - center) * weights[:, None]))
    # Draws may be all the same, but for rounding.
    least = max(_JITTER * values[-1], _ROUNDING**2 * (1 + center @ center))
    scales = np.sqrt(np.maximum(values, least))
    # White draws: moments of components are taken from sums of products, which would lose the
    # digits of draws far from the origin.
    white = (z - center) @ (vectors / scales)
    chosen = kmeans_plus_plus(white, weights, number, rng)
    number = len(chosen)
    covariances = np.repeat(np.eye(d)[None] * number ** (-2 / d), number, axis=0)
    mixture = StudentMixture.of(np.ones(number), white[chosen], covariances)
    products = monomials(white)
    for _ in range(_EM_STEPS):
        mixture = _step(white, products, weights, mixture)
    back = vectors * scales
    roots = back @ mixture.roots
    return StudentMixture.of(mixture.shares, center + mixture.means @ back.T, roots @ roots.mT)


def _step(
    z: FloatArray, products: FloatArray, weights: FloatArray, mixture: StudentMixture
) -> StudentMixture:
    """One step of the EM algorithm, for draws with these monomials."""
    d = mixture.means.shape[1]
    distances = 1 + mixture.squared_distances()(z, products)
    _, belongs = _powers(distances, (_DEGREES_OF_FREEDOM + d) / 2)
    belongs *= mixture.heights()[0][:, None]
    belongs *= weights / np.maximum(belongs.sum(axis=0), 1e-300)
    shares = belongs.sum(axis=1)
    ess = shares**2 / np.maximum(np.einsum("kn,kn->k", belongs, belongs), 1e-300)
    kept = (shares > _LEAST_SHARE) & (ess > _LEAST_DRAWS)
    if not kept.any():
        return mixture
    shares, ess = shares[kept], ess[kept]
    # Draws far out count less, as the t distribution expects them.
    belongs /= distances
    belongs *= 1 + d / _DEGREES_OF_FREEDOM
    moments = belongs[kept] @ products.T
    totals, means = moments[:, -1], moments[:, -1 - d : -1] / moments[:, -1:]
    first, second = np.triu_indices(d)
    centered = moments[:, : first.size] - totals[:, None] * means[:, first] * means[:, second]
    covariances = np.empty((len(means), d, d))
    covariances[:, first, second] = covariances[:, second, first] = centered / shares[:, None]
    rounding = 4 * d * _ROUNDING * (1 + np.sum(means**2, axis=1))
    variances = np.einsum("kii->ki", covariances)
    np.maximum(variances, rounding[:, None], out=variances)
    pooled = np.tensordot(shares / shares.sum(), covariances, axes=1)
    prior, size = _POOLED_DRAWS * d, ess[:, None, None]
    return StudentMixture.of(shares, means, (size * covariances + prior * pooled) / (size + prior))
