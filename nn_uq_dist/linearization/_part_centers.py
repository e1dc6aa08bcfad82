"""Parts of the standard variables of an input: centers, widths and probabilities.

A uniform variable on (-1, 1) is exactly the sum of a variable on ``M`` equidistant points and a
uniform variable on (-1/M, 1/M). A normal variable is nearly such a sum (`normal_parts`), and
exactly the sum of a normal center and a narrower normal variable.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import ndtri

from nn_uq_dist.linearization._normal_parts import normal_parts


class Parts(NamedTuple):
    """Parts in standard variables: uniform ones on (-1, 1) first, then normal ones.

    Attributes
    ----------
    centers : Array, shape (M, K)
    scales : Array, shape (M, K)
        Width of the part in each variable, in units of the width of the whole.
    probabilities : Array, shape (M,)
    """

    centers: Array
    scales: Array
    probabilities: Array


def grid_parts(splits: tuple[int, ...], num_uniform: int, dtype: jnp.dtype) -> Parts:
    """All combinations of the parts of each variable."""
    axes = [_parts_of(count, k < num_uniform) for k, count in enumerate(splits)]
    places = np.indices(splits).reshape(len(splits), -1)
    centers, probabilities, scales = (
        np.stack([axis[i][place] for axis, place in zip(axes, places, strict=True)], axis=-1)
        for i in range(3)
    )
    product = np.prod(probabilities, axis=-1)
    return Parts(*(jnp.asarray(part, dtype) for part in (centers, scales, product)))


def _parts_of(count: int, is_uniform: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if not is_uniform:
        return normal_parts(count)
    centers = (2 * np.arange(count) + 1 - count) / count
    return centers, np.full(count, 1 / count), np.full(count, 1 / count)


def sampled_parts(
    splits: tuple[int, ...], num_uniform: int, num_parts: int, key: Array, dtype: jnp.dtype
) -> Parts:
    """Some of the combinations, equally probable: a Sobol sequence with a random shift.

    Centers of normal variables are drawn from a normal law; their parts have equal widths.
    """
    cut = [k for k, count in enumerate(splits) if count > 1]
    shifted = _sobol(num_parts, len(cut)).astype(dtype) + jax.random.uniform(
        key, (len(cut),), dtype
    )
    points = shifted % 1
    centers = jnp.zeros((num_parts, len(splits)), dtype)
    scales = np.ones(len(splits))
    tiny = float(jnp.finfo(dtype).eps)
    for column, k in enumerate(cut):
        count = splits[k]
        if k < num_uniform:
            place = jnp.clip(jnp.floor(points[:, column] * count), 0, count - 1)
            center, scales[k] = (2 * place + 1 - count) / count, 1 / count
        else:
            scales[k] = math.sqrt(normal_parts(count).mean_square)
            spread = math.sqrt(1 - scales[k] ** 2)
            center = spread * ndtri(jnp.clip(points[:, column], tiny, 1 - tiny))
        centers = centers.at[:, k].set(center)
    wide = jnp.broadcast_to(jnp.asarray(scales, dtype), centers.shape)
    return Parts(centers, wide, jnp.full(num_parts, 1 / num_parts, dtype))


def _sobol(count: int, dimension: int) -> np.ndarray:
    from scipy.stats import qmc

    if dimension == 0:
        return np.zeros((count, 0))
    sequence = qmc.Sobol(dimension, scramble=False)
    return sequence.random_base2(max(count - 1, 0).bit_length())[:count]
