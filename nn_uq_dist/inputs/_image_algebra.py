r"""What follows from the columns of independent random variables: roots, scales, covariances.

Functions of four arrays: columns :math:`W` of uniform variables, shape ``(..., N_y, n)``, columns
:math:`B` of normal ones, ``(..., N_y, m)``, scales of the noise of the outputs, ``(..., N_y)``, and
its covariances off the diagonal, ``(..., N_y, N_y)``. Any but the last column array may be
``None``, and all are of JAX or all of NumPy. `nn_uq_dist.inputs.LinearImage` says what each one
returns.
"""

import math

from jax import Array

from nn_uq_dist.basics._row_algebra import covariance_root, gram, namespace, norm

UNIFORM_VARIANCE = 1 / 3  # of a uniform random variable on (-1, 1)

type Part = Array | None


def columns(uniform: Part, normal: Part) -> Array:
    """Columns of variables of variance one: the root of the covariance without noise."""
    parts = [] if uniform is None else [uniform * math.sqrt(UNIFORM_VARIANCE)]
    if normal is not None:
        parts.append(normal)
    if len(parts) == 1:
        return parts[0]
    joined: Array = namespace(*parts).concatenate(parts, axis=-1)
    return joined


def root(uniform: Part, normal: Part, noise_scale: Part, noise_coupling: Part) -> Array:
    """``A`` with covariance ``A A^T``."""
    shared = columns(uniform, normal)
    if noise_scale is None:
        return shared
    xp = namespace(shared, noise_scale)
    own = xp.eye(noise_scale.shape[-1], dtype=noise_scale.dtype) * noise_scale[..., None]
    if noise_coupling is not None:
        own = covariance_root(own * noise_scale[..., None] + noise_coupling)
    shared = xp.broadcast_to(shared, (*noise_scale.shape, shared.shape[-1]))
    own = xp.broadcast_to(own, (*noise_scale.shape, own.shape[-1]))
    joined: Array = xp.concatenate([shared, own], axis=-1)
    return joined


def standard_deviation(
    uniform: Part, normal: Part, noise_scale: Part, noise_coupling: Part
) -> Array:
    """Norms of the rows of the root."""
    del noise_coupling
    rows = columns(uniform, normal)
    if noise_scale is not None:
        # A row has one column of its own beside the shared ones: the others are zero.
        xp = namespace(rows, noise_scale)
        rows = xp.broadcast_to(rows, (*noise_scale.shape, rows.shape[-1]))
        rows = xp.concatenate([rows, noise_scale[..., None]], axis=-1)
    return norm(rows)


def variance(uniform: Part, normal: Part, noise_scale: Part, noise_coupling: Part) -> Array:
    """Sums of the squares of the rows of the root."""
    del noise_coupling
    rows = columns(uniform, normal)
    total: Array = namespace(rows).sum(rows**2, axis=-1)
    return total if noise_scale is None else total + noise_scale**2


def covariance(uniform: Part, normal: Part, noise_scale: Part, noise_coupling: Part) -> Array:
    """``A A^T``."""
    shared = gram(columns(uniform, normal))
    if noise_scale is None:
        return shared
    xp = namespace(shared, noise_scale)
    identity = xp.eye(shared.shape[-1], dtype=shared.dtype)
    total: Array = shared + identity * noise_scale[..., None] ** 2
    return total if noise_coupling is None else total + noise_coupling


def correlation(uniform: Part, normal: Part, noise_scale: Part, noise_coupling: Part) -> Array:
    """``A A^T`` with its rows and columns over the standard deviations."""
    shared = columns(uniform, normal)
    xp = namespace(shared)
    scale = standard_deviation(uniform, normal, noise_scale, None)[..., None]
    # Rows are scaled before they are multiplied: a variance may underflow where the correlation is
    # well defined. Independent noise of two outputs counts in their scales alone.
    safe = xp.where(scale > 0, scale, 1)
    product = gram(xp.where(scale > 0, shared, xp.nan) / safe)
    if noise_coupling is not None:
        product = product + noise_coupling / safe / safe.mT
    product = xp.clip(product, -1, 1)
    unit = xp.eye(shared.shape[-2], dtype=bool) & (scale > 0)
    matrix: Array = xp.where(unit, 1, product)
    return matrix


def is_constant(uniform: Part, normal: Part, noise_scale: Part, noise_coupling: Part) -> Array:
    """Whether a row of the root is zero."""
    del noise_coupling
    # Each part by itself: products of the smallest numbers underflow.
    parts = [part for part in (uniform, normal) if part is not None]
    if noise_scale is not None:
        parts.append(noise_scale[..., None])
    constant: Array = (parts[0] == 0).all(axis=-1)
    for part in parts[1:]:
        constant = constant & (part == 0).all(axis=-1)
    return constant
