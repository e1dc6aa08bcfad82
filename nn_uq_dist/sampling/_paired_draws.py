"""The same random inputs through a network and through its linearization."""

import dataclasses
import math
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.pytree import positions, register_frozen
from nn_uq_dist.basics.quadrature_nodes import MAXIMUM_DIMENSION, sobol_points
from nn_uq_dist.basics.summary_line import summary_line
from nn_uq_dist.sampling._monte_carlo import as_counts, in_batches, threefry, warn_nonfinite
from nn_uq_dist.sampling.flat_network import flat_network

Points = Literal["random", "sobol"]
# Sobol sequences: more of them tell errors better, fewer have smaller ones.
_MOST_SEQUENCES, _FEWEST_SEQUENCES = 8, 4


@register_frozen
@dataclasses.dataclass(frozen=True, eq=False)
class PairedDraws:
    """Draws of a random input, with the outputs of a network and of its linearization.

    Made by `paired_draws`. Linear and network outputs differ by little, and the distribution of the
    linear ones is known exactly, so estimates from the difference have a small standard error. The
    object is an immutable pytree; draws that were not traced are NumPy arrays.

    Attributes
    ----------
    base_inputs : array, shape (n, ..., N_x)
        The random inputs as vectors of the input distribution; `inputs` is what the network takes.
    network : array, shape (n, ..., N_y)
        Outputs of the network.
    linear : array, shape (n, ..., N_y)
        Outputs of the linearization at the same inputs.
    linearization
        The `Linearization`.
    key : Array
        The random key.
    num_randomizations : int
        Number of Sobol sequences that the draws consist of, in order; 0 for independent draws.

    Examples
    --------
    >>> import jax
    >>> import jax.numpy as jnp
    >>> import nn_uq_dist as nuq
    >>> network = lambda x: jnp.array([jnp.tanh(x[0]) + x[1]])
    >>> lin = nuq.linearize(network, nuq.Input.box([0.1, 0.2], half_width=0.5))
    >>> pairs = nuq.paired_draws(network, lin, jax.random.key(0), 1000, progress=False)
    >>> bool((pairs.network - pairs.linear).std() < 0.1 * pairs.network.std())
    True
    """

    base_inputs: Array
    network: Array
    linear: Array
    linearization: Any
    key: Array
    num_randomizations: int = dataclasses.field(default=0, metadata={"static": True})

    def __repr__(self) -> str:
        return summary_line(self)

    def __getitem__(self, index: Any) -> "PairedDraws":
        """Return the pairs of some entries of the batch, indexed as a NumPy array of that shape.

        All draws are kept: ``pairs[13]`` are those of the patient, or the pixel, number 13.
        """
        batch_shape = self.linearization.batch_shape
        where = np.unravel_index(positions(batch_shape, index), batch_shape)
        return dataclasses.replace(
            self,
            base_inputs=self.base_inputs[:, *where],
            network=self.network[:, *where],
            linear=self.linear[:, *where],
            linearization=self.linearization[index],
        )

    @property
    def inputs(self) -> Any:
        """The random inputs as the network takes them, with ``(n, ...)`` in front."""
        distribution = self.linearization.input
        numbers = distribution.taken(self.base_inputs)
        return distribution.structured(
            np.asarray(numbers) if checks.is_concrete(numbers) else numbers
        )

    @property
    def num_samples(self) -> int:
        """Number of pairs."""
        return self.network.shape[0]


