"""An input law whose vector is mapped to what the network takes."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from nn_uq_dist.basics._pytree import register_frozen
from nn_uq_dist.inputs._abstract_input_law import AbstractInputLaw
from nn_uq_dist.inputs._input_maps import InputMap


@register_frozen
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class MappedInput(AbstractInputLaw):
    """Law of a random input of any shape or structure: a law of a vector, and a map from it.

    Made by `as_input_law` from distributions over arrays, from dicts and other structures of
    distributions, and from transformed ones. Means, columns and draws are those of the vector,
    whose law is `base`. `network_input` maps the vector to what the network is called with. If the
    map is nonlinear, as for a log-normal input, `is_transformed` is true. Then the map followed by
    the network is linearized, as a function of normal scores or of the base of the transform, and
    the law is no longer exact for a linear network.

    Attributes
    ----------
    base : AbstractInputLaw
        Law of the vector.
    input_map
        The map.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import numpyro.distributions as dist
    >>> import nn_uq_dist as nuq
    >>> f = {"image": dist.Normal(jnp.zeros((2, 2)), 0.1).to_event(2), "gain": jnp.array(3.0)}
    >>> law = nuq.inputs.as_input_law(f)
    >>> law
    MappedInput(InputLaw to 1 random parts, 1 known, num_inputs=4, batch_shape=(), dtype=float32)
    >>> found = law.network_input(law.mean)
    >>> found["image"].shape, float(found["gain"]), law.is_transformed
    ((2, 2), 3.0, False)
    """

    base: AbstractInputLaw
    input_map: InputMap

    @property
    def loc(self) -> Array:  # type: ignore[override]  # a field in other laws
        """Mean of the vector, shape ``batch_shape + (N_x,)``."""
        return self.base.loc

    def network_input(self, x: Array) -> Any:
        """Return what the network is called with: `x`, mapped.

        Parameters and result are those of `AbstractInputLaw.network_input`.

        Raises
        ------
        ValueError
            If the last axis is not ``N_x``, or the map differs over the batch and `x` has no batch
            axes.
        """
        x = jnp.asarray(x)
        batch_shape = self.batch_shape
        own = batch_shape if self.varies_over_batch else ()
        if x.shape[-1:] != (self.num_inputs,) or x.shape[x.ndim - 1 - len(own) : -1] != own:
            raise ValueError(
                f"x must have shape (..., {', '.join(map(str, (*own, self.num_inputs)))}), got "
                f"shape {x.shape}; pass draws of sample, or the mean"
            )

        def at_one(of_input: InputMap, one: Array) -> Any:
            return of_input(one)

        for _ in own:
            at_one = jax.vmap(at_one)
        for _ in range(x.ndim - 1 - len(own)):
            at_one = jax.vmap(at_one, in_axes=(None, 0))
        return at_one(self.input_map, x)

    @property
    def varies_over_batch(self) -> bool:
        """Whether the map has parameters for each element of the batch."""
        return bool(self.batch_shape) and bool(jax.tree.leaves(self.input_map))

    @property
    def is_vector(self) -> bool:
        """False: the network takes what the map makes."""
        return False

    @property
    def is_transformed(self) -> bool:
        """Whether the map is nonlinear, so that not even the law of a linear network is exact."""
        return self.input_map.is_transformed

    def columns(self, jacobian: Array) -> tuple[Array | None, Array | None]:
        """Those of the base."""
        return self.base.columns(jacobian)

    @property
    def variance(self) -> Array:
        """Variances of the vector."""
        return self.base.variance

    @property
    def covariance(self) -> Array:
        """Covariance matrix of the vector."""
        return self.base.covariance

    @property
    def half_range(self) -> Array | None:
        """That of the base."""
        return self.base.half_range

    @property
    def normal_scale(self) -> Array | None:
        """That of the base."""
        return self.base.normal_scale

    @property
    def has_independent_entries(self) -> bool:
        """Whether the entries of the vector are independent."""
        return self.base.has_independent_entries

    def sample_deviation(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draw the vector less its mean."""
        return self.base.sample_deviation(key, sample_shape)

    @property
    def num_standard_variables(self) -> tuple[int, int]:
        """That of the base."""
        return self.base.num_standard_variables

    def deviation_at(self, uniform: Array, normal: Array) -> Array:
        """That of the base."""
        return self.base.deviation_at(uniform, normal)

    @property
    def _description(self) -> str:
        bent = "transformed " if self.is_transformed else ""
        return f"{bent}{type(self.base).__name__} to {self.input_map.words}"
