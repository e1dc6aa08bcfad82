r"""Affine bounds of a leaky-ReLU network on boxes of the standard variables of its input.

A law of the input is :math:`\mu + A U + B N`. The network is taken as a function of the variables
:math:`v = (U, N)`, of which normal ones have a range of `NORMAL_RANGE` standard deviations. Arrays
have a leading axis of boxes.
"""

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.basics._known_values import FloatArray, in_float64
from nn_uq_dist.error_analysis._float64_network import as_float64
from nn_uq_dist.error_analysis._law_bounds import EPS
from nn_uq_dist.error_analysis._leaky_relu_network import LeakyReLUNetwork
from nn_uq_dist.inputs import AbstractInputLaw

# Beyond it a normal variable is with a probability of 2.3e-19.
NORMAL_RANGE = 9.0


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
    def of_law(cls, network: LeakyReLUNetwork, law: AbstractInputLaw, outputs: slice) -> Self:
        """Some outputs of one network, for a law without batch axes."""
        exact, given = as_float64(network), in_float64(law)
        loc, identity = np.asarray(given.loc), np.eye(given.num_inputs)
        uniform, normal = (
            identity[:, :0] if part is None else np.asarray(part)
            for part in given.columns(identity)  # type: ignore[arg-type]
        )
        columns = np.concatenate([uniform, normal], axis=-1)
        moving = np.any(columns != 0, axis=0)
        is_uniform = (np.arange(columns.shape[1]) < uniform.shape[1])[moving]
        columns = columns[:, moving]
        reach = np.abs(loc) + np.abs(columns) @ np.where(is_uniform, 1.0, NORMAL_RANGE)
        around = float(network.skip_connection) * np.eye(network.num_outputs, len(loc))[outputs]
        bias = np.zeros(len(around))
        if network.output_bias is not None:
            bias = np.asarray(network.output_bias, np.float64)[outputs]
        first, *others = exact.hidden_weights
        return cls(
            [first @ columns, *others],
            [first @ loc + exact.biases[0], *exact.biases[1:]],
            exact.output_matrix[outputs],
            around @ columns,
            bias + around @ loc,
            float(exact.alpha[0]),
            np.abs(first) @ reach + np.abs(exact.biases[0]),
            np.abs(bias) + around @ reach,
            is_uniform,
        )

    def ends(self, size: FloatArray) -> "Start":
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
        return Start(np.broadcast_to(rows, (len(size), *rows.shape)), const, direct)


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


class Start(NamedTuple):
    """What is bounded: ``rows @ phi(h_n) + direct @ v + const``.

    Shapes ``(P, R, N)`` and ``(P, R)``; `direct` broadcasts against ``(P, R, V)``. Rounding errors
    of `const` are subtracted already.
    """

    rows: FloatArray
    const: FloatArray
    direct: FloatArray | float = 0.0


class Lines(NamedTuple):
    r"""Lines that enclose the activations of a layer: ``lower h <= phi(h) <= upper h + intercept``.

    All have shape ``(P, N)``. `rounding` is what passing the layer may cost in rounding errors,
    for an activation of weight one.
    """

    lower: FloatArray
    upper: FloatArray
    intercept: FloatArray
    rounding: FloatArray


class AffineForms(NamedTuple):
    """Affine functions ``rows @ v + const``, shapes ``(P, R, V)`` and ``(P, R)``."""

    rows: FloatArray
    const: FloatArray

    def middle(self, boxes: Boxes) -> FloatArray:
        """Values at the centers of boxes, shape ``(P, R)``."""
        value: FloatArray = self.const + (self.rows @ boxes.center[..., None])[..., 0]
        return value

    def smallest(self, boxes: Boxes) -> FloatArray:
        """Smallest values on boxes, shape ``(P, R)``."""
        return self.middle(boxes) - (np.abs(self.rows) @ boxes.radius[..., None])[..., 0]


