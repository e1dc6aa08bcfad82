"""The trained networks: files, and their error on fresh inputs."""

from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from safetensors import safe_open
from safetensors.numpy import save_file

from nn_uq_dist import LeakyReLUNetwork

WEIGHTS = Path(__file__).parent / "weights"
_INPUTS_PER_CALL = 2000


def save(net: LeakyReLUNetwork, path: Path) -> None:
    """Write the arrays of a network as safetensors, slope and skip connection as metadata."""
    arrays = {"output_matrix": net.output_matrix}
    for n, (weights, bias) in enumerate(zip(net.hidden_weights, net.biases, strict=True), 1):
        arrays |= {f"hidden_weights.{n}": weights, f"biases.{n}": bias}
    if net.output_bias is not None:
        arrays["output_bias"] = net.output_bias
    metadata = {
        # The shortest decimal of the slope's own precision: "0.01", not "0.009999999776482582".
        "negative_slope": str(np.asarray(net.negative_slope)),
        "skip_connection": str(net.skip_connection),
    }
    save_file({name: np.asarray(part) for name, part in arrays.items()}, path, metadata)


def load(path: Path | str) -> LeakyReLUNetwork:
    """Read a network: a file, or the name of a committed one, such as ``"nonlinear_5"``."""
    path = WEIGHTS / f"{path}.safetensors" if isinstance(path, str) else path
    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    layers = range(1, 1 + sum(name.startswith("biases.") for name in arrays))
    return LeakyReLUNetwork(
        [arrays[f"hidden_weights.{n}"] for n in layers],
        [arrays[f"biases.{n}"] for n in layers],
        arrays["output_matrix"],
        float(metadata["negative_slope"]),
        metadata["skip_connection"] == "True",
        arrays.get("output_bias"),
    )


def relative_error(
    net: Callable[[Array], Array],
    operator: Callable[[Array], Array],
    size: int,
    key: Array,
    num_inputs: int = 100_000,
) -> float:
    """Return the relative L2 error of a network on fresh inputs ``f ~ Normal(0, I)``.

    It is the root of the summed squares of ``net(f) - operator(f)`` over those of ``operator(f)``,
    both over all outputs and inputs. `num_inputs` is rounded up to a multiple of 2000.
    """

    def sums(carry: Array, key: Array) -> tuple[Array, None]:
        inputs = jax.random.normal(key, (_INPUTS_PER_CALL, size))
        expected = operator(inputs)
        error = jax.vmap(net)(inputs) - expected
        return carry + jnp.array([jnp.sum(error**2), jnp.sum(expected**2)]), None

    keys = jax.random.split(key, -(-num_inputs // _INPUTS_PER_CALL))
    (error, total), _ = jax.jit(lambda keys: jax.lax.scan(sums, jnp.zeros(2), keys))(keys)
    return float(jnp.sqrt(error / total))
