"""An affine model of the effect of a perturbation within a network, with enclosed remainders."""

from typing import NamedTuple, Self

import numpy as np

from nn_uq_dist.basics._float64 import FloatArray
from nn_uq_dist.error_analysis._float64_network import apply


class AffineModel(NamedTuple):
    r"""The enclosure :math:`\{M z + G r : |z| \le b,\ r_- \le r \le r_+\}` of a changed signal.

    It starts as `z` itself and is propagated through the layers; each activation adds a remainder
    per neuron. Keeping matrices, instead of an interval per neuron, lets contributions cancel, as
    they do in the network.

    Attributes
    ----------
    linear
        :math:`M`, shape ``(..., N, N_x)``.
    generators
        :math:`G`, shape ``(..., N, R)``, a column per neuron of the layers so far.
    low, high
        :math:`r_- \le r_+`, shapes ``(..., R)``.
    """

    linear: FloatArray
    generators: FloatArray
    low: FloatArray
    high: FloatArray

    @classmethod
    def of_input(cls, num_inputs: int) -> Self:
        """The perturbation itself."""
        none = np.zeros(0)
        return cls(np.eye(num_inputs), np.zeros((num_inputs, 0)), none, none)

    def through_weights(self, weights: FloatArray) -> Self:
        """Apply a linear map."""
        return self._replace(linear=weights @ self.linear, generators=weights @ self.generators)

    def through_activation(self, slope: FloatArray, low: FloatArray, high: FloatArray) -> Self:
        """Apply ``slope * (.) + r`` with ``low <= r <= high``, a new remainder per neuron."""
        old = slope[..., None] * self.generators
        size = old.shape[-2]
        identity = np.broadcast_to(np.eye(size), (*old.shape[:-1], size))
        return type(self)(
            slope[..., None] * self.linear,
            np.concatenate([old, identity], axis=-1),
            joined(self.low, low),
            joined(self.high, high),
        )

    def reach(self, half_width: FloatArray) -> tuple[FloatArray, FloatArray]:
        """How far the entries reach below and above zero, shapes ``(..., N)``."""
        straight = apply(np.abs(self.linear), half_width)
        positive = np.maximum(self.generators, 0)
        negative = np.minimum(self.generators, 0)
        up = straight + apply(positive, self.high) + apply(negative, self.low)
        down = straight - apply(positive, self.low) - apply(negative, self.high)
        return down, up


def joined(first: FloatArray, second: FloatArray) -> FloatArray:
    """Concatenate along the last axis and broadcast the others."""
    batch = np.broadcast_shapes(first.shape[:-1], second.shape[:-1])
    parts = [np.broadcast_to(part, (*batch, part.shape[-1])) for part in (first, second)]
    return np.concatenate(parts, axis=-1)
