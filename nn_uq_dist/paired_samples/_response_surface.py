"""Polynomials of the inputs that predict the difference of network and linear outputs.

A polynomial is cheap: the distribution of its predictions can be found from any number of draws,
and the network's draws are only needed for what it does not predict (control variates; A. B. Owen,
Monte Carlo Theory, Methods and Examples (2013), chapter 8). It is fitted by ridge regression. Its
predictions are judged by leaving each draw out in turn. The control also uses these predictions,
because a fit is biased at the draws to which it was fitted.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from itertools import combinations_with_replacement
from math import comb
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.basics.row_algebra import gram, namespace
from nn_uq_dist.basics.summary_line import summary_line

_DEGREES = (1, 2, 3, 4, 6, 8, 12, 16)
# Most terms per draw, and most terms in all, which bounds the time for a fit.
_TERMS_PER_DRAW, _MOST_TERMS = 0.6, 600
# Points at which all terms are in memory at once.
_PASS = 2**13
# Penalties, in mean eigenvalues of the Gram matrix.
_PENALTIES = np.geomspace(1e-5, 1e3, 17)
# Stop after this many degrees in a row that do not help: an even function has no third degree.
_PATIENCE = 2
# A surface is used if it leaves at most this share of the variance unexplained.
_WORTHWHILE = 0.8


class Ridge:
    """Ridge regressions on the same terms, both minus their means; of NumPy's arrays or of JAX's.

    One decomposition of their Gram matrix serves all penalties, and leaving each draw out in turn
    has a closed form (G. H. Golub, M. Heath and G. Wahba, Technometrics 21 (1979)).
    Penalties may be arrays ``(r, ..., 1)``: then results have their axis in front.

    Parameters
    ----------
    terms
        Shape ``(..., t, n)``: a row for each term.
    responses
        Shape ``(..., n, J)``.

    Attributes
    ----------
    center, mean
        Means of the terms, ``(..., t)``, and of the responses, ``(..., J)``.
    responses
        Shape ``(..., n, J)``, minus their means.
    eigenvalues
        Those of the Gram matrix of the terms, ``(..., t)``; 0 if negligible.

    Examples
    --------
    >>> import numpy as np
    >>> from nn_uq_dist.paired_samples import Ridge
    >>> fit = Ridge(np.array([[-1.0, 0.0, 1.0]]), np.array([[3.0], [5.0], [7.0]]))
    >>> print(fit.mean, fit.coefficients(1e-9).round(3), fit.coefficients(2.0).round(3))
    [5.] [[2.]] [[1.]]
    """

    def __init__(self, terms: Any, responses: Any) -> None:
        xp = namespace(terms, responses)
        self.center, self.mean = terms.mean(axis=-1), responses.mean(axis=-2)
        self.responses = responses - self.mean[..., None, :]
        rows = terms - self.center[..., None]
        size, eye = rows.shape[-2], xp.eye(rows.shape[-2], dtype=rows.dtype)
        matrix = gram(rows)
        # Eigenvectors have no derivative where eigenvalues are equal, as those of constant terms.
        is_constant = (matrix * eye).sum(axis=-1, keepdims=True) == 0
        values, vectors = xp.linalg.eigh(matrix - is_constant * eye * xp.arange(1, size + 1))
        kept = values > size * xp.finfo(rows.dtype).eps * values[..., -1:]
        self.eigenvalues = xp.where(kept, values, 0)
        root = xp.sqrt(xp.where(kept, values, 1))
        self._vectors = vectors * xp.where(kept, 1 / root, 0)[..., None, :]
        self._orthonormal = self._vectors.mT @ rows
        self._squared = self._orthonormal**2
        self._projected = self._orthonormal @ self.responses

    def coefficients(self, penalty: Any) -> Any:
        """Coefficients of the terms, shape ``(..., t, J)``."""
        return self._vectors @ self._along(penalty)

    def residuals(self, penalty: Any) -> Any:
        """What the fits leave of the responses, shape ``(..., n, J)``."""
        return self.responses - self._orthonormal.mT @ self._along(penalty)

    def errors(self, penalty: Any) -> Any:
        """The same at draws that are left out of the fit in turn."""
        leverage = self._shrunk(penalty)[..., None, :] @ self._squared
        left = 1 - 1 / self.responses.shape[-2] - leverage[..., 0, :]
        return self.residuals(penalty) / left[..., None]

    def _shrunk(self, penalty: Any) -> Any:
        return self.eigenvalues / (self.eigenvalues + penalty)

    def _along(self, penalty: Any) -> Any:
        """The fits along the eigenvectors."""
        return self._shrunk(penalty)[..., None] * self._projected


@dataclasses.dataclass(frozen=True, eq=False)
class Surface:
    """Polynomials that were fitted to differences of paired outputs.

    Attributes
    ----------
    left_out
        Predictions at the draws, each from all other draws, shape ``(n, J)``.
    unexplained
        Share of the variance of the differences that is not explained, 1 without a polynomial,
        ``(J,)``.

    Examples
    --------
    >>> import numpy as np
    >>> from nn_uq_dist.paired_samples import fit_surface
    >>> x = np.random.default_rng(0).uniform(-1, 1, (300, 2))
    >>> surface = fit_surface(x, x[:, :1] ** 2, np.ones(2), is_bounded=True)
    >>> print(surface.predict(np.array([[0.5, 0.0]])).round(2), surface.unexplained < 0.01)
    [[0.25]] [ True]
    """

    left_out: FloatArray
    unexplained: FloatArray
    _fits: dict[int, "_Fit"]

    __repr__ = summary_line

    def predict(self, standard: FloatArray, outputs: Sequence[int] | None = None) -> FloatArray:
        """Values of some outputs at standardized inputs, shape ``(m, N_x)`` to ``(m, J)``."""
        columns = np.arange(self.unexplained.size) if outputs is None else np.asarray(outputs)
        total = np.zeros((len(standard), columns.size))
        fits = {k: self._fits[j] for k, j in enumerate(columns.tolist()) if j in self._fits}
        for basis in {fit.basis for fit in fits.values()}:
            chosen = [k for k, fit in fits.items() if fit.basis is basis]
            coefficients = np.stack([fits[k].coefficients for k in chosen], axis=1)
            constants = [fits[k].constant for k in chosen]
            for start in range(0, len(standard), _PASS):
                part = slice(start, start + _PASS)
                total[part, chosen] = basis.terms(standard[part]).T @ coefficients + constants
        return total


@dataclasses.dataclass(frozen=True, eq=False)
class _Basis:
    """All inputs to first degree, and the most important few to a higher degree."""

    order: NDArray[np.intp]
    num_linear: int
    num_mixed: int
    degree: int
    is_bounded: bool

    def terms(self, standard: FloatArray) -> FloatArray:
        """Shape ``(n, N_x)`` to ``(t, n)``: a row for each term, contiguous in memory."""
        linear = standard.T[self.order[: self.num_linear]]
        if self.degree == 1:
            return linear
        powers = self._powers(linear[: self.num_mixed])
        mixed = np.empty((_num_mixed(self.num_mixed, self.degree), len(standard)))
        row = 0
        for degree in range(2, self.degree + 1):
            for chosen in combinations_with_replacement(range(self.num_mixed), degree):
                first, *others = sorted(set(chosen))
                mixed[row] = powers[chosen.count(first)][first]
                for k in others:
                    mixed[row] *= powers[chosen.count(k)][k]
                row += 1
        return np.concatenate([linear, mixed])

    def _powers(self, x: FloatArray) -> list[FloatArray]:
        """Legendre polynomials of bounded inputs, Hermite polynomials of others, normalized."""
        values = [np.ones_like(x), x]
        for k in range(1, self.degree):
            if self.is_bounded:
                values.append(((2 * k + 1) * x * values[k] - k * values[k - 1]) / (k + 1))
            else:
                values.append((x * values[k] - k**0.5 * values[k - 1]) / (k + 1) ** 0.5)
        if self.is_bounded:
            return [(2 * k + 1) ** 0.5 * value for k, value in enumerate(values)]
        return values


class _Fit(NamedTuple):
    """The best fit of one output: coefficients of the terms of a basis."""

    basis: _Basis
    coefficients: FloatArray
    constant: float


def fit_surface(
    standard: FloatArray, differences: FloatArray, importance: FloatArray, *, is_bounded: bool
) -> Surface | None:
    """Fit the differences of paired outputs, or return ``None`` if that predicts none of them.

    Parameters
    ----------
    standard
        Inputs minus their means, in units of their half-ranges if `is_bounded`, otherwise of their
        standard deviations, shape ``(n, N_x)``.
    differences
        Network outputs minus linear ones, shape ``(n, J)``.
    importance
        Importance of the inputs, shape ``(N_x,)``: the most important ones get higher degrees.
    is_bounded
        Whether the inputs have bounds.

    Examples
    --------
    >>> import numpy as np
    >>> from nn_uq_dist.paired_samples import fit_surface
    >>> rng = np.random.default_rng(0)
    >>> noise = rng.normal(size=(300, 1))  # nothing to predict
    >>> print(fit_surface(rng.uniform(-1, 1, (300, 2)), noise, np.ones(2), is_bounded=True))
    None
    """
    count = len(standard)
    without = differences.var(axis=0) * count * (count / (count - 1)) ** 2
    least = without * _WORTHWHILE
    left_out = np.zeros_like(differences)
    fits: dict[int, _Fit] = {}
    failures = 0
    for basis in _bases(standard, importance, is_bounded=is_bounded):
        ridge = Ridge(basis.terms(standard), differences)
        penalties = _PENALTIES * (ridge.eigenvalues.mean() or 1.0)
        losses = np.stack([np.sum(ridge.errors(each) ** 2, axis=0) for each in penalties])
        chosen = losses.argmin(axis=0)
        better = losses.min(axis=0) < least
        failures = 0 if better.any() or basis.degree == 1 else failures + 1
        if failures == _PATIENCE:
            break
        for k in set(chosen[better].tolist()):
            errors, coefficients = ridge.errors(penalties[k]), ridge.coefficients(penalties[k])
            constants = ridge.mean - ridge.center @ coefficients
            for j in np.flatnonzero(better & (chosen == k)).tolist():
                left_out[:, j] = differences[:, j] - errors[:, j]
                fits[j] = _Fit(basis, coefficients[:, j], float(constants[j]))
        least = np.where(better, losses.min(axis=0), least)
    if not fits:
        return None
    is_used = np.isin(np.arange(without.size), list(fits))
    share = np.where(is_used, least / np.where(without > 0, without, 1), 1)
    return Surface(left_out, share, fits)


def _bases(standard: FloatArray, importance: FloatArray, *, is_bounded: bool) -> Iterator[_Basis]:
    """Bases with as many terms as the number of draws allows, from the first degree on."""
    count, num_inputs = standard.shape
    order = np.argsort(-importance, kind="stable")
    most = int(min(_TERMS_PER_DRAW * count, _MOST_TERMS))
    num_linear = min(num_inputs, most // 2)
    for degree in _DEGREES:
        room = most - num_linear
        fitting = [r for r in range(1, num_linear + 1) if _num_mixed(r, degree) <= room]
        num_mixed = max(fitting, default=0)
        if num_mixed >= min(2, num_inputs):
            yield _Basis(order, num_linear, num_mixed, degree, is_bounded)


def _num_mixed(num_inputs: int, degree: int) -> int:
    """Number of products of degree two and more."""
    return comb(num_inputs + degree, degree) - 1 - num_inputs
