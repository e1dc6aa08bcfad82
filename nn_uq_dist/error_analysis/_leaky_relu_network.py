"""A fully connected leaky-ReLU network as a pytree, for the error analysis."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nn_uq_dist.basics import _checks
from nn_uq_dist.basics._pytree import register_frozen
from nn_uq_dist.basics._row_algebra import matvec
from nn_uq_dist.basics._summary_line import summary_line
from nn_uq_dist.error_analysis._linear_layers import Layer, equinox_layers, flax_layers

if TYPE_CHECKING:
    import equinox as eqx
    from flax import nnx


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
    >>> net = LeakyReLUNetwork([[[1.0], [-1.0]]], [[0.0, 0.0]], [[1.0, 1.0]])
    >>> net(jnp.array([-2.0]))  # |x|, less 1% of it
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
        if not isinstance(skip_connection, bool):
            raise TypeError(
                f"skip_connection must be True or False, got {type(skip_connection).__name__}; it "
                f"is static and cannot be traced"
            )
        weights = _as_numeric_sequence("hidden_weights", hidden_weights)
        shifts = _as_numeric_sequence("biases", biases)
        matrix = _checks.as_numeric("output_matrix", output_matrix)
        _check_chain([np.shape(part) for part in weights], [np.shape(part) for part in shifts])
        size = np.shape(weights[-1])[0]
        if len(np.shape(matrix)) != 2 or np.shape(matrix)[1] != size or np.shape(matrix)[0] == 0:
            raise ValueError(
                f"output_matrix must have shape (N_y, {size}), a column per neuron of the last "
                f"hidden layer, got shape {np.shape(matrix)}; pass A of A @ phi(h_L)"
            )
        ends = (np.shape(weights[0])[1], np.shape(matrix)[0])
        if skip_connection and ends[0] != ends[1]:
            raise ValueError(
                f"skip_connection must join as many inputs as outputs, got N_x = {ends[0]} and "
                f"N_y = {ends[1]}; pass skip_connection=False"
            )
        if output_bias is not None:
            output_bias = _checks.as_numeric("output_bias", output_bias)
            if np.shape(output_bias) != (ends[1],):
                raise ValueError(
                    f"output_bias must have shape ({ends[1]},), an entry per output, got shape "
                    f"{np.shape(output_bias)}; pass None for no bias"
                )
        slope = _checks.as_numeric("negative_slope", negative_slope)
        _check_slope(slope)

        arrays = {
            **{f"hidden_weights[{n}]": part for n, part in enumerate(weights)},
            **{f"biases[{n}]": part for n, part in enumerate(shifts)},
            "output_matrix": matrix,
        }
        if output_bias is not None:
            arrays["output_bias"] = output_bias
        for name, part in arrays.items():
            _checks.require_finite(name, part)
        dtype = _checks.float_dtype(*arrays.values())
        set_field = object.__setattr__
        set_field(self, "hidden_weights", tuple(jnp.asarray(part, dtype) for part in weights))
        set_field(self, "biases", tuple(jnp.asarray(part, dtype) for part in shifts))
        set_field(self, "output_matrix", jnp.asarray(matrix, dtype))
        slope = jnp.asarray(slope, dtype)
        set_field(self, "negative_slope", jnp.where((slope >= 0) & (slope <= 1), slope, jnp.nan))
        set_field(self, "skip_connection", skip_connection)
        output_bias = None if output_bias is None else jnp.asarray(output_bias, dtype)
        set_field(self, "output_bias", output_bias)

    @classmethod
    def from_flax(
        cls,
        layers: "Sequence[nnx.Linear]",
        negative_slope: ArrayLike = 0.01,
        skip_connection: bool = False,
    ) -> Self:
        """Take the parameters of a sequence of Flax NNX linear layers.

        Parameters
        ----------
        layers
            At least two ``nnx.Linear``, from the input to the output. Hidden layers without bias
            get zeros; an output layer without bias gets none.
        negative_slope
            Negative slope of the activation between the layers, which the layers do not store.
        skip_connection
            Whether the input is added to the output of the last layer.

        Raises
        ------
        TypeError
            If a layer has no `kernel`.
        ValueError
            If there are fewer than two layers, or they do not fit.

        Examples
        --------
        >>> from flax import nnx
        >>> from nn_uq_dist import LeakyReLUNetwork
        >>> rngs = nnx.Rngs(0)
        >>> layers = [nnx.Linear(3, 8, rngs=rngs), nnx.Linear(8, 2, rngs=rngs)]
        >>> LeakyReLUNetwork.from_flax(layers).num_outputs
        2
        """
        return cls._from_layers(flax_layers(layers), negative_slope, skip_connection)

    @classmethod
    def from_equinox(cls, mlp: "eqx.nn.MLP", skip_connection: bool = False) -> Self:
        """Take the parameters of an Equinox ``MLP``; the slope is determined from its activation.

        Parameters
        ----------
        mlp
            An MLP with at least one hidden layer, a leaky-ReLU or ReLU activation without
            parameters, and no final activation.
        skip_connection
            Whether the input is added to the output of `mlp`.

        Raises
        ------
        TypeError
            If `mlp` does not have the fields of an Equinox MLP.
        ValueError
            If it has no hidden layer, or an activation is not of that kind.

        Examples
        --------
        >>> import equinox as eqx
        >>> import jax
        >>> from nn_uq_dist import LeakyReLUNetwork
        >>> mlp = eqx.nn.MLP(3, 2, 8, 1, jax.nn.leaky_relu, key=jax.random.key(0))
        >>> print(LeakyReLUNetwork.from_equinox(mlp).negative_slope)
        0.01
        """
        layers, slope = equinox_layers(mlp)
        return cls._from_layers(layers, slope, skip_connection)

    @classmethod
    def _from_layers(
        cls, layers: list[Layer], negative_slope: ArrayLike, skip_connection: bool
    ) -> Self:
        if len(layers) < 2:
            raise ValueError(
                f"the network must have at least 2 linear layers, a hidden and the output one, got "
                f"{len(layers)}; a linear map is its own linearization"
            )
        weights = [weight for weight, _ in layers]
        biases = [jnp.zeros(w.shape[0], w.dtype) if b is None else b for w, b in layers[:-1]]
        output_bias = layers[-1][1]
        return cls(weights[:-1], biases, weights[-1], negative_slope, skip_connection, output_bias)

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
        signal = jnp.asarray(x)
        for weights, bias in zip(self.hidden_weights, self.biases, strict=True):
            hidden.append(matvec(weights, signal) + bias)
            signal = self.activation(hidden[-1])
        return tuple(hidden)

    def __call__(self, x: Array) -> Array:
        """Evaluate the network at one input, ``(N_x,)`` to ``(N_y,)``."""
        output = matvec(self.output_matrix, self.activation(self.pre_activations(x)[-1]))
        if self.output_bias is not None:
            output += self.output_bias
        return output + x if self.skip_connection else output


def _as_numeric_sequence(name: str, parts: Sequence[ArrayLike]) -> list[ArrayLike]:
    if not isinstance(parts, Sequence):
        raise TypeError(
            f"{name} must be a list or tuple of arrays, one per hidden layer, got "
            f"{type(parts).__name__}; put a single array in a tuple"
        )
    return [_checks.as_numeric(f"{name}[{n}]", part) for n, part in enumerate(parts)]


def _check_chain(weights: list[tuple[int, ...]], biases: list[tuple[int, ...]]) -> None:
    if not weights or len(weights) != len(biases):
        raise ValueError(
            f"hidden_weights and biases must have one entry per hidden layer, at least one, got "
            f"{len(weights)} and {len(biases)}; pass zeros for a layer without bias"
        )
    previous: int | None = None
    for n, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        columns = "N_x" if previous is None else str(previous)
        fits = len(weight) == 2 and previous in {None, weight[-1]} and 0 not in weight
        if not fits:
            raise ValueError(
                f"hidden_weights[{n}] must have shape (N, {columns}), a row per neuron and a "
                f"column per neuron before, got shape {weight}; transpose kernels that multiply "
                f"from the right"
            )
        if bias != weight[:1]:
            raise ValueError(
                f"biases[{n}] must have shape {weight[:1]}, as the rows of hidden_weights[{n}], "
                f"got shape {bias}; pass an entry per neuron"
            )
        previous = weight[0]


def _check_slope(slope: ArrayLike) -> None:
    if np.shape(slope) != ():
        raise ValueError(
            f"negative_slope must be a scalar, got shape {np.shape(slope)}; pass one slope for "
            f"all neurons"
        )
    # Written so that NaN fails, too.
    if _checks.is_concrete(slope) and not 0 <= np.asarray(slope) <= 1:
        raise ValueError(
            f"negative_slope must lie in [0, 1], got {slope}; pass 0.01 for the usual leaky ReLU"
        )
