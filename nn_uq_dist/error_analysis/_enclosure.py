"""Ranges of pre-activations on a box: which can flip, and how far beyond zero they reach."""

from functools import reduce
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.basics._known_values import FloatArray
from nn_uq_dist.error_analysis._float64_network import (
    Float64Network,
    apply,
    norm,
    pre_activations,
    slopes_at,
    spectral_norm,
)
from nn_uq_dist.inputs._terms import joined

# Twice the unit roundoff.
EPS = float(np.finfo(np.float64).eps)


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
            joined([self.low, low]),
            joined([self.high, high]),
        )

    def reach(self, half_width: FloatArray) -> tuple[FloatArray, FloatArray]:
        """How far the entries reach below and above zero, shapes ``(..., N)``."""
        straight = apply(np.abs(self.linear), half_width)
        positive = np.maximum(self.generators, 0)
        negative = np.minimum(self.generators, 0)
        up = straight + apply(positive, self.high) + apply(negative, self.low)
        down = straight - apply(positive, self.low) - apply(negative, self.high)
        return down, up


class Enclosure(NamedTuple):
    """Lists over the layers, entries of shape ``(..., N_n)``, and models of the last layer.

    Attributes
    ----------
    slopes
        Slopes of the activations at the center.
    can_flip
        Whether the pre-activation may have a different sign somewhere in the box.
    largest_residual
        Upper bounds on the entries of `Delta phi_n`, which are non-negative; zero without a flip.
    lipschitz
        ``n = 0, ..., L``, shapes ``(...)``: a Lipschitz constant on the box, in the Euclidean norm,
        of the map from the input to the output of layer n; 1 for n = 0.
    tangents, chords
        The change that the perturbation causes in the output of layer L, with activations modeled
        by tangents and by chords.
    rounding
        Rounding errors that belong to the generators of both models, shape ``(..., R)``.
    """

    slopes: list[FloatArray]
    can_flip: list[NDArray[np.bool_]]
    largest_residual: list[FloatArray]
    lipschitz: list[FloatArray]
    tangents: AffineModel
    chords: AffineModel
    rounding: FloatArray


def enclose(network: Float64Network, mu: FloatArray, half_width: FloatArray) -> Enclosure:
    r"""Enclose the pre-activations on the box ``|z| <= half_width`` around `mu`.

    Three ranges of the change :math:`\delta_n` that `z` causes in a pre-activation are intersected:

    - tangents: :math:`\phi(h + \delta) - \phi(h) = \phi'(h)\,\delta + \Delta\phi` with
      :math:`0 \le \Delta\phi \le u`, propagated by an `AffineModel`. While nothing can flip,
      :math:`u = 0` and the range is attained at a corner of the box;
    - chords: over a range :math:`[l, r]` around zero, :math:`\phi(y) = s y + [0, (1 - s) r]` with
      :math:`s = (r - \alpha l)/(r - l)`, by convexity: remainders are smaller if many neurons flip;
    - :math:`|\delta_{nj}| \le \|W_{nj}\| \Lambda_{n-1} \|b\|` with the Lipschitz constant
      :math:`\Lambda` of the layers before, in which the slopes of neurons that cannot flip are
      known.

    How far the range reaches beyond zero, times :math:`1 - \alpha`, is :math:`u_n`.

    Notes
    -----
    Rounding: evaluating layer n perturbs a pre-activation by at most
    :math:`r_n = c\,\epsilon\,(|W_n| s_{n-1} + |b_n| + \ldots)`, with :math:`s` the largest signals
    on the box and c the number of operations. To first order it reaches later layers through the
    generators G of the models, so that :math:`r_n + |G| r` is added to the range. :math:`\epsilon`
    is twice the unit roundoff, which leaves the same room again for products of errors; if they
    exceed that room, the margin also exceeds the pre-activations and nothing is certified.
    """
    hidden = pre_activations(network, mu)
    slopes = slopes_at(network, hidden)
    alpha = network.alpha
    radius = norm(half_width)
    tangents = chords = AffineModel.of_input(mu.shape[-1])
    rounding = np.zeros(0)
    largest_signal = np.abs(mu) + half_width
    moves = half_width != 0
    lipschitz = [np.ones(radius.shape)]
    flips, residuals = [], []
    for weights, bias, h, slope in zip(
        network.hidden_weights, network.biases, hidden, slopes, strict=True
    ):
        tangents, chords = tangents.through_weights(weights), chords.through_weights(weights)
        ball = norm(weights) * (lipschitz[-1] * radius)[..., None]
        ranges = ((ball, ball), tangents.reach(half_width), chords.reach(half_width))
        down, up = (reduce(np.minimum, ends) for ends in zip(*ranges, strict=True))
        magnitudes = np.abs(weights)
        columns = tangents.linear.shape[-1] + tangents.generators.shape[-1]
        terms = apply(magnitudes, largest_signal) + np.abs(bias) + np.maximum(down, up)
        own_rounding = (weights.shape[-1] + columns + 8) * EPS * terms
        carried = np.abs(tangents.generators) + np.abs(chords.generators)
        margin = own_rounding + apply(carried, rounding)
        down, up = down + margin, up + margin
        # A neuron that no input reaches cannot flip, even with a pre-activation of zero.
        moves = apply(magnitudes, moves.astype(float)) != 0
        beyond = np.where(h >= 0, down, up) - np.abs(h)
        can_flip = moves & ~(beyond < 0)
        flips.append(can_flip)
        residuals.append(np.where(can_flip, (1 - alpha) * beyond, 0.0))

        steepest = np.where(can_flip, 1.0, slope)
        lipschitz.append(lipschitz[-1] * spectral_norm(steepest[..., None] * weights))
        moves = moves & (steepest != 0)
        largest_signal = np.abs(h) + np.maximum(down, up)
        rounding = joined([rounding, own_rounding])
        nothing = np.zeros_like(residuals[-1])
        tangents = tangents.through_activation(slope, nothing, residuals[-1])
        chord, low, high = _chord(h, h - down, h + up, alpha)
        chords = chords.through_activation(
            np.where(can_flip, chord, slope),
            np.where(can_flip, low, 0.0),
            np.where(can_flip, high, 0.0),
        )
    return Enclosure(slopes, flips, residuals, lipschitz, tangents, chords, rounding)


def _chord(
    h: FloatArray, left: FloatArray, right: FloatArray, alpha: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    r"""Slope s and limits of :math:`\phi(y) - \phi(h) - s (y - h)` for y from `left` to `right`.

    Meant for ``left <= 0 <= right``; a range of width 0 gets slope 1.
    """
    width = right - left
    is_point = width == 0
    slope = np.where(is_point, 1.0, (right - alpha * left) / np.where(is_point, 1.0, width))
    low = slope * h - np.where(h >= 0, h, alpha * h)
    return slope, low, low + (1 - slope) * right
