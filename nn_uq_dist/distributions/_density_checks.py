"""Checks that the parameters of a joint law give a density."""

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from nn_uq_dist.basics._checks import require_finite
from nn_uq_dist.basics._known_values import FloatArray


def require_density(
    loc: ArrayLike, weights: ArrayLike, normal_covariance: ArrayLike | None, dtype: jnp.dtype
) -> None:
    """Raise ``ValueError`` unless known parameters of a `LinearizedJoint` give a density.

    They must be finite, the covariance symmetric and positive semidefinite up to the rounding of
    ``dtype``, and no output a function of the others.
    """
    for name, value in (("loc", loc), ("weights", weights)):
        require_finite(name, value)
    columns = np.asarray(weights, np.float64)
    total = columns @ columns.mT / 3.0
    rounding = 4.0 * float(jnp.finfo(dtype).eps) * columns.shape[-2]
    if normal_covariance is not None:
        require_finite("normal_covariance", normal_covariance)
        covariance = np.asarray(normal_covariance, np.float64)
        _require_semidefinite(covariance, 1e2 * rounding)
        total = total + covariance
    # Allows for rounded parameters, and for rounded eigenvalues of exactly dependent outputs.
    _require_independent(total, max(rounding**2, 1e-15 * columns.shape[-2]))


def _require_semidefinite(covariance: FloatArray, tolerance: float) -> None:
    largest = np.abs(covariance).max(axis=(-2, -1), keepdims=True)
    asymmetry = np.abs(covariance - covariance.mT)
    if (asymmetry > 1e-3 * largest).any():
        raise ValueError(
            f"normal_covariance must be symmetric, got entries that differ by "
            f"{asymmetry.max():.3g}; pass 0.5 * (C + C.mT)"
        )
    if _is_positive_definite(covariance, tolerance * largest):
        return
    least = np.linalg.eigvalsh(covariance)[..., :1, None]
    if (least < -tolerance * largest).any():
        raise ValueError(
            f"normal_covariance must be positive semidefinite, got the eigenvalue "
            f"{least.min():.3g}; pass a covariance matrix"
        )


def _require_independent(total: FloatArray, tolerance: float) -> None:
    deviation = np.sqrt(np.diagonal(total, axis1=-2, axis2=-1))
    unit = np.where(deviation > 0, deviation, 1.0)
    scaled = total / unit[..., None] / unit[..., None, :]
    if _is_positive_definite(scaled, np.float64(-2.0 * tolerance)):
        return
    values, vectors = np.linalg.eigh(scaled)
    flat = values[..., 0] <= tolerance
    if flat.any():
        where = tuple(int(i) for i in np.argwhere(flat)[0])
        involved = [str(j) for j in np.flatnonzero(np.abs(vectors[where][:, 0]) > 1e-3)]
        more = f" and {len(involved) - 8} more" if len(involved) > 8 else ""
        raise ValueError(
            f"outputs must not be functions of each other, got outputs "
            f"{', '.join(involved[:8])}{more}, which are linearly dependent: there is no "
            "density; pass normal_covariance (noise_scale in Linearization.joint) or "
            "leave one out with marginalize"
        )


def _is_positive_definite(matrix: FloatArray, added: FloatArray | np.float64) -> bool:
    """Whether all matrices are, with `added` on their diagonals; eigenvalues take far longer."""
    try:
        np.linalg.cholesky(matrix + added * np.eye(matrix.shape[-1]))
    except np.linalg.LinAlgError:
        return False
    return True
