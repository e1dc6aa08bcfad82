"""A fully connected leaky-ReLU network as a pytree, for the error analysis."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from numpyro.distributions import Distribution

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.concrete import evaluated_now, in_float64
from nn_uq_dist.basics.pytree import register_frozen
from nn_uq_dist.basics.row_algebra import matvec
from nn_uq_dist.basics.summary_line import summary_line
from nn_uq_dist.error_analysis._read_layers import read_layers
from nn_uq_dist.inputs import Input, as_input
from nn_uq_dist.sampling.flat_network import flat_network


@register_frozen
@dataclasses.dataclass(frozen=True, eq=False)
class LeakyReLUNetwork:
    r"""The network :math:`g(x) = A\,\phi(h_L) + c`, plus :math:`x` with a skip connection.

    .. math::

        h_1 = W_1 x + b_1, \qquad h_n = W_n\,\phi(h_{n-1}) + b_n, \qquad
        \phi(h) = \begin{cases} h & h \ge 0 \\ \alpha h & h < 0 \end{cases}

    The skip connection goes from the input to the output, around all layers. The object is an
    immutable pytree and is called on one input; `jax.vmap` it over batches.

    Parameters
    ----------
    hidden_weights
        :math:`W_1, \dots, W_L`, at least one; :math:`W_n` has shape ``(N_n, N_{n-1})``,
        ``N_0 = N_x``.
    biases
        :math:`b_1, \dots, b_L`, shapes ``(N_n,)``.
    output_matrix
        :math:`A`, shape ``(N_y, N_L)``.
    negative_slope
        :math:`\alpha` in ``[0, 1]``, a scalar; 0 is the ReLU, 1 the identity.
    skip_connection
        Whether the input is added to the output; needs ``N_x = N_y``. Static: not a leaf of the
        pytree.
    output_bias
        :math:`c`, shape ``(N_y,)``, or ``None`` for no bias.

    Raises
    ------
    TypeError
        If an argument is not an array of real numbers, the weights or the biases are not sequences,
        or `skip_connection` is not a bool.
    ValueError
        If the shapes do not fit, or known (not traced) values hold NaN or infinity or a slope
        outside ``[0, 1]``. A traced slope outside this range becomes NaN.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from nn_uq_dist import LeakyReLUNetwork
    >>> network = LeakyReLUNetwork([[[1.0], [-1.0]]], [[0.0, 0.0]], [[1.0, 1.0]])
    >>> network(jnp.array([-2.0]))  # |x|, less 1% of it
    Array([1.98], dtype=float32)
    """

    hidden_weights: tuple[Array, ...]
    biases: tuple[Array, ...]
    output_matrix: Array
    negative_slope: Array
    skip_connection: bool = dataclasses.field(metadata={"static": True})
    output_bias: Array | None

    def __repr__(self) -> str:
        return summary_line(self)

    def __init__(
        self,
        hidden_weights: Sequence[ArrayLike],
        biases: Sequence[ArrayLike],
        output_matrix: ArrayLike,
        negative_slope: ArrayLike = 0.01,
        skip_connection: bool = False,
        output_bias: ArrayLike | None = None,
    ) -> None:
        if not isinstance(skip_connection, bool | np.bool_):
            raise TypeError(
                f"skip_connection must be True or False, got {type(skip_connection).__name__}; it "
                f"is static and cannot be traced"
            )
        hidden, shifts = _arrays("hidden_weights", hidden_weights), _arrays("biases", biases)
        if not hidden or len(hidden) != len(shifts):
            raise ValueError(
                f"hidden_weights and biases must have one entry per hidden layer, at least one, "
                f"got {len(hidden)} and {len(shifts)}; pass zeros for a layer without bias"
            )
        matrix = checks.as_finite("output_matrix", output_matrix)
        if output_bias is not None:
            output_bias = checks.as_finite("output_bias", output_bias)
        width: int | str = "N_x"
        for n, (weights, bias) in enumerate(zip(hidden, shifts, strict=True)):
            width = _layer_width(f"hidden_weights[{n}]", f"biases[{n}]", weights, bias, width)
        num_outputs = _layer_width("output_matrix", "output_bias", matrix, output_bias, width)
        num_inputs = np.shape(hidden[0])[1]
        if skip_connection and num_inputs != num_outputs:
            raise ValueError(
                f"skip_connection must join as many inputs as outputs, got N_x = {num_inputs} and "
                f"N_y = {num_outputs}; pass skip_connection=False"
            )
        slope = checks.as_numeric("negative_slope", negative_slope)
        # Written so that NaN fails, too.
        if np.ndim(slope) or (checks.is_concrete(slope) and not 0 <= np.asarray(slope) <= 1):
            raise ValueError(
                f"negative_slope must be a scalar in [0, 1], got {slope}; pass 0.01 for the usual "
                f"leaky ReLU, one slope for all neurons"
            )
        parameters = (tuple(hidden), tuple(shifts), matrix, output_bias)
        dtype = checks.float_dtype(*jax.tree.leaves(parameters))
        *arrays, bias = jax.tree.map(lambda array: jnp.asarray(array, dtype), parameters)
        slope = jnp.asarray(slope, dtype)
        slope = jnp.where((slope >= 0) & (slope <= 1), slope, jnp.nan)
        values = (*arrays, slope, skip_connection, bias)
        for field, value in zip(dataclasses.fields(self), values, strict=True):
            object.__setattr__(self, field.name, value)

    @classmethod
    def from_network(cls, network: Callable[[Array], Array], num_inputs: int) -> Self:
        """Read the weights of a network from what it computes.

        Scaling of inputs and outputs and all else that is affine (batch norm in inference mode,
        convolutions) goes into the weights.

        Parameters
        ----------
        network
            A JAX function from a vector to a vector, or a module of Flax NNX or Equinox: affine
            maps with one leaky ReLU or ReLU between them, each layer fed by the one before. The
            input itself may be added to the output.
        num_inputs
            Number of inputs ``N_x``.

        Raises
        ------
        TypeError
            If `network` is not callable, or does not return real floats.
        ValueError
            If it cannot be called with a vector of this length, is an affine map, or does anything
            else: another activation, a connection that skips layers, a product of values.

        Examples
        --------
        >>> import jax
        >>> import jax.numpy as jnp
        >>> from nn_uq_dist import LeakyReLUNetwork
        >>> weights = jnp.array([[1.0, -2.0], [0.5, 1.0]])
        >>> def network(x):
        ...     return 10 * weights @ jax.nn.leaky_relu(weights @ ((x - 3) / 2))
        >>> net = LeakyReLUNetwork.from_network(network, 2)
        >>> print(net.hidden_weights[0].tolist(), net.biases[0].tolist(), net.negative_slope)
        [[0.5, -1.0], [0.25, 0.5]] [1.5, -2.25] 0.01
        """
        num_inputs = checks.positive_int("num_inputs", num_inputs)
        flat = flat_network(network, Input.known(jnp.zeros(num_inputs)))
        # The type of the weights is not known before: one of the two runs may promote them.
        with jax.numpy_dtype_promotion("standard"):
            *layers, slope, skip = read_layers(flat, num_inputs)
            dtype = jax.eval_shape(flat, jax.ShapeDtypeStruct((num_inputs,), jnp.float32)).dtype
        weights, biases = jax.tree.map(lambda part: part.astype(dtype), layers)
        result = cls(weights[:-1], biases[:-1], weights[-1], slope, skip, biases[-1])
        _require_same(flat, result)
        return result

    @property
    def num_inputs(self) -> int:
        """Number of inputs ``N_x``."""
        return self.hidden_weights[0].shape[-1]

    @property
    def num_outputs(self) -> int:
        """Number of outputs ``N_y``."""
        return self.output_matrix.shape[-2]

    @property
    def num_layers(self) -> int:
        """Number of hidden layers ``L``."""
        return len(self.hidden_weights)

    def activation(self, h: Array) -> Array:
        r"""Leaky ReLU :math:`\phi(h)`, elementwise."""
        return jnp.where(h >= 0, h, self.negative_slope * h)

    def pre_activations(self, x: Array) -> tuple[Array, ...]:
        r"""Return :math:`h_1, \dots, h_L` at one input of shape ``(N_x,)``, shapes ``(N_n,)``.

        Raises
        ------
        ValueError
            If `x` does not have shape ``(N_x,)``.
        """
        if np.shape(x) != (self.num_inputs,):
            raise ValueError(
                f"x must be one input of shape ({self.num_inputs},), got shape {np.shape(x)}; use "
                f"jax.vmap over several"
            )
        hidden: list[Array] = []
        for weights, bias in zip(self.hidden_weights, self.biases, strict=True):
            signal = self.activation(hidden[-1]) if hidden else jnp.asarray(x)
            hidden.append(matvec(weights, signal) + bias)
        return tuple(hidden)

    def __call__(self, x: Array) -> Array:
        """Evaluate the network at one input, ``(N_x,)`` to ``(N_y,)``."""
        output = matvec(self.output_matrix, self.activation(self.pre_activations(x)[-1]))
        if self.output_bias is not None:
            output += self.output_bias
        return output + x if self.skip_connection else output


def input_of(network: LeakyReLUNetwork, f: Distribution | Input, *, stacked: bool = False) -> Input:
    """Return `f` as an input of `network`, one network unless `stacked`, or raise an error."""
    if not isinstance(network, LeakyReLUNetwork):
        raise TypeError(
            f"network must be a LeakyReLUNetwork, got {type(network).__name__}; convert it with "
            f"LeakyReLUNetwork.from_network"
        )
    if np.ndim(network.output_matrix) != 2 and not stacked:
        raise ValueError(
            f"network must be one network, got stacked ones with output_matrix of shape "
            f"{np.shape(network.output_matrix)}; use jax.vmap over them"
        )
    distribution = vector_input(f)
    if distribution.num_inputs != network.num_inputs:
        raise ValueError(
            f"f must have N_x = {network.num_inputs} inputs as network, got "
            f"{distribution.num_inputs}; pass one coordinate per input of the network"
        )
    return distribution


def vector_input(f: Distribution | Input) -> Input:
    """Return `f` as an input, or raise a ``TypeError`` if it is not one of vectors."""
    distribution = as_input(f)
    if not distribution.is_vector:
        raise TypeError(
            f"f must be an input of the vector that network takes, got {distribution!r}; pass a "
            f"uniform or Gaussian distribution over vectors, or an nn_uq_dist.Input"
        )
    return distribution


def as_float64(network: LeakyReLUNetwork) -> Any:
    """The network with NumPy leaves in float64, to compute bounds from.

    In float32, rigorous rounding bounds would let many neurons of a deep network seem to flip that
    do not, and JAX has no float64 unless it is enabled for the whole program.

    Raises
    ------
    ValueError
        If a parameter is NaN or infinite: a transformation may have rebuilt the network.
    """
    for parameter in jax.tree.leaves(network):
        checks.require_finite("every weight, bias and slope of network", parameter)
    return in_float64(network)


def _arrays(name: str, arrays: Sequence[ArrayLike]) -> list[ArrayLike]:
    """Finite arrays, one per hidden layer."""
    if not isinstance(arrays, Sequence):
        raise TypeError(
            f"{name} must be a list or tuple of arrays, one per hidden layer, got "
            f"{type(arrays).__name__}; put a single array in a tuple"
        )
    return [checks.as_finite(f"{name}[{n}]", array) for n, array in enumerate(arrays)]


def _layer_width(
    name: str, bias_name: str, weights: ArrayLike, bias: ArrayLike | None, num_inputs: int | str
) -> int:
    """Number of outputs of a layer, whose shapes are checked; `num_inputs` may be a mere name."""
    shape = np.shape(weights)
    if len(shape) != 2 or 0 in shape or num_inputs not in {"N_x", shape[-1]}:
        raise ValueError(
            f"{name} must have shape (N, {num_inputs}), a row per output and a column per input "
            f"of the layer, got shape {shape}; transpose kernels that multiply from the right"
        )
    if bias is not None and np.shape(bias) != shape[:1]:
        raise ValueError(
            f"{bias_name} must have shape {shape[:1]}, as the rows of {name}, got shape "
            f"{np.shape(bias)}; pass an entry per row"
        )
    return shape[0]


def _require_same(network: Callable[[Array], Array], layers: LeakyReLUNetwork) -> None:
    """Raise if the layers that were read differ from the network itself at some inputs."""
    if not checks.is_concrete(layers):
        return
    draws = np.random.default_rng(0).normal(size=(6, layers.num_inputs))
    scales = np.array([[0.1], [0.1], [1], [1], [100], [100]])
    inputs = jnp.asarray(draws * scales, layers.biases[0].dtype)
    with evaluated_now():
        expected, outputs = jax.vmap(network)(inputs), jax.vmap(layers)(inputs)
        size = np.abs(expected).max(axis=1, keepdims=True) + np.abs(layers(inputs[0] * 0)).max()
    difference = np.abs(outputs - expected)
    if not (difference <= np.sqrt(jnp.finfo(outputs.dtype).eps) * size).all():
        raise ValueError(
            f"network must be the same function each time, got outputs that differ by up to "
            f"{difference.max():.1e} from those of the layers that were read; switch dropout off, "
            f"or construct a LeakyReLUNetwork from the weights"
        )
