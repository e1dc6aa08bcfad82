"""Ridge regressions on the same terms, by eigenvectors of their Gram matrix.

One decomposition serves all penalties, and leaving each draw out in turn has a closed form (G. H.
Golub, M. Heath and G. Wahba, Technometrics 21 (1979)).
"""

from typing import Any

from nn_uq_dist.basics.row_algebra import gram, namespace


class Ridge:
    """Fits of responses by terms, both minus their means; of NumPy's arrays or of JAX's.

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
    >>> from nn_uq_dist.paired_samples.ridge import Ridge
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
