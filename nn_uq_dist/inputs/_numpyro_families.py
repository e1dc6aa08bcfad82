"""The families of NumPyro that are exact inputs: uniform and Gaussian ones, and known values.

A Gaussian family is its mean and one argument of `Input.normal`: scales, a factor or a precision.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array, lax
from jax.typing import ArrayLike

from nn_uq_dist.inputs._from_distribution import register_input_family
from nn_uq_dist.inputs._input import Input

type Shape = tuple[int, ...]


def _register_gaussian(
    family: type[dist.Distribution], name: str, value: Callable[[Any, int], Any], axes: int = 0
) -> None:
    """Register a family by its mean, with so many event axes, and an argument of `Input.normal`."""

    def as_input(base: Any, shape: Shape) -> Input:
        mean = getattr(base, "loc", None)
        mean = _flat(base.mean if mean is None else mean, axes, shape)
        return Input.normal(mean, **{name: value(base, shape[-1])})

    register_input_family(family)(as_input)


def _flat(value: ArrayLike, axes: int, shape: Shape) -> Array:
    """A mean with its event axes joined to one, broadcast."""
    array: Any = jnp.asarray(value)
    if axes:
        array = array.reshape(*array.shape[: array.ndim - axes], -1)
    return jnp.broadcast_to(array, shape)


@register_input_family(dist.Uniform)
def _uniform(base: dist.Uniform, shape: Shape) -> Input:
    return Input.box(_flat((base.low + base.high) / 2, 0, shape), (base.high - base.low) / 2)


@register_input_family(dist.Delta)
def _delta(base: dist.Delta, shape: Shape) -> Input:
    return Input.known(_flat(base.v, base.event_dim, shape))


_register_gaussian(dist.Normal, "scale", lambda base, _: base.scale)
_register_gaussian(dist.MultivariateNormal, "scale_tril", lambda base, _: base.scale_tril)


@register_input_family(dist.LowRankMultivariateNormal)
def _low_rank(base: dist.LowRankMultivariateNormal, shape: Shape) -> Input:
    own = Input.normal(_flat(base.loc, 0, shape), jnp.sqrt(base.cov_diag))
    return own + Input.normal(jnp.zeros(shape, own.dtype), factor=base.cov_factor)


@register_input_family(dist.GaussianRandomWalk)
def _random_walk(base: dist.GaussianRandomWalk, shape: Shape) -> Input:
    scale = jnp.asarray(base.scale, jnp.result_type(float, base.scale))[..., None, None]
    steps = jnp.tri(shape[-1], dtype=scale.dtype)
    return Input.normal(jnp.zeros(shape, scale.dtype), factor=scale * steps)


def _of_states(base: dist.GaussianStateSpace, size: int) -> Array:
    def carried(columns: Array, _: None) -> tuple[Array, Array]:
        return base.transition_matrix @ columns, columns

    # What the noise of a step makes of the state so many steps later.
    count = base.num_steps
    _, later = lax.scan(carried, base.scale_tril, length=count)
    lag = jnp.arange(count)[:, None] - jnp.arange(count)
    blocks = jnp.where((lag >= 0)[(..., *(None,) * (later.ndim - 1))], later[lag], 0)
    blocks = jnp.moveaxis(blocks, (0, 1), (-4, -2))  # time, state, time of the noise, noise
    return blocks.reshape(*blocks.shape[:-4], size, size)


def _of_circle(base: dist.CirculantNormal, size: int) -> Array:
    # The symmetric root of a circulant matrix is circulant, too, and has all its digits where the
    # covariance is nearly singular.
    row = jnp.fft.irfft(jnp.sqrt(base.covariance_rfft), n=size)
    return row[..., (jnp.arange(size)[:, None] - jnp.arange(size)) % size]


def _of_matrix(base: dist.MatrixNormal, size: int) -> Array:
    rows, columns = base.scale_tril_row, base.scale_tril_column
    product = rows[..., :, None, :, None] * columns[..., None, :, None, :]
    return product.reshape(*product.shape[:-4], size, size)


_register_gaussian(dist.GaussianStateSpace, "factor", _of_states, 2)
_register_gaussian(dist.CAR, "precision_matrix", lambda base, _: base.precision_matrix)
_register_gaussian(dist.CirculantNormal, "factor", _of_circle)
_register_gaussian(dist.MatrixNormal, "factor", _of_matrix, 2)
