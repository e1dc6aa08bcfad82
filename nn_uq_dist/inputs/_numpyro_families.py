"""The families of NumPyro whose laws are exact: uniform and Gaussian ones, and known values."""

import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array, lax
from jax.scipy.linalg import solve_triangular
from jax.typing import ArrayLike

from nn_uq_dist.inputs._distribution_law import register_input_family
from nn_uq_dist.inputs._input_law import GaussianInput, InputLaw, KnownInput
from nn_uq_dist.inputs._input_sum import InputSum


@register_input_family(dist.Uniform)
def _uniform(base: dist.Uniform, shape: tuple[int, ...]) -> InputLaw:
    loc, half_width = (base.low + base.high) / 2, (base.high - base.low) / 2
    return InputLaw(jnp.broadcast_to(loc, shape), half_width)


@register_input_family(dist.Normal)
def _normal(base: dist.Normal, shape: tuple[int, ...]) -> InputLaw:
    return InputLaw(jnp.broadcast_to(base.loc, shape), scale=base.scale)


@register_input_family(dist.MultivariateNormal)
def _multivariate_normal(base: dist.MultivariateNormal, shape: tuple[int, ...]) -> InputLaw:
    return InputLaw(jnp.broadcast_to(base.loc, shape), scale_tril=base.scale_tril)


@register_input_family(dist.LowRankMultivariateNormal)
def _low_rank(base: dist.LowRankMultivariateNormal, shape: tuple[int, ...]) -> InputSum:
    own = InputLaw(jnp.broadcast_to(base.loc, shape), scale=jnp.sqrt(base.cov_diag))
    return InputSum(own, GaussianInput(jnp.zeros(shape, own.dtype), base.cov_factor))


@register_input_family(dist.GaussianRandomWalk)
def _random_walk(base: dist.GaussianRandomWalk, shape: tuple[int, ...]) -> GaussianInput:
    scale = jnp.asarray(base.scale, jnp.result_type(float, base.scale))[..., None, None]
    return GaussianInput(
        jnp.zeros(shape, scale.dtype), scale * jnp.tri(shape[-1], dtype=scale.dtype)
    )


@register_input_family(dist.GaussianStateSpace)
def _state_space(base: dist.GaussianStateSpace, shape: tuple[int, ...]) -> GaussianInput:
    count, size = base.num_steps, base.scale_tril.shape[-1]

    def carried(columns: Array, _: None) -> tuple[Array, Array]:
        return base.transition_matrix @ columns, columns

    # What the noise of a step makes of the state so many steps later.
    _, later = lax.scan(carried, base.scale_tril, length=count)
    lag = jnp.arange(count)[:, None] - jnp.arange(count)
    blocks = jnp.where((lag >= 0)[(..., *(None,) * (later.ndim - 1))], later[lag], 0)
    blocks = jnp.moveaxis(blocks, (0, 1), (-4, -2))  # time, state, time of the noise, noise
    factor = blocks.reshape(*blocks.shape[:-4], count * size, count * size)
    return GaussianInput(_flat(base.mean, 2, shape), factor)


@register_input_family(dist.CAR)
def _autoregressive(base: dist.CAR, shape: tuple[int, ...]) -> GaussianInput:
    root = jnp.linalg.cholesky(base.precision_matrix)
    identity = jnp.broadcast_to(jnp.eye(shape[-1], dtype=root.dtype), root.shape)
    factor = solve_triangular(root, identity, lower=True, trans=1)
    return GaussianInput(jnp.broadcast_to(base.loc, shape), factor)


@register_input_family(dist.CirculantNormal)
def _circulant(base: dist.CirculantNormal, shape: tuple[int, ...]) -> GaussianInput:
    size = shape[-1]
    # The symmetric root of a circulant matrix is circulant, too.
    row = jnp.fft.irfft(jnp.sqrt(base.covariance_rfft), n=size)
    lag = (jnp.arange(size)[:, None] - jnp.arange(size)) % size
    return GaussianInput(jnp.broadcast_to(base.loc, shape), row[..., lag])


@register_input_family(dist.MatrixNormal)
def _matrix_normal(base: dist.MatrixNormal, shape: tuple[int, ...]) -> GaussianInput:
    rows, columns = base.scale_tril_row, base.scale_tril_column
    product = rows[..., :, None, :, None] * columns[..., None, :, None, :]
    factor = product.reshape(*product.shape[:-4], shape[-1], shape[-1])
    return GaussianInput(_flat(base.loc, 2, shape), factor)


@register_input_family(dist.Delta)
def _delta(base: dist.Delta, shape: tuple[int, ...]) -> KnownInput:
    return KnownInput(_flat(base.v, base.event_dim, shape))


def _flat(value: ArrayLike, event_dim: int, shape: tuple[int, ...]) -> Array:
    """A mean with its event axes joined to one, broadcast."""
    value = jnp.asarray(value)
    if event_dim:
        value = value.reshape(*value.shape[: value.ndim - event_dim], -1)
    return jnp.broadcast_to(value, shape)
