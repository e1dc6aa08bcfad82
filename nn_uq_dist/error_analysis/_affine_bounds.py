r"""Affine bounds of a leaky-ReLU network on boxes of the standard variables of its input.

A distribution of the input is :math:`\mu + A U + B N`. The network is taken as a function of the
variables :math:`v = (U, N)`, of which normal ones have a range of `NORMAL_RANGE` standard
deviations. Arrays have a leading axis of boxes.
"""

from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.basics.concrete import FloatArray, in_float64
from nn_uq_dist.error_analysis._distribution_bounds import EPS
from nn_uq_dist.error_analysis._leaky_relu_network import LeakyReLUNetwork, as_float64
from nn_uq_dist.inputs import Input

# Beyond it a normal variable is with a probability of 2.3e-19.
NORMAL_RANGE = 9.0
# More than products that underflow may lose.
TINY = 1e-300

# What is bounded, ``rows @ phi(h_n) + const + direct @ v``, shapes ``(P, R, N)``, ``(P, R)``, and
# what broadcasts to ``(P, R, V)``. Rounding errors of the constants are subtracted already.
type Start = tuple[FloatArray, FloatArray, FloatArray | float]


class StandardNetwork(NamedTuple):
    """Outputs as functions of the standard variables.

    Attributes
    ----------
    weights, biases
        Of the hidden layers; the first ones lead from the standard variables.
    output, direct, constant
        Outputs are ``output @ phi(h_L) + direct @ v + constant``, shapes ``(O, N)``, ``(O, V)`` and
        ``(O,)``.
    alpha
        The negative slope.
    sizes
        Largest sizes of all terms in the pre-activations of the first layer, for their rounding.
    direct_size
        The same for what bypasses the layers.
    is_uniform
        Which of the variables are uniform.
    """

    weights: list[FloatArray]
    biases: list[FloatArray]
    output: FloatArray
    direct: FloatArray
    constant: FloatArray
    alpha: float
    sizes: FloatArray
    direct_size: FloatArray
    is_uniform: NDArray[np.bool_]

    @classmethod
    def of_distribution(
        cls, network: LeakyReLUNetwork, distribution: Input, outputs: slice
    ) -> Self:
        """Some outputs of one network, for a distribution without batch axes."""
        exact, f = as_float64(network), in_float64(distribution)
        loc, identity = np.asarray(f.mean), np.eye(f.num_inputs)
        uniform, normal = (identity[:, :0] if k is None else k for k in f.columns(identity))
        columns = np.concatenate([uniform, normal], axis=-1)
        moving = np.any(columns != 0, axis=0)
        is_uniform = (np.arange(columns.shape[1]) < uniform.shape[1])[moving]
        columns = columns[:, moving]
        largest = np.abs(loc) + np.abs(columns) @ np.where(is_uniform, 1.0, NORMAL_RANGE)
        skip = float(network.skip_connection) * np.eye(network.num_outputs, len(loc))[outputs]
        bias = np.zeros(network.num_outputs) if exact.output_bias is None else exact.output_bias
        first, *others = exact.hidden_weights
        # The sums over the inputs have more terms than those over the variables.
        terms = (1 + len(loc) / 32) * (np.abs(first) @ largest + np.abs(exact.biases[0]))
        return cls(
            [first @ columns, *others],
            [first @ loc + exact.biases[0], *exact.biases[1:]],
            exact.output_matrix[outputs],
            skip @ columns,
            bias[outputs] + skip @ loc,
            float(exact.negative_slope),
            terms,
            np.abs(bias[outputs]) + skip @ largest,
            is_uniform,
        )

    def ends(self, size: FloatArray) -> Start:
        """The outputs and their negatives.

        Parameters
        ----------
        size
            Largest sizes of the pre-activations of the last layer, shape ``(P, N)``: rounding
            errors are subtracted from the constants.
        """
        rows = np.concatenate([self.output, -self.output])
        const = np.concatenate([self.constant, -self.constant])
        terms = np.tile(self.direct_size + np.abs(self.constant), 2) + size @ np.abs(rows).T
        const = const - 2 * (rows.shape[-1] + len(self.weights) + 32) * EPS * terms
        direct = np.concatenate([self.direct, -self.direct])
        return np.broadcast_to(rows, (len(size), *rows.shape)), const, direct


class Boxes(NamedTuple):
    """Boxes of the standard variables, shapes ``(P, V)``; normal ones have their whole range."""

    center: FloatArray
    radius: FloatArray

    @classmethod
    def whole(cls, network: StandardNetwork) -> Self:
        """All values of the variables."""
        radius = np.where(network.is_uniform, 1.0, NORMAL_RANGE)[None]
        return cls(np.zeros_like(radius), radius)

    def take(self, rows: slice | NDArray[np.intp] | NDArray[np.bool_]) -> Self:
        """Some of the boxes."""
        return type(self)(self.center[rows], self.radius[rows])


class Lines(NamedTuple):
    r"""Lines that enclose the activations of a layer: ``lower h <= phi(h) <= upper h + intercept``.

    All have shape ``(P, N)``. `largest` is the largest size of h; `rounding` is what passing the
    layer may cost in rounding errors, for an activation of weight one.
    """

    lower: FloatArray
    upper: FloatArray
    intercept: FloatArray
    largest: FloatArray
    rounding: FloatArray