def lines_of(
    network: StandardNetwork, low: FloatArray, high: FloatArray, middle: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Slopes of the lines, and intercepts of the upper ones.

    Parameters
    ----------
    network
        For its slope.
    low, high, middle
        Ranges and values at the centers of the boxes, shapes ``(P, N)``. The lower line is the
        tangent at the center, where the two lines are then nearest to each other.
    """
    alpha, active, inactive = network.alpha, low >= 0, high <= 0
    bends = ~(active | inactive)
    chord = (high - alpha * low) / np.where(bends, high - low, 1.0)
    chord = np.where(active, 1.0, np.where(inactive, alpha, np.minimum(chord, 1.0)))
    intercept = np.where(bends, np.maximum((1 - chord) * high, (alpha - chord) * low), 0.0)
    return np.where(active | (bends & (middle >= 0)), 1.0, alpha), chord, intercept


def rounding_of(
    network: StandardNetwork, layer: int, size: FloatArray, largest: FloatArray
) -> FloatArray:
    """What the rounding of a layer and of its lines may move a bound by, per neuron.

    Twice the first order, which leaves as much room for products of errors.

    Parameters
    ----------
    network, layer
        The network and which of its layers this is.
    size, largest
        Largest sizes of the values before the layer, which the first layer does not need, and of
        its pre-activations, or zero if there are no lines.
    """
    weights, bias = network.weights[layer], network.biases[layer]
    terms = network.sizes if layer == 0 else size @ np.abs(weights).T + np.abs(bias)
    return 2 * (sum(weights.shape) + 32 + 2 * len(network.weights)) * EPS * (terms + largest)


def lower_forms(
    network: StandardNetwork, start: Start, lines: list[Lines], boxes: Boxes
) -> tuple[AffineForms, list[FloatArray]]:
    r"""Affine lower bounds on boxes, and for each layer the sizes of its coefficients.

    Each activation is replaced by the lower of its lines where its coefficient is positive and by
    the upper one where it is negative, from the last layer back to the first (H. Zhang et al.,
    Efficient neural network robustness certification, 2018).
    """
    seen: list[FloatArray] = []
    rows, const, direct = start
    for layer in reversed(range(len(lines))):
        line = lines[layer]
        seen.append(np.abs(rows))
        paid = np.minimum(rows, 0) @ line.intercept[..., None]
        paid -= seen[-1] @ line.rounding[..., None]
        rows = np.where(rows > 0, rows * line.lower[:, None], rows * line.upper[:, None])
        const = const + paid[..., 0] + rows @ network.biases[layer]
        rows = rows @ network.weights[layer]
    rows = rows + direct
    reach = np.abs(rows) @ (np.abs(boxes.center) + boxes.radius)[..., None]
    const = const - 2 * (rows.shape[-1] + 16) * EPS * (reach[..., 0] + np.abs(const))
    return AffineForms(rows, const), seen[::-1]


def centers(network: StandardNetwork, boxes: Boxes) -> list[FloatArray]:
    """Pre-activations at the centers of boxes, shapes ``(P, N)``."""
    found, signal = [], boxes.center
    for weights, bias in zip(network.weights, network.biases, strict=True):
        found.append(signal @ weights.T + bias)
        signal = np.where(found[-1] >= 0, found[-1], network.alpha * found[-1])
    return found


def tangents(network: StandardNetwork, boxes: Boxes) -> tuple[AffineForms, list[FloatArray]]:
    """`lower_forms` of the tangents at the centers: right to rounding, which is subtracted."""
    lines: list[Lines] = []
    rows, size = np.eye(boxes.center.shape[1])[None], np.zeros((1, 0))
    for layer, middle in enumerate(centers(network, boxes)):
        rows = network.weights[layer] @ rows
        slope = np.where(middle >= 0, 1.0, network.alpha)
        largest = np.abs(middle) + (np.abs(rows) @ boxes.radius[..., None])[..., 0]
        rounding = rounding_of(network, layer, size, largest)
        lines.append(Lines(slope, slope, np.zeros_like(slope), rounding))
        rows, size = slope[..., None] * rows, largest
    return lower_forms(network, network.ends(size), lines, boxes)
