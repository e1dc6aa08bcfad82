"""What distributions of outputs have in common: order of fields, checks, batches.

All of it follows from the arguments of the constructor, which every distribution keeps.
"""

import abc
import inspect
from collections.abc import Callable, Sequence
from functools import cache, wraps
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array, lax
from jax.typing import ArrayLike
from numpyro.distributions import constraints
from numpyro.distributions.batch_util import promote_batch_shape, vmap_over
from numpyro.distributions.util import promote_shapes

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.checks import is_concrete
from nn_uq_dist.basics.concrete import evaluated_now, with_nan_gradients
from nn_uq_dist.basics.pytree import in_order
from nn_uq_dist.basics.summary_line import summary_line
from nn_uq_dist.distributions._axes import (
    IndependentOutputs,
    constructor_arguments,
    drop_lost_axes,
    made,
    rebuilt_entries,
    shape_of_parameters,
)


def validate_sample(log_prob: Callable[..., Array]) -> Callable[..., Array]:
    """Decorate a ``log_prob`` as NumPyro's decorator of this name does.

    With validation on, values outside the support raise a warning and have the density zero. Log
    densities that are NaN have gradients that are NaN.
    """

    @wraps(log_prob)
    def validated(self: dist.Distribution, *args: Any, **kwargs: Any) -> Array:
        logs = log_prob(self, *args, **kwargs)
        is_known = is_concrete(logs)
        if not is_known:
            logs = with_nan_gradients(logs)
        # Outside of the support densities are zero: the support, for which each comparison would be
        # a program, is asked only where one may be. NumPyro's cannot be asked about no values.
        if not self._validate_args or not logs.size:
            return logs
        if is_known and np.isfinite(np.asarray(logs)).all():
            return logs
        # Derivatives do not reach a comparison. Without their tracers it needs no program: what is
        # no JAX array is compared in NumPy, with all digits of a Python number.
        with evaluated_now():
            value = jnp.asarray(kwargs["value"] if "value" in kwargs else args[0])
            fixed, value = jax.tree.map(lax.stop_gradient, (self, value))
            mask = fixed.support(np.asarray(value) if is_concrete(fixed, value) else value)
        if is_concrete(mask):
            if np.asarray(mask).all():
                return logs
            # In the words of NumPyro, which would name a line of ours.
            checks.warn(
                "Out-of-support values provided to log prob method. The value argument should be "
                "within the support.",
                UserWarning,
            )
        # A parameter that is NaN, which is in no support, is no reason for a density of zero.
        return jnp.where(mask | jnp.isnan(logs), logs, -jnp.inf)

    return validated


class AbstractDistribution(abc.ABCMeta, type(dist.Distribution)):  # type: ignore[misc]
    """Metaclass of the contracts: NumPyro's own, with the checks of `abc.ABC`."""


