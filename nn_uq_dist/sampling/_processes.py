"""Arrays placed on the devices of all processes, and whole results returned to each process.

With several processes (`jax.distributed`) all of them run the same program on the same arguments. A
mesh may hold devices of other processes, where this process can neither write nor read.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import NamedSharding


def spans_processes(devices: tuple[jax.Device, ...]) -> bool:
    """Whether some of the devices belong to other processes."""
    return any(device.process_index != jax.process_index() for device in devices)


def require_own_device(devices: tuple[jax.Device, ...]) -> None:
    """Raise ``ValueError`` if this process has none of the devices."""
    own = jax.process_index()
    if all(device.process_index != own for device in devices):
        raise ValueError(
            f"devices must hold a device of each process that calls, got none of process {own}; "
            f"pass jax.devices(), or jax.local_devices() for draws of this process alone"
        )


def place(tree: Any, sharding: NamedSharding) -> Any:
    """Put known numbers, the same in all processes, on the devices of a mesh."""
    if sharding.is_fully_addressable:
        return jax.device_put(tree, sharding)
    return jax.tree.map(lambda leaf: _place_leaf(leaf, sharding), tree)


def _place_leaf(leaf: Any, sharding: NamedSharding) -> Array:
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        data = _place_leaf(jax.random.key_data(leaf), sharding)
        key: Array = jax.random.wrap_key_data(data, impl=str(jax.random.key_impl(leaf)))
        return key
    host = np.asarray(leaf)
    return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])


def on_host(tree: Any) -> Any:
    """Whole arrays in the memory of this process, gathered from the others if needed."""
    return jax.tree.map(_leaf_on_host, tree)


def _leaf_on_host(leaf: Array) -> np.ndarray:
    if leaf.is_fully_addressable:
        return np.asarray(leaf)
    from jax.experimental import multihost_utils

    gathered: np.ndarray = multihost_utils.process_allgather(leaf, tiled=True)
    return gathered
