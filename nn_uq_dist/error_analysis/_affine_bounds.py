r"""Affine bounds of a leaky-ReLU network on boxes of the standard variables of its input.

A law of the input is :math:`\mu + A U + B N`. The network is taken as a function of the variables
:math:`v = (U, N)`, of which normal ones have a range of `NORMAL_RANGE` standard deviations. Arrays
have a leading axis of boxes.
"""

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.basics._known_values import FloatArray, in_float64
from nn_uq_dist.error_analysis._float64_network import Float64Network, as_float64
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
        given = in_float64(law)
        uniform, normal = (
            np.zeros((given.num_inputs, 0)) if part is None else np.asarray(part)
            for part in given.columns(np.eye(given.num_inputs))  # type: ignore[arg-type]
        )
        exact = as_float64(network)._replace(
            output_matrix=np.asarray(network.output_matrix, np.float64)[outputs]
        )
        bias = np.zeros(network.num_outputs)
        if network.output_bias is not None:
            bias = np.asarray(network.output_bias, np.float64)
        around = float(network.skip_connection) * np.eye(network.num_outputs, given.num_inputs)
        loc = np.asarray(given.loc)
        return cls._of(exact, loc, uniform, normal, around[outputs], bias[outputs])

    @classmethod
    def of_box(cls, network: Float64Network, mu: FloatArray, half_width: FloatArray) -> Self:
        """All outputs of one network on a box, without skip connection and bias."""
        none = np.zeros((mu.shape[0], 0))
        size = len(network.output_matrix)
        around = np.zeros((size, mu.shape[0]))
        return cls._of(network, mu, np.diag(half_width), none, around, np.zeros(size))

    @classmethod
    def _of(
        cls,
        network: Float64Network,
        loc: FloatArray,
        uniform: FloatArray,
        normal: FloatArray,
        around: FloatArray,
        bias: FloatArray,
    ) -> Self:
        columns = np.concatenate([uniform, normal], axis=-1)
        moving = np.any(columns != 0, axis=0)
        is_uniform = (np.arange(columns.shape[1]) < uniform.shape[1])[moving]
        columns = columns[:, moving]
        reach = np.abs(loc) + np.abs(columns) @ np.where(is_uniform, 1.0, NORMAL_RANGE)
        first, *others = network.hidden_weights
        return cls(
            [first @ columns, *others],
            [first @ loc + network.biases[0], *network.biases[1:]],
            network.output_matrix,
            around @ columns,
            bias + around @ loc,
            float(network.alpha[0]),
            np.abs(first) @ reach + np.abs(network.biases[0]),
            np.abs(bias) + around @ reach,
            is_uniform,
        )

    def ends(self, size: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Rows, constants and direct rows of the outputs and of their negatives, for `lower_forms`.

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

    def smallest(self, center: FloatArray, radius: FloatArray) -> FloatArray:
        """Smallest values on boxes with these centers and radii ``(P, V)``, shape ``(P, R)``."""
        value = self.rows @ center[..., None] - np.abs(self.rows) @ radius[..., None]
        least: FloatArray = self.const + value[..., 0]
        return least


def lines_of(
    network: StandardNetwork,
    layer: int,
    low: FloatArray,
    high: FloatArray,
    middle: FloatArray,
    size: FloatArray,
) -> tuple[Lines, FloatArray]:
    """Lines for pre-activations between `low` and `high`, and the largest size of these.

    Parameters
    ----------
    network, layer
        The network and which of its layers this is.
    low, high, middle
        Ranges and values at the centers of the boxes, shapes ``(P, N)``. The lower line is the
        tangent at the center, where the two lines are then nearest to each other.
    size
        Largest sizes of the values before the layer, shape ``(P, N_before)``; not used in the first
        layer.
    """
    alpha = network.alpha
    active, inactive = low >= 0, high <= 0
    width = np.where(active | inactive, 1.0, high - low)
    chord = np.where(active, 1.0, np.where(inactive, alpha, (high - alpha * low) / width))
    chord = np.minimum(chord, 1.0)
    rest = np.maximum((1 - chord) * high, (alpha - chord) * low)
    intercept = np.where(active | inactive, 0.0, rest)
    tangent = np.where(active | (~inactive & (middle >= 0)), 1.0, alpha)
    largest = np.maximum(np.abs(low), np.abs(high))
    rounding = rounding_of(network, layer, size, largest)
    return Lines(tangent, chord, intercept, rounding), largest


def rounding_of(
    network: StandardNetwork, layer: int, size: FloatArray, largest: FloatArray
) -> FloatArray:
    """What the rounding of a layer and of its lines may move a bound by, per neuron.

    Twice the first order, which leaves as much room for products of errors.
    """
    weights, bias = network.weights[layer], network.biases[layer]
    terms = network.sizes if layer == 0 else size @ np.abs(weights).T + np.abs(bias)
    return 2 * (sum(weights.shape) + 32 + 2 * len(network.weights)) * EPS * (terms + largest)


def lower_forms(
    network: StandardNetwork,
    rows: FloatArray,
    const: FloatArray,
    direct: FloatArray | float,
    lines: list[Lines],
    center: FloatArray,
    radius: FloatArray,
) -> tuple[AffineForms, list[FloatArray]]:
    r"""Affine lower bounds of ``rows @ phi(h_n) + direct @ v + const``, and the sizes of the rows.

    Each activation is replaced by the lower of its lines where its coefficient is positive and by
    the upper one where it is negative, from the last layer back to the first (H. Zhang et al.,
    Efficient neural network robustness certification, 2018).

    Parameters
    ----------
    rows, const
        Shapes ``(P, R, N)`` and ``(P, R)``; rounding errors of `const` are subtracted already.
    direct
        Broadcasts against ``(P, R, V)``.
    lines
        Of the layers up to n.
    center, radius
        The boxes, shapes ``(P, V)``.

    Returns
    -------
    tuple
        The forms, and for each layer the absolute values of the coefficients of its activations.
    """
    seen: list[FloatArray] = []
    for layer in reversed(range(len(lines))):
        line = lines[layer]
        seen.append(np.abs(rows))
        paid = np.minimum(rows, 0) @ line.intercept[..., None]
        paid -= seen[-1] @ line.rounding[..., None]
        rows = np.where(rows > 0, rows * line.lower[:, None], rows * line.upper[:, None])
        const = const + paid[..., 0] + rows @ network.biases[layer]
        rows = rows @ network.weights[layer]
    rows = rows + direct
    reach = np.abs(rows) @ (np.abs(center) + radius)[..., None]
    const = const - 2 * (center.shape[-1] + 16) * EPS * (reach[..., 0] + np.abs(const))
    return AffineForms(rows, const), seen[::-1]
