"""Reference draws of a network's outputs, by sampling its random input."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax import Array
from numpyro.distributions import Distribution

from nn_uq_dist.inputs import AbstractInputLaw
from nn_uq_dist.sampling._passes import DrawPlan, all_draws


def monte_carlo(
    network: Callable[[Any], Any],
    f: Distribution | AbstractInputLaw | Any,
    key: Array,
    num_samples: int,
    *,
    batch_size: int | None = None,
    devices: Sequence[jax.Device] | None = None,
    progress: bool = True,
) -> np.ndarray:
    """Draw inputs from `f` and push them through the network itself, without linearization.

    Draw ``i`` depends on `key` and ``i`` alone: the inputs are the same, bit for bit, for any
    `batch_size`, `devices` and `num_samples`, so a longer run begins with the same draws. The
    network always runs on groups of one fixed size (at most 4096 draws), so its outputs agree bit
    for bit too, unless `num_samples` or `batch_size` is smaller than that group or the devices are
    of different kinds; then they agree to rounding.

    Parameters
    ----------
    network
        Any deterministic JAX callable, as in `linearize`.
    f
        Law of the input, as for `linearize`, or any other NumPyro distribution with ``sample``, of
        any event shape, alone or in a dict, list or tuple. Such distributions are drawn with their
        own ``sample``.
    key
        A JAX random key.
    num_samples
        Number of draws, at most 2**31.
    batch_size
        Draws that each device handles at a time; bounds the memory on the device. Rounded down to
        a multiple of the group size. Default: about 4 million numbers per array.
    devices
        Devices to share the draws among; all of ``jax.devices()`` by default. These are the
        devices of all processes if there are several (``jax.distributed.initialize``): each of
        them then calls with the same arguments, draws on its own devices, and returns the whole
        result. ``jax.local_devices()`` lets a process draw alone.
    progress
        Whether a progress bar may appear, which it does after two seconds of work.

    Returns
    -------
    numpy.ndarray
        Draws in the memory of the host, shape ``(num_samples,) + batch_shape + (N_y,)``. If they
        do not fit there, use `monte_carlo_statistics`.

    Raises
    ------
    TypeError
        If `key` is not a random key, a count is not an integer, `network` or `f` is not of a
        supported kind, or the function is called under ``jit``.
    ValueError
        If a count is not positive, `network` fails on an input of the given shape, or all `devices`
        belong to other processes.

    Warns
    -----
    RuntimeWarning
        If some draws are NaN or infinite. They are kept in the result.

    Notes
    -----
    The network is traced in each call and compiled where its program is new: not for new weights,
    laws and keys of the same shapes, whatever the network is made of.

    Examples
    --------
    >>> import jax
    >>> import jax.numpy as jnp
    >>> from nn_uq_dist import InputLaw, monte_carlo
    >>> f = InputLaw(jnp.zeros(2), half_width=1.0)
    >>> draws = monte_carlo(jnp.tanh, f, jax.random.key(0), 1000)
    >>> draws.shape
    (1000, 2)
    """
    plan = DrawPlan.make(network, f, key, num_samples, batch_size, devices)
    draws: np.ndarray = all_draws(plan, lambda group: group.outputs, progress=progress)
    warn_nonfinite(draws.size - int(np.isfinite(draws).sum()), draws.size)
    return draws


def warn_nonfinite(number: int, total: int) -> None:
    """Warn that `number` of `total` outputs are NaN or infinite, if any are."""
    if number:
        warnings.warn(
            f"{number} of {total} network outputs drawn are NaN or infinite; check the network "
            f"over the range of its input",
            RuntimeWarning,
            stacklevel=3,
        )