@checks.third_is_key
def paired_draws(
    network: Callable[[Any], Any],
    linearization: Any,
    key: Array,
    num_samples: int,
    *,
    points: Points = "random",
    num_randomizations: int | None = None,
    batch_size: int | None = None,
    progress: bool = True,
) -> PairedDraws:
    """Draw inputs, and push them through the network and through its linearization.

    With independent draws the inputs are those of `monte_carlo` with the same key, to rounding:
    draw ``i`` depends on `key` and ``i`` alone. Under ``jit`` with a traced input distribution the
    inputs are the same, as functions of the distribution's parameters (common random numbers); then
    `batch_size` and `progress` are ignored.

    Parameters
    ----------
    network
        The network, any deterministic JAX callable that `linearize` takes.
    linearization
        Its linearization, from `linearize`.
    key
        A JAX random key.
    num_samples
        Number of pairs, at most 2**31, which is the number of network evaluations.
    points
        ``"random"`` for independent draws, ``"sobol"`` for scrambled Sobol points: more accurate
        for the same number if few inputs matter. For a batch of means all have the same points.
    num_randomizations
        With Sobol points: number of independent sequences that make up the draws, and from which
        standard errors are estimated. It must divide `num_samples`. Default: 8, or where 8 does
        not divide it the next number down to 4 that does.
    batch_size, progress
        As in `monte_carlo`.

    Returns
    -------
    PairedDraws

    Raises
    ------
    TypeError
        If an argument has the wrong type.
    ValueError
        If a count is not positive, `points` is unknown, `num_randomizations` does not divide
        `num_samples`, or `network` and `linearization` have different numbers of outputs.

    Warns
    -----
    RuntimeWarning
        If some outputs of the network are NaN or infinite.

    Examples
    --------
    >>> import jax
    >>> import jax.numpy as jnp
    >>> import nn_uq_dist as nuq
    >>> lin = nuq.linearize(jnp.tanh, nuq.Input.box([0.1, 0.2], half_width=0.5))
    >>> pairs = nuq.paired_draws(jnp.tanh, lin, jax.random.key(0), 64, points="sobol")
    >>> pairs.network.shape, pairs.linear.shape
    ((64, 2), (64, 2))
    """
    if not callable(getattr(linearization, "sample_pairs", None)):
        raise TypeError(
            f"linearization must be a Linearization, got {type(linearization).__name__}; pass "
            f"the network first, and linearize(network, f) second"
        )
    if points not in get_args(Points):
        raise ValueError(
            f"points must be 'random' or 'sobol', got {points!r}; pass one of these words"
        )
    num_samples, batch_size = as_counts(num_samples, batch_size)
    randomizations = _sequences(points, num_samples, num_randomizations)
    key = checks.as_key("key", key)
    cube = None
    distribution = linearization.input
    if randomizations:
        if not checks.is_concrete(key):
            raise TypeError(
                "key must be known for points='sobol', got a traced one; "
                "make it outside of jit, as a constant"
            )
        dimension = linearization.num_coordinates
        if dimension > MAXIMUM_DIMENSION:
            raise ValueError(
                f"points must be 'random' for more than {MAXIMUM_DIMENSION} random variables, got "
                f"{dimension} and points='sobol'; pass points='random'"
            )
        cube = sobol_points(key, num_samples, randomizations, dimension)
        cube = cube.astype(distribution.dtype)
    flat = flat_network(network, distribution)
    if flat.num_outputs != linearization.num_outputs:
        raise ValueError(
            f"network must have the {linearization.num_outputs} outputs of linearization, got "
            f"{flat.num_outputs}; pass the network that was linearized"
        )

    def pairs(source: Any, key: Array, index: Array) -> tuple[Array, Array, Array]:
        model, cube = source
        if cube is None:
            keys = jax.vmap(partial(jax.random.fold_in, key))(index)
            inputs, linear = jax.vmap(model.sample_pairs)(keys)
        else:
            # Indices beyond the last draw are cut off afterwards.
            inputs, linear = jax.vmap(model.pairs_at)(jnp.take(cube, index, axis=0, mode="clip"))
        return inputs, linear, flat.at_draws(inputs)

    source = linearization, cube
    if not checks.is_concrete(linearization, key):
        # All pairs at once, as functions of traced parameters.
        index = jnp.arange(num_samples, dtype=jnp.uint32)
        inputs, linear, outputs = pairs(source, threefry(key), index)
    else:
        widest = max(distribution.num_inputs, flat.num_outputs)
        width = math.prod(distribution.batch_shape) * widest
        inputs, linear, outputs = in_batches(
            pairs, source, key, num_samples, width=width, batch_size=batch_size, progress=progress
        )
        warn_nonfinite(outputs)
    return PairedDraws(inputs, outputs, linear, linearization, key, randomizations)


def _sequences(points: Points, num_samples: int, wanted: int | None) -> int:
    """Number of Sobol sequences, which must divide the number of samples; 0 of random points."""
    if points == "random":
        if wanted is not None:
            raise ValueError(
                f"num_randomizations must be None for random points, got {wanted}; leave it out, "
                f"or pass points='sobol'"
            )
        return 0
    if wanted is None:
        possible = range(_MOST_SEQUENCES, _FEWEST_SEQUENCES - 1, -1)
        wanted = next((k for k in possible if num_samples % k == 0), _MOST_SEQUENCES)
    number = checks.positive_int("num_randomizations", wanted)
    if num_samples % number:
        raise ValueError(
            f"num_samples must be a multiple of num_randomizations = {number}, got {num_samples}; "
            f"pass {max(num_samples // number, 1) * number}"
        )
    return number
