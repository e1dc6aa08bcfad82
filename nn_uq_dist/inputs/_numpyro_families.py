"""The families of NumPyro that are boxes or Gaussian: what `InputLaw` holds."""

import jax.numpy as jnp
import numpyro.distributions as dist

from nn_uq_dist.inputs._families import register_input_family
from nn_uq_dist.inputs._input_law import InputLaw


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
def _low_rank(base: dist.LowRankMultivariateNormal, shape: tuple[int, ...]) -> InputLaw:
    scale_tril = jnp.linalg.cholesky(base.covariance_matrix)
    return InputLaw(jnp.broadcast_to(base.loc, shape), scale_tril=scale_tril)
