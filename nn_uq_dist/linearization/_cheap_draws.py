"""Random inputs with linear outputs, which take no run of the network, for polynomials of them."""

from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax import Array

from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.basics.nodes import MAXIMUM_DIMENSION, sobol_points
from nn_uq_dist.paired_samples import Surface, fit_surface
from nn_uq_dist.sampling import PairedDraws

if TYPE_CHECKING:  # whose method `corrected` needs this module
    from nn_uq_dist.linearization._linearized_network import Linearization

# Cheap draws for each draw of the network, and bounds on their number.
_DRAWS_PER_PAIR = 32
_FEWEST_DRAWS, _MOST_DRAWS = 2**15, 2**17
# Equal parts, between which the noise of averages is estimated.
PARTS = 4
_BLOCK = 2**13


def surface_of_pairs(
    pairs: PairedDraws, linear: FloatArray, differences: FloatArray
) -> Surface | None:
    """Polynomials of the inputs that predict differences; None for a batch, or if none do.

    Parameters
    ----------
    pairs
        With known values.
    linear
        Linear outputs, shape ``(n, J)``.
    differences
        What is to be predicted.
    """
    if pairs.linearization.batch_shape:
        return None
    inputs = _standardized(pairs.linearization.input, pairs.base_inputs)
    is_bounded = pairs.linearization.input.normal_scale is None
    return fit_surface(inputs, differences, _importance(inputs, linear), is_bounded=is_bounded)


def cheap_draws(pairs: PairedDraws) -> tuple[FloatArray, FloatArray]:
    """Inputs as the surfaces take them, ``(m, N_x)``, and linear outputs, ``(m, N_y)``.

    In `PARTS` parts of a Sobol sequence, each of which is even by itself: as independent sequences
    they would be less even together, and the corrected distribution up to a tenth farther off.
    """
    linearization, distribution = pairs.linearization, pairs.linearization.input
    wanted = np.clip(_DRAWS_PER_PAIR * pairs.num_samples, _FEWEST_DRAWS, _MOST_DRAWS)
    blocks = PARTS * int(np.ceil(wanted / (PARTS * _BLOCK)))
    # Not one of the keys of the network's draws, which `fold_in` numbers from 0 to 2**31.
    key = jax.random.fold_in(pairs.key, 2**32 - 1)
    dimension = linearization.num_coordinates
    if dimension <= MAXIMUM_DIMENSION:
        # Evenly, so that the noise of these draws is far below that of the network's.
        points = sobol_points(key, blocks * _BLOCK, 1, dimension)
    else:
        points = np.asarray(jax.random.uniform(key, (blocks * _BLOCK, dimension)))
    points = points.reshape(blocks, _BLOCK, -1).astype(distribution.dtype)
    parts = [_pairs_at(linearization, part) for part in points]
    inputs, linear = (np.concatenate(part) for part in zip(*parts, strict=True))
    return _standardized(distribution, inputs), np.asarray(linear, np.float64)


@jax.jit
def _pairs_at(linearization: "Linearization", points: Array) -> tuple[Array, Array]:
    return linearization.pairs_at(points)


def _standardized(distribution: Any, inputs: Any) -> FloatArray:
    """Inputs minus their means, in units of their half-ranges or standard deviations."""
    width = (
        distribution.half_width
        if distribution.normal_scale is None
        else distribution.standard_deviation
    )
    width, loc, values = (
        np.asarray(part, np.float64) for part in (width, distribution.mean, inputs)
    )
    found: FloatArray = (values - loc) / np.where(width > 0, width, 1)
    return found


def _importance(standard: FloatArray, linear: FloatArray) -> FloatArray:
    """Squared correlations of each input with the linear outputs, summed over the outputs."""
    x, y = standard - standard.mean(axis=0), linear - linear.mean(axis=0)
    x_scale, y_scale = np.linalg.norm(x, axis=0), np.linalg.norm(y, axis=0)
    x, y = x / np.where(x_scale > 0, x_scale, 1), y / np.where(y_scale > 0, y_scale, 1)
    found: FloatArray = np.sum((x.T @ y) ** 2, axis=1)
    return found
