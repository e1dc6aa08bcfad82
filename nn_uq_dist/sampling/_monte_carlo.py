"""Reference draws of a network's outputs, by sampling its random input."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.distributions import Distribution

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.compiled_programs import compiled_once
from nn_uq_dist.basics.concrete import known_arrays
from nn_uq_dist.inputs import Input
from nn_uq_dist.inputs.from_numpyro import as_source
from nn_uq_dist.sampling.flat_network import checked_network

# Draws at a time: enough to keep a device busy, few enough for the processor's cache.
_BATCH_SIZE = 4096
# Most numbers per array.
_BATCH_NUMBERS = 2**20
# `jax.random.fold_in` takes 32 bits; one bit is left for the indices beyond the last draw.
_MAX_SAMPLES = 2**31


@checks.third_is_key
def monte_carlo(
    network: Callable[[Any], Any],
    f: Distribution | Input | Any,
    key: Array,
    num_samples: int,
    *,
    batch_size: int | None = None,
    progress: bool = True,
) -> np.ndarray:
    """Draw inputs from `f` and push them through the network itself, without linearization.

    Draw ``i`` depends on `key` and ``i`` alone, so a longer run begins with the same draws; to
    rounding, which depends on how many inputs the network gets at a time.

    Parameters
    ----------
    network
        Any deterministic JAX callable, as in `linearize`.
    f
        Distribution of the input, as for `linearize`, or any other NumPyro distribution with
        ``sample``, of any event shape, alone or in a dict, list or tuple. Such distributions are
        drawn with their own ``sample``.
    key
        A JAX random key.
    num_samples
        Number of draws, at most 2**31.
    batch_size
        Most draws at a time, in batches of equal size; bounds the memory on the device. Default:
        4096, or fewer that have a million numbers per array.
    progress
        Whether a progress bar may appear, which it does after two seconds of work.

    Returns
    -------
    numpy.ndarray
        Draws in the memory of the host, shape ``(num_samples,) + batch_shape + (N_y,)``. If they
        do not fit there, call it for some at a time, each time with another key. NaN and infinite
        outputs are kept; tables and figures leave them out, output by output.

    Raises
    ------
    TypeError
        If `key` is not a random key, a count is not an integer, `network` or `f` is not of a
        supported kind, or the function is called under ``jit``.
    ValueError
        If a count is not positive, or `network` fails on an input of the given shape.

    Warns
    -----
    RuntimeWarning
        If some draws are NaN or infinite.

    Notes
    -----
    The network is traced in each call and compiled where its program is new: not for new weights,
    distributions and keys of the same shapes, whatever the network is made of.

    Examples
    --------
    >>> import jax
    >>> import jax.numpy as jnp
    >>> from nn_uq_dist import Input, monte_carlo
    >>> f = Input.box(jnp.zeros(2), half_width=1.0)
    >>> draws = monte_carlo(jnp.tanh, f, jax.random.key(0), 1000)
    >>> draws.shape
    (1000, 2)
    """
    num_samples, batch_size = as_counts(num_samples, batch_size)
    key = checks.as_key("key", key)
    if not checks.is_concrete(key, f):
        raise TypeError(
            "f and key must hold numbers, got traced values; call Monte Carlo functions "
            "outside of jit, vmap and grad"
        )
    source, batch_shape, draw = as_source(f)
    axes = len(batch_shape)
    drawn = jax.eval_shape(draw, source, key)
    one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[axes:], leaf.dtype), drawn)
    network, structure, dtype = checked_network(network, one)

    def outputs(source: Any, key: Array, index: Array) -> Array:
        def outputs_of(value: Any) -> Array:
            return structure.ravel(network(value), dtype)

        for _ in range(1 + axes):
            outputs_of = jax.vmap(outputs_of)
        return outputs_of(jax.vmap(lambda i: draw(source, jax.random.fold_in(key, i)))(index))

    num_inputs = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(one))
    width = math.prod(batch_shape) * max(num_inputs, structure.num_outputs)
    draws: np.ndarray = in_batches(
        outputs, source, key, num_samples, width=width, batch_size=batch_size, progress=progress
    )
    warn_nonfinite(draws)
    return draws


def as_counts(num_samples: int, batch_size: int | None) -> tuple[int, int | None]:
    """Check the number of draws, and of those at a time."""
    if batch_size is not None:
        batch_size = checks.positive_int("batch_size", batch_size)
    return checks.positive_int("num_samples", num_samples, _MAX_SAMPLES), batch_size


def in_batches(
    function: Callable[[Any, Array, Array], Any],
    source: Any,
    key: Array,
    num_samples: int,
    *,
    width: int,
    batch_size: int | None,
    progress: bool,
) -> Any:
    """NumPy arrays with a row per draw, of `width` numbers in the widest array.

    `function` is pure and gets a pytree, a Threefry key and the indices of some draws.
    """
    from tqdm import tqdm

    key = threefry(key)
    size = batch_size or min(_BATCH_SIZE, max(1, _BATCH_NUMBERS // max(1, width)))
    # Equal batches: the last one would be filled up by draws that nobody sees.
    size = -(-num_samples // -(-num_samples // size))
    offsets = np.arange(size, dtype=np.uint32)
    run = compiled_once(function, source, key, offsets)
    results: Any = None
    options: Any = {"unit": "draw", "unit_scale": True, "delay": 2, "disable": not progress}
    with tqdm(total=num_samples, **options) as bar:
        for start in range(0, num_samples, size):
            rows = known_arrays(run(source, key, np.uint32(start) + offsets))
            count = min(size, num_samples - start)
            if results is None:
                results = jax.tree.map(
                    lambda array: np.empty((num_samples, *array.shape[1:]), array.dtype), rows
                )
            for whole, array in zip(jax.tree.leaves(results), jax.tree.leaves(rows), strict=True):
                whole[start : start + count] = array[:count]
            bar.update(count)
    return results


def threefry(key: Array) -> Array:
    """Return a Threefry key; with other kinds, a draw under ``vmap`` depends on its neighbors."""
    if str(jax.random.key_impl(key)) == "threefry2x32":
        return key
    words = jax.random.bits(key, (2,), jnp.uint32)
    return jax.random.wrap_key_data(words, impl="threefry2x32")


def warn_nonfinite(outputs: np.ndarray) -> None:
    """Warn if some outputs are NaN or infinite."""
    number = outputs.size - int(np.isfinite(outputs).sum())
    if number:
        checks.warn(
            f"{number} of {outputs.size} network outputs drawn are NaN or infinite; check the "
            f"network over the range of its input"
        )
