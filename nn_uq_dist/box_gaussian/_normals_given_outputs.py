r"""The normal variables behind observed outputs, given the uniform ones.

Outputs minus means are :math:`r = W u + G v + e` with standard normal `v` and noise
:math:`e \sim N(0, N N^T)`. Given `u`, everything follows from what is left, :math:`r - W u`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from nn_uq_dist.basics.row_algebra import binary_unit, matmul, matvec, norm
from nn_uq_dist.box_gaussian._gaussian_part import solve_lower


class NormalsGivenOutputs(NamedTuple):
    r"""Linear regression of the normal variables on the outputs without their uniform part.

    Attributes
    ----------
    gain : Array, shape (..., m, d)
        The mean is ``gain`` times what is left of the outputs.
    root : Array, shape (..., m, m + q + d)
        A matrix with covariance ``root root^T``.
    whitener : Array, shape (..., d, d)
        Maps what is left of the outputs to independent standard normal numbers.
    log_volume : Array, shape (...)
        Minus the logarithm of the determinant of `whitener`.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from nn_uq_dist.box_gaussian import normals_given_outputs
    >>> found = normals_given_outputs(jnp.eye(1), jnp.zeros((1, 0)), jnp.zeros((1, 0)))
    >>> print(found.log_density(jnp.zeros(1)).round(3))  # standard normal
    -0.919
    """

    gain: Array
    root: Array
    whitener: Array
    log_volume: Array

    def log_density(self, rest: Array) -> Array:
        """Log density of what is left of the outputs."""
        white = matvec(self.whitener, rest)
        size = rest.shape[-1] * jnp.log(2 * jnp.pi)
        return -0.5 * (jnp.sum(white * white, axis=-1) + size) - self.log_volume


@jax.jit
def normals_given_outputs(
    columns: Array, noise_root: Array, uniform_columns: Array
) -> NormalsGivenOutputs:
    """Regression of the normal variables on the outputs.

    Parameters
    ----------
    columns : Array, shape (..., d, m)
        ``G``.
    noise_root : Array, shape (..., d, q)
        ``N``; ``q`` may be 0.
    uniform_columns : Array, shape (..., d, n)
        ``W``, or no columns; only their size matters, where the normal part is singular.

    Returns
    -------
    NormalsGivenOutputs

    Notes
    -----
    By an orthogonal factorization of the columns side by side: the covariance of the outputs, which
    squares the ratio of signal to noise, is never formed. With ``[G N] = R^T [Q_1 Q_2]^T`` the gain
    is ``Q_1 R^-T`` and the covariance ``I - Q_1 Q_1^T``. In the space that the outputs see this is
    ``P Q_2^T Q_2 P^T`` with the polar factor ``P`` of ``Q_1`` (from the cosine-sine decomposition;
    G. H. Golub and C. F. Van Loan, Matrix Computations, section 2.5.4), without a difference.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from nn_uq_dist.box_gaussian import normals_given_outputs
    >>> distribution = normals_given_outputs(jnp.eye(1), 0.1 * jnp.eye(1), jnp.zeros((1, 0)))
    >>> print(
    ...     f"{distribution.gain[0, 0]:.4f} {(distribution.root @ distribution.root.T)[0, 0]:.4f}"
    ... )  # 1/1.01, .01/1.01
    0.9901 0.0099
    """
    count, size = columns.shape[-1], columns.shape[-2]
    unit = binary_unit(norm(jnp.concatenate([columns, noise_root, uniform_columns], axis=-1)))
    rows = jnp.concatenate([columns, noise_root], axis=-1) / unit[..., None]
    if not rows.shape[-1]:  # neither normal variables nor noise
        rows = jnp.zeros_like(unit)[..., None]
    identity = jnp.eye(size, dtype=rows.dtype)
    # Where the normal part alone does not determine the outputs, noise far below any measurable
    # size takes the place of the uniforms, as in `normal_factor`.
    eps = float(jnp.finfo(rows.dtype).eps)
    stacked = jnp.concatenate([rows, jnp.zeros_like(rows[..., :1]) * identity], axis=-1)
    pivots = jnp.abs(jnp.diagonal(jnp.linalg.qr(stacked.mT, mode="r"), axis1=-2, axis2=-1))
    regular = jnp.all(pivots > 10.0 * eps**0.5 * norm(rows), axis=-1)[..., None, None]
    nudge = jnp.where(regular, 0.0, eps**0.3125) * identity
    factor, upper = jnp.linalg.qr(jnp.concatenate([rows, nudge], axis=-1).mT)
    ours, others = factor[..., :count, :], factor[..., count:, :]
    left, _, right = jnp.linalg.svd(ours, full_matrices=False)
    rest = jnp.eye(count, dtype=rows.dtype) - matmul(left, left.mT)
    root = jnp.concatenate([rest, matmul(matmul(left, right), others.mT)], axis=-1)
    whitener = solve_lower(upper.mT, identity) / unit[..., None, :]
    diagonal = jnp.abs(jnp.diagonal(upper, axis1=-2, axis2=-1))
    return NormalsGivenOutputs(
        matmul(ours, whitener), root, whitener, jnp.sum(jnp.log(diagonal) + jnp.log(unit), axis=-1)
    )
