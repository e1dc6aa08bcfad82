"""The distribution of the inputs of a linearized network, given its outputs."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from nn_uq_dist.basics import _checks
from nn_uq_dist.basics._pytree import register_frozen
from nn_uq_dist.basics._row_algebra import gram
from nn_uq_dist.basics._summary_line import summary_line
from nn_uq_dist.inputs import AbstractInputLaw
from nn_uq_dist.inputs._output_noise import output_noise
from nn_uq_dist.linearization import _inputs_given_outputs as given


@register_frozen
@dataclasses.dataclass(frozen=True, eq=False)
class LinearizedInputPosterior:
    r"""Distribution of the inputs given the outputs of a linear model, with its evidence.

    Made by `nn_uq_dist.Linearization.input_posterior`. With the input :math:`\mu + A U + B N` and
    outputs :math:`y = m + W U + G N + e` the normal variables have, given the uniform ones, a
    normal distribution in closed form; that of the uniform ones comes from expectation propagation
    (moments) and hit-and-run (draws).

    All inputs are in it, in their units; known ones have the variance 0. Of a transformed input
    (`AbstractInputLaw.is_transformed`) these are the numbers that are transformed: `unravel` turns
    draws into what the network takes.

    Attributes
    ----------
    input : AbstractInputLaw
        Law of the input before anything was observed.
    jacobian : Array, shape batch_shape + (N_y, N_x)
        Of the linear model.
    deviation : Array, shape batch_shape + (N_y,)
        Observed outputs minus their means.
    noise : Array, shape batch_shape + (N_y, q)
        A root of the covariance of the noise; ``q`` is 0 without noise.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, nn_uq_dist as nuq
    >>> law = nuq.InputLaw([0.0, 0.0], half_width=[1.0, 0.0], scale=[0.0, 1.0])
    >>> lin = nuq.Linearization([0.0], [[1.0, 1.0]], law)  # the sum of a uniform and a normal
    >>> found = lin.input_posterior(jnp.array([2.5]), noise_scale=0.1)
    >>> print(found.mean.round(2), (found.variance**0.5).round(2))
    [0.56 1.92] [0.37 0.38]
    >>> found.sample(jax.random.key(0), (100,)).shape
    (100, 2)
    """

    input: AbstractInputLaw
    jacobian: Array
    deviation: Array
    noise: Array

    def __repr__(self) -> str:
        return summary_line(self, "input", "batch_shape")

    @property
    def _seen(self) -> given.Observation:
        return given.Observation(self.input, self.jacobian, self.deviation, self.noise)

    @property
    def _moments(self) -> given.InputMoments:
        kept: given.InputMoments | None = self.__dict__.get("_kept_moments")
        found = given.moments(self._seen) if kept is None else kept
        # Mean, variance and covariance take one computation. What is traced must not outlive it.
        if _checks.is_concrete(found):
            self.__dict__["_kept_moments"] = found
        return found

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Shape of the batch: leading axes of the observed outputs and of the model."""
        return self.deviation.shape[:-1]

    @property
    def mean(self) -> Array:
        """Mean, shape ``batch_shape + (N_x,)``; NaN where expectation propagation fails."""
        return self._moments.mean

    @property
    def variance(self) -> Array:
        """Variances, shape ``batch_shape + (N_x,)``."""
        return jnp.sum(self._moments.root**2, axis=-1)

    @property
    def covariance_matrix(self) -> Array:
        """Covariance, shape ``batch_shape + (N_x, N_x)``."""
        return gram(self._moments.root)

    @property
    def log_evidence(self) -> Array:
        """Log density of the observed outputs, shape ``batch_shape``: that of `joint`."""
        return given.log_evidence(self._seen)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw inputs, shape ``sample_shape + batch_shape + (N_x,)``.

        Draws are independent. Those of normal variables are exact; those of uniform ones come from
        chains of 32 hit-and-run steps for each of them, of which the standard deviation was off by
        at most 3%.

        Parameters
        ----------
        key
            A JAX random key.
        sample_shape
            Shape of independent draws.
        """
        return given.draws(self._seen, _checks.as_key("key", key), tuple(sample_shape))

    def unravel(self, values: ArrayLike) -> Any:
        """Return inputs as the network takes them: in structure, shape and units.

        Parameters
        ----------
        values
            Such as draws or the mean, shape ``(..., *batch_shape, N_x)``.

        Examples
        --------
        >>> import jax, jax.numpy as jnp, numpyro.distributions as dist, nn_uq_dist as nuq
        >>> f = {"rate": dist.LogNormal(0.0, 0.5), "time": dist.Uniform(1.0, 2.0)}
        >>> network = lambda x: jnp.atleast_1d(x["rate"] * x["time"])
        >>> found = nuq.linearize(network, f).input_posterior(jnp.array([3.0]), noise_scale=0.1)
        >>> draws = found.unravel(found.sample(jax.random.key(0), (1000,)))
        >>> draws["rate"].shape, bool((draws["rate"] > 0).all())
        ((1000,), True)
        """
        values = jnp.asarray(_checks.as_numeric("values", values))
        if values.shape[-1:] != (self.input.num_inputs,):
            raise ValueError(
                f"values must have shape (..., N_x) with N_x = {self.input.num_inputs}, got shape "
                f"{values.shape}; pass an array with an entry per input, such as draws"
            )
        return self.input.network_input(values)


def linearized_input_posterior(
    model: Any,
    y: ArrayLike,
    noise_scale: ArrayLike | None,
    noise_covariance: ArrayLike | None,
) -> LinearizedInputPosterior:
    """Check the arguments: see `nn_uq_dist.Linearization.input_posterior`."""
    y = _checks.as_numeric("y", y)
    if np.shape(y)[-1:] != (model.num_outputs,):
        raise ValueError(
            f"y must have shape (..., N_y) with N_y = {model.num_outputs}, got shape "
            f"{np.shape(y)}; pass the observed value of each output"
        )
    batch_shape = _checks.broadcast_shapes(
        "the leading axes of y must broadcast against the batch shape",
        y=np.shape(y)[:-1],
        batch_shape=model.batch_shape,
    )
    _checks.require_finite("y", y, "leave the output out of the network where it is missing")
    size = model.num_outputs
    noise = output_noise(noise_scale, noise_covariance, (*batch_shape, size), model.mean)
    is_noisy = noise is not None and not (
        _checks.is_concrete(noise.scale) and np.any(np.asarray(noise.scale) == 0)
    )
    count = sum(model.input.num_standard_variables)
    if not is_noisy and count < size:
        raise ValueError(
            f"noise must be positive where outputs outnumber the random variables of the input, "
            f"got {size} outputs of {count} variables: no input reproduces them exactly; pass "
            f"noise_scale > 0"
        )
    root = jnp.zeros((size, 0), model.mean.dtype) if noise is None else noise.root
    batch_shape = np.broadcast_shapes(batch_shape, root.shape[:-2])
    return LinearizedInputPosterior(
        model.input.expand(batch_shape),
        jnp.broadcast_to(model.jacobian, (*batch_shape, *model.jacobian.shape[-2:])),
        jnp.broadcast_to(jnp.asarray(y, model.mean.dtype) - model.mean, (*batch_shape, size)),
        jnp.broadcast_to(root, (*batch_shape, *root.shape[-2:])),
    )