class AffineForms(NamedTuple):
    """Affine functions ``rows @ v + const``, shapes ``(P, R, V)`` and ``(P, R)``."""

    rows: FloatArray
    const: FloatArray

    def take(self, index: Any) -> Self:
        """Some of the functions, by an index of their first axes."""
        return type(self)(self.rows[index], self.const[index])

    def middle(self, boxes: Boxes) -> FloatArray:
        """Values at the centers of boxes, shape ``(P, R)``."""
        return self.const + (self.rows @ boxes.center[..., None])[..., 0]

    def smallest(self, boxes: Boxes) -> FloatArray:
        """Smallest values on boxes, shape ``(P, R)``."""
        return self.middle(boxes) - (np.abs(self.rows) @ boxes.radius[..., None])[..., 0]


def lines_of(
    network: StandardNetwork, before: list[Lines], ranges: FloatArray, middle: FloatArray
) -> Lines:
    """Lines for the activations of the next layer.

    Parameters
    ----------
    network, before
        The network, and the lines of the layers before.
    ranges
        Least values of the pre-activations and of their negatives, shape ``(P, 2 N)``.
    middle
        Values at the centers of the boxes, shape ``(P, N)``. The lower line is the tangent there,
        where the two lines are then nearest to each other.
    """
    low, negative = np.split(ranges, 2, axis=-1)
    high, alpha = -negative, network.alpha
    active, inactive = low >= 0, high <= 0
    bends = ~(active | inactive)
    chord = (high - alpha * low) / np.where(bends, high - low, 1.0)
    chord = np.where(active, 1.0, np.where(inactive, alpha, np.minimum(chord, 1.0)))
    intercept = np.where(bends, np.maximum((1 - chord) * high, (alpha - chord) * low), 0.0)
    tangent = np.where(active | (bends & (middle >= 0)), 1.0, alpha)
    largest = np.maximum(np.abs(low), np.abs(high))
    return Lines(tangent, chord, intercept, largest, rounding_of(network, before, largest))


def rounding_of(network: StandardNetwork, before: list[Lines], largest: FloatArray) -> FloatArray:
    """What the rounding of the next layer and of its lines may move a bound by, per neuron.

    Twice the first order, which leaves as much room for products of errors.

    Parameters
    ----------
    network, before
        The network, and the lines of the layers before.
    largest
        Largest sizes of its pre-activations, or zero if there are no lines yet.
    """
    weights, bias = network.weights[len(before)], network.biases[len(before)]
    terms = network.sizes
    if before:
        terms = before[-1].largest @ np.abs(weights).T + np.abs(bias)
    count = sum(weights.shape) + 32 + 2 * len(network.weights)
    return 2 * count * EPS * (terms + largest) + TINY


def lower_forms(
    network: StandardNetwork, start: Start, lines: list[Lines], boxes: Boxes
) -> tuple[AffineForms, list[FloatArray]]:
    r"""Affine lower bounds on boxes, and the influence of each neuron, a list over the layers.

    The influence is the mean size of its coefficients in the bounds, shape ``(P, N)``.

    Each activation is replaced by the lower of its lines where its coefficient is positive and by
    the upper one where it is negative, from the last layer back to the first (H. Zhang et al.,
    Efficient neural network robustness certification, 2018).
    """
    influence: list[FloatArray] = []
    rows, const, direct = start
    for layer in reversed(range(len(lines))):
        line = lines[layer]
        size = np.abs(rows)
        influence.append(size.mean(axis=1))
        paid = np.minimum(rows, 0) @ line.intercept[..., None] - size @ line.rounding[..., None]
        rows = np.where(rows > 0, rows * line.lower[:, None], rows * line.upper[:, None])
        lost = TINY * (1 + line.largest.sum(axis=-1, keepdims=True))
        const = const + paid[..., 0] - lost + rows @ network.biases[layer]
        rows = rows @ network.weights[layer]
    rows = rows + direct
    largest = np.abs(rows) @ (np.abs(boxes.center) + boxes.radius)[..., None]
    const = const - 2 * (rows.shape[-1] + 16) * EPS * (largest[..., 0] + np.abs(const)) - TINY
    return AffineForms(rows, const), influence[::-1]


def centers(network: StandardNetwork, boxes: Boxes) -> list[FloatArray]:
    """Pre-activations at the centers of boxes, shapes ``(P, N)``."""
    hidden, signal = [], boxes.center
    for weights, bias in zip(network.weights, network.biases, strict=True):
        hidden.append(signal @ weights.T + bias)
        signal = np.where(hidden[-1] >= 0, hidden[-1], network.alpha * hidden[-1])
    return hidden


def tangents(network: StandardNetwork, boxes: Boxes) -> tuple[AffineForms, list[FloatArray]]:
    """`lower_forms` of the tangents at the centers: right to rounding, which is subtracted."""
    lines: list[Lines] = []
    rows = np.eye(boxes.center.shape[1])[None]
    for weights, middle in zip(network.weights, centers(network, boxes), strict=True):
        rows = weights @ rows
        slope = np.where(middle >= 0, 1.0, network.alpha)
        largest = np.abs(middle) + (np.abs(rows) @ boxes.radius[..., None])[..., 0]
        rounding = rounding_of(network, lines, largest)
        lines.append(Lines(slope, slope, np.zeros_like(slope), largest, rounding))
        rows = slope[..., None] * rows
    return lower_forms(network, network.ends(lines[-1].largest), lines, boxes)
