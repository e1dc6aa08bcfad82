"""The plan of a Monte Carlo run, and the loop that carries it out over all devices.

A run is cut into passes; in a pass each device handles the same number of groups, one after the
other; a group holds a fixed number of draws. The size of a group depends on the shapes of network
and input law, not on the batch size or the devices, because the last bits of a matrix product
depend on its size.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from numpyro.distributions import Distribution

from nn_uq_dist.basics import _checks
from nn_uq_dist.basics._compiled_once import compiled_once
from nn_uq_dist.inputs import AbstractInputLaw
from nn_uq_dist.inputs._as_input_law import SampledInput, as_drawable
from nn_uq_dist.inputs._flat_network import FlatNetwork, flat_network


def spans_processes(devices: tuple[jax.Device, ...]) -> bool:
    """Whether some of the devices belong to other processes."""
    return any(device.process_index != jax.process_index() for device in devices)


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


# Draws per group: large enough to keep a device busy, small enough for the processor's cache.
_GROUP_SIZE = 4096
# Most numbers per array, in a group and in a pass.
_GROUP_NUMBERS = 2**20
_PASS_NUMBERS = 2**22
# `jax.random.fold_in` takes 32 bits; one bit is left for the groups beyond the last draw.
_MAX_SAMPLES = 2**31


class Draws(NamedTuple):
    """Results of one group of draws."""

    inputs: Any  # (group_size,) + batch_shape + (N_x,); a structure if there is no input law
    linear: Array | None  # outputs of a linear model at the same inputs
    outputs: Array  # of the network, (group_size,) + output_shape


def _draw_input(law: AbstractInputLaw, key: Array, index: Array) -> tuple[Array, None]:
    """Input number `index` of a law."""
    return law.sample(jax.random.fold_in(key, index)), None


def _draw_structure(f: SampledInput, _: None, key: Array, index: Array) -> tuple[Any, None]:
    """Input number `index` of what can only be sampled."""
    return f.draw(jax.random.fold_in(key, index)), None


@dataclasses.dataclass(frozen=True, eq=False)
class DrawPlan:
    """What to draw, and in which portions.

    Attributes
    ----------
    network, key
        The network, and a Threefry random key.
    source, draw
        A pytree, and a pure function ``(source, key, index)`` that returns the input with this
        index, and the output of a linear model for it or ``None``.
    num_samples
        Number of draws.
    output_shape
        Shape ``batch_shape + (N_y,)`` of one draw.
    group_size
        Draws that go through the network at once.
    groups_per_pass
        Groups that one device handles in a pass.
    devices
        The devices in use.
    """

    network: FlatNetwork
    key: Array
    source: Any
    draw: Callable[[Any, Array, Array], tuple[Array, Array | None]]
    num_samples: int
    output_shape: tuple[int, ...]
    group_size: int
    groups_per_pass: int
    devices: tuple[jax.Device, ...]

    @classmethod
    def make(
        cls,
        network: Callable[[Any], Any],
        f: Distribution | AbstractInputLaw | Any,
        key: Array,
        num_samples: int,
        batch_size: int | None,
        devices: Sequence[jax.Device] | None,
    ) -> Self:
        """Check the arguments and choose the sizes."""
        num_samples = _checks.positive_int("num_samples", num_samples, _MAX_SAMPLES)
        if batch_size is not None:
            batch_size = _checks.positive_int("batch_size", batch_size)
        key = _checks.as_key("key", key)
        law = as_drawable(f)
        if not _checks.is_concrete(key, f):
            raise TypeError(
                "f and key must hold numbers, got traced values; call Monte Carlo functions "
                "outside of jit, vmap and grad"
            )
        flat = flat_network(network, law)
        width = math.prod(law.batch_shape) * max(law.num_inputs, flat.num_outputs)
        group_size = min(_GROUP_SIZE, max(1, _GROUP_NUMBERS // width), num_samples)
        if batch_size is None:
            batch_size = max(1, _PASS_NUMBERS // width)
        group_size = min(group_size, batch_size)
        num_groups = -(-num_samples // group_size)
        devices = _some_devices(devices)
        # With several processes keep all devices: those without a group still take part in
        # gathering.
        if not spans_processes(devices):
            devices = devices[:num_groups]
        groups_per_pass = min(batch_size // group_size, -(-num_groups // len(devices)))
        return cls(
            network=flat,
            key=threefry(key),
            source=law if isinstance(law, AbstractInputLaw) else None,
            draw=partial(_draw_structure, law) if isinstance(law, SampledInput) else _draw_input,
            num_samples=num_samples,
            output_shape=(*law.batch_shape, flat.num_outputs),
            group_size=group_size,
            groups_per_pass=groups_per_pass,
            devices=devices,
        )

    @property
    def pass_size(self) -> int:
        """Draws per pass, over all devices."""
        return self.group_size * self.groups_per_pass * len(self.devices)


def run_passes[Carry](
    plan: DrawPlan,
    step: Callable[[Carry, Draws, Array], tuple[Carry, Any]],
    initial: Carry,
    *,
    progress: bool,
) -> Iterator[tuple[int, int, Any, Any]]:
    """Run the network over all draws and yield the results of each pass.

    Parameters
    ----------
    plan
        The draws and their portions.
    step
        Pure function ``(carry, draws, is_wanted) -> (carry, kept)`` that gets one group of draws,
        and a mask of those with an index below ``num_samples``.
    initial
        Initial carry of each device in each pass.
    progress
        Whether a progress bar may appear.

    Yields
    ------
    tuple
        Index of the first draw; number of draws; the last carry of each device, stacked; the kept
        results of each group, stacked in the order of the draws. The last two are NumPy arrays.
    """
    from tqdm import tqdm

    mesh = Mesh(np.asarray(plan.devices), ("draws",))
    over_devices, everywhere = PartitionSpec("draws"), PartitionSpec()

    def on_device(key: Array, source: Any, stop: Array, starts: Array) -> Any:
        def run_group(carry: Carry, start: Array) -> tuple[Carry, Any]:
            index = start + jnp.arange(plan.group_size, dtype=jnp.uint32)
            inputs, linear = jax.vmap(lambda i: plan.draw(source, key, i))(index)
            outputs = plan.network.at_draws(inputs)
            return step(carry, Draws(inputs, linear, outputs), index < stop)

        def skip_group(carry: Carry, start: Array) -> tuple[Carry, Any]:
            _, kept = jax.eval_shape(run_group, carry, start)
            return carry, jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), kept)

        def one_group(carry: Carry, start: Array) -> tuple[Carry, Any]:
            # The branch saves the work of groups beyond the last draw. It also keeps the compiler
            # from merging the network with a loop that runs only once, which changes last bits.
            result: tuple[Carry, Any] = lax.cond(start < stop, run_group, skip_group, carry, start)
            return result

        carry, kept = lax.scan(one_group, initial, starts)
        return jax.tree.map(lambda leaf: leaf[None], carry), kept

    over_mesh = jax.shard_map(
        on_device,
        mesh=mesh,
        in_specs=(everywhere, everywhere, everywhere, over_devices),
        out_specs=over_devices,
        check_vma=False,
    )
    place_everywhere = partial(place, sharding=NamedSharding(mesh, everywhere))
    known = place_everywhere((plan.key, plan.source, np.uint32(plan.num_samples)))
    offsets = np.arange(0, plan.pass_size, plan.group_size, dtype=np.uint32)
    place_over = partial(place, sharding=NamedSharding(mesh, over_devices))
    run = compiled_once(over_mesh, *known, place_over(offsets), place=place_everywhere)
    shown = progress and not (spans_processes(plan.devices) and jax.process_index())
    with tqdm(
        total=plan.num_samples, unit="draw", unit_scale=True, delay=2, disable=not shown
    ) as bar:
        for first in range(0, plan.num_samples, plan.pass_size):
            starts = np.uint32(first) + offsets
            count = min(plan.pass_size, plan.num_samples - first)
            carry, kept = run(*known, place_over(starts))
            num_groups = -(-count // plan.group_size)
            kept = jax.tree.map(lambda leaf, n=num_groups: leaf[:n], on_host(kept))
            yield first, count, on_host(carry), kept
            bar.update(count)


def all_draws(
    plan: DrawPlan, keep: Callable[[Draws], Any] = lambda draws: draws, *, progress: bool
) -> Any:
    """What `keep` takes of the draws, in the memory of the host."""
    kept: Any = None

    def step(_: None, draws: Draws, is_wanted: Array) -> tuple[None, Any]:
        del is_wanted
        return None, keep(draws)

    for start, count, _, groups in run_passes(plan, step, None, progress=progress):
        rows = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), groups)
        if kept is None:
            kept = jax.tree.map(
                lambda leaf: np.empty((plan.num_samples, *leaf.shape[1:]), leaf.dtype), rows
            )
        for whole, part in zip(jax.tree.leaves(kept), jax.tree.leaves(rows), strict=True):
            whole[start : start + count] = part[:count]
    return kept


def _some_devices(devices: Sequence[jax.Device] | None) -> tuple[jax.Device, ...]:
    if devices is None:
        return tuple(jax.devices())
    try:
        chosen = tuple(devices)
    except TypeError:
        chosen = ()
    if not chosen or not all(isinstance(device, jax.Device) for device in chosen):
        raise TypeError(
            f"devices must be a sequence of JAX devices, got {devices!r}; "
            f"pass jax.devices() or a part of it"
        )
    own = jax.process_index()
    if all(device.process_index != own for device in chosen):
        raise ValueError(
            f"devices must hold a device of each process that calls, got none of process {own}; "
            f"pass jax.devices(), or jax.local_devices() for draws of this process alone"
        )
    return chosen


def threefry(key: Array) -> Array:
    """Return a Threefry key; with other kinds, a draw under ``vmap`` depends on its neighbors."""
    if str(jax.random.key_impl(key)) == "threefry2x32":
        return key
    words = jax.random.bits(key, (2,), jnp.uint32)
    return jax.random.wrap_key_data(words, impl="threefry2x32")