class Distribution(dist.Distribution, metaclass=AbstractDistribution):
    """What distributions of outputs and joint distributions have in common."""

    _instead_of_cdf: ClassVar[str] = "use its marginals, or draws of sample"

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in cls.__dict__:
            _name_axes(cls)

    @classmethod
    @cache
    def gather_pytree_data_fields(cls) -> tuple[str, ...]:
        """Names of the arrays, sorted: in NumPyro's own set their order differs from run to run.

        Properties are not stored.
        """
        names = sorted(super().gather_pytree_data_fields())
        return tuple(name for name in names if not isinstance(getattr(cls, name, None), property))

    @classmethod
    @cache
    def gather_pytree_aux_fields(cls) -> tuple[str, ...]:
        """Names of what is static, sorted."""
        return tuple(sorted(super().gather_pytree_aux_fields()))

    def tree_flatten(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Arrays and static values, those of NumPyro distributions within in a fixed order, too.

        The batch shape is that of the arrays, and no static value: `vmap` takes axes off and adds
        some, and values of what kept its batch axes would have these twice.
        """
        children, static = super().tree_flatten()
        follows = shape_of_parameters(self) in {None, self.batch_shape}
        # NumPyro's `vmap_over` puts numbers of axes, or nothing, in place of arrays.
        if follows or not any(hasattr(leaf, "dtype") for leaf in jax.tree.leaves(children)):
            names = self.gather_pytree_aux_fields()
            fixed = zip(names, static, strict=True)
            static = tuple(None if name == "_batch_shape" else value for name, value in fixed)
        return tuple(map(in_order, children)), static

    @classmethod
    def tree_unflatten(cls, aux_data: tuple[Any, ...], params: tuple[Any, ...]) -> Self:
        """Parts of NumPyro lose those batch axes, too, that their parameters have lost."""
        distribution = super().tree_unflatten(aux_data, params)
        for inner in params:
            if isinstance(inner, dist.Distribution) and not isinstance(inner, Distribution):
                drop_lost_axes(inner)
        if distribution._batch_shape is None:  # noqa: SLF001
            distribution._batch_shape = shape_of_parameters(distribution) or ()  # noqa: SLF001
        return distribution

    def get_args(self) -> dict[str, Any]:
        """Parameters by name, without optional ones that are not there."""
        return {name: value for name, value in super().get_args().items() if value is not None}

    def __getitem__(self, index: Any) -> Self:
        """Return the distributions at some entries of the batch; see `batch_entries`."""
        entries: Any = rebuilt_entries(self, index)
        return pass_validation(self, entries)

    def __repr__(self) -> str:
        parameters = (name for name in self.arg_constraints if name in self.__dict__)
        return summary_line(self, "batch_shape", "event_shape", *parameters)

    @property
    def _dtype(self) -> jnp.dtype:
        """Floating-point type of the results, at least single precision."""
        stored = [self.__dict__.get(name) for name in self.gather_pytree_data_fields()]
        return checks.at_least_single(*jax.tree.leaves(stored))

    def _set_parameters(self, batch_shape: tuple[int, ...], **parameters: Any) -> None:
        """Keep parameters with as many axes as the batch: those of `vmap` come in front of all."""
        for name, value in parameters.items():
            if value is None:
                setattr(self, name, None)
                continue
            rank = jnp.ndim(value) - self.arg_constraints[name].event_dim
            event_shape = jnp.shape(value)[rank:]
            (placed,) = promote_shapes(value, shape=(*batch_shape, *event_shape))
            setattr(self, name, placed)

    @property
    def has_rsample(self) -> bool:
        """Whether draws have derivatives: those of what it is made from have, too."""
        within = (value for value in self.__dict__.values() if isinstance(value, dist.Distribution))
        return bool(super().has_rsample) and all(inner.has_rsample for inner in within)

    def rsample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Draws with derivatives: those of ``sample``, where they have them."""
        if not self.has_rsample:
            raise self._lacks("draws with derivatives", "take draws from sample")
        return self.sample(key, sample_shape)

    def cdf(self, value: ArrayLike) -> Array:  # noqa: ARG002
        """Only distributions of single outputs have it."""
        raise self._lacks("cdf", self._instead_of_cdf)

    def icdf(self, q: ArrayLike) -> Array:  # noqa: ARG002
        """Only distributions of single outputs have it."""
        raise self._lacks("icdf", self._instead_of_cdf)

    def entropy(self) -> Array:
        """Some distributions have it."""
        raise self._lacks("entropy", "estimate it as -log_prob(draws).mean(axis=0)")

    def _lacks(self, what: str, remedy: str) -> NotImplementedError:
        return NotImplementedError(f"{type(self).__name__} has no {what}; {remedy}")

    def _fitting_outputs(self, value: ArrayLike) -> Array:
        """A value that broadcasts against ``batch_shape + event_shape``, or an error."""
        remedy, shape = "pass one entry per output; for some use marginalize(indices)", self.shape()
        value = checks.in_type(value, self._dtype)
        return jnp.asarray(checks.as_vectors("value", value, "N_y", shape[-1], remedy, shape[:-1]))

    def validate_args(self, strict: bool = True) -> None:
        """As NumPyro's, in NumPy where the parameters are known.

        NumPyro asks the constraints with JAX arrays, for which each operation of each constraint
        is compiled by itself: dozens of programs before the first number.
        """
        most = float(jnp.finfo(self._dtype).max)
        for name, value in self.get_args().items():
            constraint = self.arg_constraints[name]
            if not is_concrete(value):
                if strict:
                    # Raises: values are not known under `jit`.
                    super().validate_args(strict)
                continue
            if not np.all(np.abs(np.asarray(value, np.float64)) <= most):  # NaN, too
                checks.require_finite(name, value)
                checks.require_in_range(name, value, self._dtype)
            # NumPyro's constraint of vectors cannot be asked about no values.
            if np.size(value) and not np.all(constraint(np.asarray(value))):
                raise ValueError(
                    f"{name} must fulfill the constraint {constraint}, got {value}; see "
                    f"arg_constraints of {type(self).__name__}"
                )

    def to_event(self, reinterpreted_batch_ndims: int | None = None) -> dist.Distribution:
        """The last batch axes as event axes; all of them by default.

        As NumPyro's, but the bounds of a latent site may depend on other sites.
        """
        axes = reinterpreted_batch_ndims
        axes = len(self.batch_shape) if axes is None else axes
        return IndependentOutputs(self, axes) if axes else self

    def expand(self, batch_shape: Sequence[int]) -> dist.Distribution:
        """The same distribution with a larger batch shape, and with all its methods.

        NumPyro's `ExpandedDistribution` would lose them in a plate, ``cdf`` and ``icdf`` as well.
        """
        shape = self._expanded_shape(batch_shape)
        if shape == self.batch_shape:
            return self
        # One argument that has all batch axes is enough, if the constructor broadcasts them.
        name = next(iter(constructor_arguments(type(self))), "")
        argument = self.__dict__.get(name)
        if isinstance(argument, dist.Distribution):
            rest = argument.batch_shape[len(self.batch_shape) :]
            wide: Any = argument.expand((*shape, *rest))
        elif argument is not None and name in self.arg_constraints:
            # Known numbers stay known under `jit`, where values are checked against the support.
            xp = np if isinstance(argument, np.ndarray) else jnp
            event_dim = self.arg_constraints[name].event_dim
            rest = jnp.shape(argument)[jnp.ndim(argument) - event_dim :]
            wide = xp.broadcast_to(xp.asarray(argument), (*shape, *rest))
        else:
            return super().expand(shape)
        expanded = rebuilt(self, **{name: wide})
        return expanded if expanded.batch_shape == shape else super().expand(shape)

    def _expanded_shape(self, batch_shape: Sequence[int]) -> tuple[int, ...]:
        """The wider batch shape, or an error."""
        shape = tuple(batch_shape)
        try:
            np.broadcast_to(np.empty(self.batch_shape, bool), shape)
        except ValueError as error:
            raise ValueError(
                f"Cannot broadcast distribution of shape {self.batch_shape} to shape {shape}; add "
                f"axes on the left or enlarge axes of size 1"
            ) from error
        return shape


def rebuilt[D: Distribution](distribution: D, **changed: Any) -> D:
    """The same kind of distribution with some other, valid arguments of its constructor."""
    arguments = {
        name: distribution.__dict__[name] for name in constructor_arguments(type(distribution))
    } | changed
    return pass_validation(distribution, made(type(distribution), arguments))


def _name_axes(kind: type[Distribution]) -> None:
    """Tell NumPyro which arguments ``vmap`` may have axes in: it asks the signature."""
    names = constructor_arguments(kind)

    def axes_of(d: Distribution, **axes: Any) -> Distribution:
        default = vmap_over.dispatch(dist.Distribution)
        return default(d, **{name: axes.get(name) for name in names})

    first = inspect.Parameter("d", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    others = (
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in names
    )
    axes_of.__signature__ = inspect.Signature([first, *others])  # type: ignore[attr-defined]
    vmap_over.register(kind, axes_of)


@promote_batch_shape.register
def _promoted(distribution: Distribution) -> Distribution:
    """Make batch axes of those that ``vmap`` put in front, in distributions within as well."""
    names, kept = constructor_arguments(type(distribution)), distribution.__dict__
    if not all(name in kept for name in names):
        return distribution
    within = [name for name in names if isinstance(kept[name], dist.Distribution)]
    return rebuilt(distribution, **{name: promote_batch_shape(kept[name]) for name in within})


def safe_values(support: constraints.Constraint, value: Array) -> tuple[Array, Array]:
    """Where values lie within a support, and values that do, with those inside as they are.

    Both branches of a `where` are differentiated: what lies outside must not reach the functions of
    a distribution.
    """
    inside = support(value)
    # NumPyro's constraints ask for values that have the shape of the bounds.
    wide = jnp.broadcast_to(value, jnp.broadcast_shapes(value.shape, jnp.shape(inside)))
    return inside, jnp.where(inside, wide, support.feasible_like(wide))


def pass_validation[D: dist.Distribution](distribution: Distribution, other: D) -> D:
    """Give a distribution made from a valid one its `validate_args`.

    Only what was asked for: the class's default may change.
    """
    other.__dict__.pop("_validate_args", None)
    if "_validate_args" in distribution.__dict__:
        other._validate_args = distribution._validate_args  # noqa: SLF001 (as NumPyro sets it)
    return other
