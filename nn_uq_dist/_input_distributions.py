"""Parameters of the NumPyro distributions that an input law can be made from."""

from typing import Any

import jax.numpy as jnp

from nn_uq_dist import _checks

_ACCEPTED = (
    "Uniform, Normal, MultivariateNormal or LowRankMultivariateNormal of NumPyro, "
    "with .expand(...) and .to_event(1), or an InputLaw"
)


def distribution_parameters(distribution: object) -> dict[str, Any]:
    """Return the arguments of `InputLaw` for a NumPyro distribution over vectors."""
    import numpyro.distributions as dist

    if not isinstance(distribution, dist.Distribution):
        raise TypeError(
            f"f must be a distribution over the inputs, got {type(distribution).__name__}; "
            f"pass a {_ACCEPTED}"
        )
    base = distribution
    while isinstance(base, dist.Independent | dist.ExpandedDistribution):
        base = base.base_dist
    # Subclasses may change the law, hence the exact types.
    scalar_families = (dist.Uniform, dist.Normal)
    vector_families = (dist.MultivariateNormal, dist.LowRankMultivariateNormal)
    if type(base) not in scalar_families + vector_families:
        raise TypeError(
            f"f must be of a supported family, got {type(base).__name__}; pass a {_ACCEPTED}"
        )
    if distribution.event_dim != 1:
        expand = ".expand([N_x])" if distribution.batch_shape == () else ""
        remedy = f"call {expand}.to_event(1)" if distribution.event_dim == 0 else "use fewer axes"
        raise ValueError(
            f"f must be a distribution over vectors, with event_shape (N_x,), got batch_shape "
            f"{distribution.batch_shape} and event_shape {distribution.event_shape}; {remedy}"
        )
    # Expansion makes independent copies of the coordinates, so its effect on the parameters is
    # broadcasting, whatever the order of expand and to_event.
    shape = distribution.batch_shape + distribution.event_shape
    if isinstance(base, dist.Uniform):
        loc, half_width = (base.low + base.high) / 2, (base.high - base.low) / 2
        return {"loc": jnp.broadcast_to(loc, shape), "half_width": half_width}
    if isinstance(base, dist.Normal):
        scale = jnp.broadcast_to(base.scale, shape)[..., None, :]
        return {
            "loc": jnp.broadcast_to(base.loc, shape),
            "scale_tril": jnp.eye(shape[-1], dtype=_checks.float_dtype(scale)) * scale,
        }
    if isinstance(base, dist.MultivariateNormal):
        scale_tril = base.scale_tril
    else:
        scale_tril = jnp.linalg.cholesky(base.covariance_matrix)
    return {"loc": jnp.broadcast_to(base.loc, shape), "scale_tril": scale_tril}
