"""Input families: how NumPyro distributions become input laws. New ones are registered here."""

from collections.abc import Callable
from typing import Any

import numpyro.distributions as dist

from nn_uq_dist.inputs._abstract_input_law import AbstractInputLaw

type AsInputLaw = Callable[[Any, tuple[int, ...]], AbstractInputLaw]

# By exact type: subclasses may change the law.
_FAMILIES: dict[type[dist.Distribution], AsInputLaw] = {}
_WRAPPERS = (dist.Independent, dist.ExpandedDistribution)


def register_input_family[F: AsInputLaw](family: object) -> Callable[[F], F]:
    """Decorate the function that makes an input law from a distribution of this type.

    Parameters
    ----------
    family
        A class of NumPyro distributions. Its subclasses are not registered with it.

    Returns
    -------
    Callable
        Decorator of a function ``(base, shape) -> AbstractInputLaw``. It gets a distribution whose
        type is `family`, without the ``.expand(...)`` and ``.to_event(1)`` around it, and the shape
        ``batch_shape + (N_x,)`` to which the mean is to be broadcast: expansion makes independent
        copies, so that its effect on parameters is broadcasting. Parameters may be traced.

    Raises
    ------
    TypeError
        If `family` is not a class of distributions.

    Examples
    --------
    A logistic law, approximated by a normal one of the same variance:

    >>> import jax.numpy as jnp
    >>> import numpyro.distributions as dist
    >>> import nn_uq_dist as nuq
    >>> class RoughlyNormal(dist.Logistic):
    ...     pass
    >>> @nuq.inputs.register_input_family(RoughlyNormal)
    ... def _(base, shape):
    ...     loc = jnp.broadcast_to(base.loc, shape)
    ...     return nuq.InputLaw(loc, scale=base.scale * jnp.pi / jnp.sqrt(3))
    >>> law = nuq.inputs.as_input_law(RoughlyNormal(jnp.zeros(2), 1.0).to_event(1))
    >>> print(f"{law.variance[0]:.2f}")
    3.29
    """
    if not (isinstance(family, type) and issubclass(family, dist.Distribution)):
        raise TypeError(
            f"family must be a class of NumPyro distributions, got {family!r}; "
            f"decorate with @register_input_family(MyDistribution)"
        )

    def register(function: F) -> F:
        _FAMILIES[family] = function
        return function

    return register


def as_input_law(f: object) -> AbstractInputLaw:
    """Return an input law as it is, a NumPyro distribution over vectors converted to one.

    Parameters
    ----------
    f
        ``Uniform`` or ``Normal`` made a vector by ``.to_event(1)``, ``MultivariateNormal``,
        ``LowRankMultivariateNormal`` or a distribution of a family that was added by
        `register_input_family`, each also with ``.expand(...)`` and with a batch shape; or an
        `AbstractInputLaw`, such as an `InputLaw`. Parameters may be traced.

    Raises
    ------
    TypeError
        If the family is another one; the message lists the accepted ones.
    ValueError
        If the distribution does not have exactly one event axis, or a registered function returns
        a law of another shape.

    Examples
    --------
    >>> import numpyro.distributions as dist
    >>> import nn_uq_dist as nuq
    >>> nuq.inputs.as_input_law(dist.Normal(0.0, 1.0).expand([5]).to_event(1)).num_inputs
    5
    """
    if isinstance(f, AbstractInputLaw):
        return f
    if not isinstance(f, dist.Distribution):
        raise TypeError(
            f"f must be a distribution over the inputs, got {type(f).__name__}; "
            f"pass a {_accepted()}"
        )
    base = f
    while isinstance(base, _WRAPPERS):
        base = base.base_dist
    family = _FAMILIES.get(type(base))
    if family is None:
        raise TypeError(
            f"f must be of a supported family, got {type(base).__name__}; pass a {_accepted()}"
        )
    if f.event_dim != 1:
        expand = ".expand([N_x])" if f.batch_shape == () else ""
        remedy = f"call {expand}.to_event(1)" if f.event_dim == 0 else "use fewer axes"
        raise ValueError(
            f"f must be a distribution over vectors, with event_shape (N_x,), got batch_shape "
            f"{f.batch_shape} and event_shape {f.event_shape}; {remedy}"
        )
    shape = f.batch_shape + f.event_shape
    law = family(base, shape)
    if law.loc.shape != shape:
        raise ValueError(
            f"the input law of {type(base).__name__} must have loc of shape {shape}, got shape "
            f"{law.loc.shape}; broadcast loc to the shape that the registered function is given"
        )
    return law


def _accepted() -> str:
    own = [family.__name__ for family in _FAMILIES if family.__module__.startswith("numpyro.")]
    added = [family.__name__ for family in _FAMILIES if family.__name__ not in own]
    return (
        f"{', '.join(own[:-1])} or {own[-1]} of NumPyro, with .expand(...) and .to_event(1), "
        + (f"a registered family ({', '.join(added)}), " if added else "")
        + "or an InputLaw"
    )
