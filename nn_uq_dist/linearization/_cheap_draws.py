"""Random inputs with linear outputs, which take no run of the network, for polynomials of them."""

from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax import Array
from numpy.typing import NDArray

from nn_uq_dist.basics._known_values import FloatArray
from nn_uq_dist.basics._nodes import MAXIMUM_DIMENSION, sobol_points
from nn_uq_dist.paired_samples import Surface, fit_surface
from nn_uq_dist.sampling import PairedDraws

if TYPE_CHECKING:  # whose method `corrected` needs this module
    from nn_uq_dist.linearization._linearized_network import Linearization

# Cheap draws of a surface for each draw of the network, and bounds on their number.
_SURFACE_DRAWS = 32
_FEWEST_SURFACE_DRAWS, _MOST_SURFACE_DRAWS = 2**15, 2**17
_BLOCK = 2**13


class CheapDraws:
    """Many random inputs and linear outputs, which take no run of the network.

    Parameters
    ----------
    linearization, pairs
        With known values.
    mean, sd
        Of the linear outputs; the standard deviation is infinite where there is a stand-in.
    columns
        Outputs that are used.
    """

    def __init__(
        self,
        linearization: "Linearization",
        pairs: PairedDraws,
        mean: FloatArray,
        sd: FloatArray,
        columns: NDArray[np.intp],
    ) -> None:
        self._linearization, self._pairs, self._columns = linearization, pairs, columns
        self._mean, self._sd = mean[columns], sd[columns]
        wanted = _SURFACE_DRAWS * pairs.num_samples
        self._count = int(np.clip(wanted, _FEWEST_SURFACE_DRAWS, _MOST_SURFACE_DRAWS))
        law = linearization.input
        self._bounded = law.normal_scale is None
        width = np.asarray(law.half_range if self._bounded else law.standard_deviation, np.float64)
        self._width = np.where(width > 0, width, 1)

    def standardized(self, linear: FloatArray) -> FloatArray:
        """Linear outputs of the columns in units of their standard deviations."""
        return (linear[:, self._columns] - self._mean) / self._sd

    def fit(self, differences: FloatArray) -> Surface | None:
        """Polynomials of the inputs of the pairs that predict differences."""
        if self._linearization.batch_shape:
            return None
        inputs = self._centered(self._pairs.base_inputs)
        linear = np.asarray(self._pairs.linear, np.float64)[:, self._columns]
        importance = _importance(inputs, linear)
        return fit_surface(inputs, differences, importance, is_bounded=self._bounded)

    def _centered(self, inputs: Any) -> FloatArray:
        loc = np.asarray(self._linearization.input.loc, np.float64)
        found: FloatArray = (np.asarray(inputs, np.float64) - loc) / self._width
        return found

    def draws(self) -> tuple[FloatArray, FloatArray]:
        """Inputs as the surfaces take them, and standardized linear outputs."""
        # Not one of the keys of the network's draws, which `fold_in` numbers from 0 to 2**31.
        key = jax.random.fold_in(self._pairs.key, 2**32 - 1)
        dimension = self._linearization.num_coordinates
        blocks = -(-self._count // _BLOCK)
        if dimension <= MAXIMUM_DIMENSION:
            # Evenly, so that the noise of these draws is far below that of the network's.
            points = sobol_points(key, blocks * _BLOCK, 1, dimension)
        else:
            points = np.asarray(jax.random.uniform(key, (blocks * _BLOCK, dimension)))
        points = points.reshape(blocks, _BLOCK, -1).astype(self._linearization.input.dtype)
        parts = [_pairs_at(self._linearization, part) for part in points]
        inputs, linear = (np.concatenate(part)[: self._count] for part in zip(*parts, strict=True))
        return self._centered(inputs), self.standardized(np.asarray(linear, np.float64))


@jax.jit
def _pairs_at(linearization: "Linearization", points: Array) -> tuple[Array, Array]:
    return linearization.pairs_at(points)


def _importance(standard: FloatArray, linear: FloatArray) -> FloatArray:
    """Squared correlations of each input with the linear outputs, summed over the outputs."""
    x, y = standard - standard.mean(axis=0), linear - linear.mean(axis=0)
    x_scale, y_scale = np.linalg.norm(x, axis=0), np.linalg.norm(y, axis=0)
    x, y = x / np.where(x_scale > 0, x_scale, 1), y / np.where(y_scale > 0, y_scale, 1)
    found: FloatArray = np.sum((x.T @ y) ** 2, axis=1)
    return found
