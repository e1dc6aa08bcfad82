"""Input families: how NumPyro distributions become input laws. New ones are registered here."""

from collections.abc import Callable
from typing import Any

import numpyro.distributions as dist

from nn_uq_dist.inputs._abstract_input_law import AbstractInputLaw

type AsInputLaw = Callable[[Any, tuple[int, ...]], AbstractInputLaw]

# By exact type: subclasses may change the law.
_FAMILIES: dict[type[dist.Distribution], AsInputLaw] = {}


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
        ``batch_shape + (N_x,)`` to which the mean is to be broadcast. Expansion makes independent
        copies, so it only broadcasts the parameters. Parameters may be traced. Where a
        univariate family is over arrays, ``.to_event(2)``, its parameters come as vectors, last
        axis fastest.

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


def family_of(base: dist.Distribution) -> AsInputLaw | None:
    """Return the function of the family of a distribution, None if there is none."""
    return _FAMILIES.get(type(base))


def accepted_families() -> str:
    """List what is accepted, for messages."""
    own = [family.__name__ for family in _FAMILIES if family.__module__.startswith("numpyro.")]
    added = [family.__name__ for family in _FAMILIES if family.__name__ not in own]
    return (
        f"{', '.join(own[:-1])} or {own[-1]} of NumPyro, with .expand(...) and .to_event(1), "
        + (f"a registered family ({', '.join(added)}), " if added else "")
        + "or an InputLaw"
    )
