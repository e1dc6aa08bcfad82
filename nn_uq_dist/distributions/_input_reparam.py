"""Latent outputs sampled through the uniform and normal variables that they are sums of."""

from typing import Any

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax import Array
from numpyro.infer.reparam import Reparam

from nn_uq_dist.basics.row_algebra import matvec
from nn_uq_dist.distributions._linearized_joint import LinearizedJoint
from nn_uq_dist.distributions._linearized_marginal import LinearizedMarginal


class InputReparam(Reparam):
    r"""Sample the variables of a linear distribution in place of its outputs (non-centered).

    For a latent `LinearizedMarginal` or `LinearizedJoint` :math:`y = \mathrm{loc} + W u + B n` the
    sites are :math:`u`, uniform on (-1, 1), and :math:`n`, standard normal; the outputs follow. No
    site has bounds that move with parameters, which autoguides keep from the first trace, and no
    density of a sum is evaluated.

    Raises
    ------
    ValueError
        If the site is observed: then the density of the outputs is needed.
    TypeError
        If the site has another distribution.

    Examples
    --------
    >>> import jax
    >>> import jax.numpy as jnp
    >>> import numpyro
    >>> import numpyro.distributions as dist
    >>> import nn_uq_dist as nuq
    >>> def model():
    ...     width = numpyro.sample("width", dist.HalfNormal(1.0))
    ...     y = numpyro.sample("y", nuq.LinearizedMarginal(0.0, width * jnp.ones(3)))
    ...     numpyro.sample("seen", dist.Normal(y, 0.1), obs=1.0)
    >>> through_inputs = numpyro.handlers.reparam(model, {"y": nuq.distributions.InputReparam()})
    >>> trace = numpyro.handlers.trace(numpyro.handlers.seed(through_inputs, 0)).get_trace()
    >>> list(trace)
    ['width', 'y_uniform', 'y', 'seen']
    """

    def __call__(self, name: str, fn: Any, obs: Any) -> tuple[None, Array]:
        """Replace the site by those of its variables; NumPyro calls it."""
        if obs is not None:
            raise ValueError(
                f"InputReparam needs a latent site, but {name!r} is observed; leave it out"
            )
        own, shape, event_dim = self._unwrap(fn)
        if isinstance(own, LinearizedMarginal):
            weights, normal = own.weights, own.normal_scale
            columns = None if normal is None else jnp.asarray(normal)[..., None]
        elif isinstance(own, LinearizedJoint):
            weights, columns = own.weights, own.normal_weights
        else:
            raise TypeError(
                f"InputReparam needs a LinearizedMarginal or LinearizedJoint, but {name!r} is a "
                f"{type(own).__name__}; of copulas take TransformReparam"
            )
        num_event_axes = event_dim - own.event_dim  # of `to_event`
        value = jnp.asarray(own.loc)
        for kind, part, base in (
            ("uniform", weights, dist.Uniform(-1.0, 1.0)),
            ("normal", columns, dist.Normal(0.0, 1.0)),
        ):
            if part is None:
                continue
            variables = base.expand((*shape, jnp.shape(part)[-1])).to_event(1 + num_event_axes)
            drawn = numpyro.sample(f"{name}_{kind}", variables)
            rows = jnp.asarray(part)
            value = value + (matvec(rows, drawn) if own.event_dim else jnp.sum(rows * drawn, -1))
        return None, value
