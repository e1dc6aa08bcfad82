"""Linearize a network at the mean of a random input."""

from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike
from numpyro.distributions import Distribution

from nn_uq_dist.basics import _checks
from nn_uq_dist.basics._compiled_once import compiled_once
from nn_uq_dist.basics._row_algebra import matvec
from nn_uq_dist.inputs import AbstractInputLaw, as_input_law
from nn_uq_dist.inputs._flat_network import REMEDY, FlatNetwork, flat_network
from nn_uq_dist.linearization._jacobian import tangents
from nn_uq_dist.linearization._linearized_network import Linearization

_DRAWS_PER_INPUT = 10


def as_point(at: ArrayLike, law: AbstractInputLaw) -> Array:
    """Return the point as an array that broadcasts with the batch of the law."""
    at = _checks.as_numeric("at", at)
    shape = np.shape(at)
    if shape[-1:] != (law.num_inputs,):
        raise ValueError(
            f"at must have shape (..., N_x) with N_x = {law.num_inputs}, got shape {shape}; pass "
            f'a point of the input space, or at="fit"'
        )
    _checks.broadcast_shapes(
        "the leading axes of at must broadcast against the batch shape of f",
        at=shape[:-1],
        f=law.batch_shape,
    )
    _checks.require_finite("at", at)
    return jnp.asarray(at, law.dtype)


def fit_arguments(at: str, key: Any, num_samples: int | None, num_inputs: int) -> tuple[Array, int]:
    """Return the checked key and number of draws of a fit."""
    if at != "fit":
        raise ValueError(f'at must be a point or "fit", got {at!r}')
    if key is None:
        raise TypeError('key must be a JAX random key for at="fit", got None; pass key=...')
    if num_samples is None:
        num_samples = _DRAWS_PER_INPUT * (num_inputs + 1)
    num_samples = _checks.positive_int("num_samples", num_samples)
    if num_samples <= num_inputs:
        raise ValueError(
            f"num_samples must be above the number of inputs, {num_inputs}, got {num_samples}; "
            f"pass several for each input"
        )
    return _checks.as_key("key", key), num_samples


def least_squares(
    network: FlatNetwork, tangent: Linearization, key: Array, num_samples: int
) -> Linearization:
    r"""The linear function with the least mean squared error over random inputs.

    The differences from the tangent are fitted: an exactly linear network gets its own Jacobian,
    not one with noise.
    """
    law = tangent.input
    deviation = law.sample_deviation(key, (num_samples,))
    # In units of the standard deviations: `lstsq` judges the rank by relative size.
    scale = jnp.sqrt(law.variance)
    scale = jnp.where(scale > 0, scale, 1)

    draws = law.loc + deviation
    differences = compiled_once(network.at_draws, draws)(draws) - tangent(draws)

    def fit(x: Array, y: Array) -> Array:
        terms = jnp.concatenate([jnp.ones_like(x[:, :1]), x], axis=1)
        solution: Array = jnp.linalg.lstsq(terms, y)[0]
        return solution

    for _ in law.batch_shape:
        fit = jax.vmap(fit, in_axes=(1, 1))
    solution = fit(deviation / scale, differences)
    return tangent.moved(solution[..., 0, :], solution[..., 1:, :].mT / scale[..., None, :])


def linearize(
    network: Callable[[Any], Any],
    f: Distribution | AbstractInputLaw | Any,
    at: ArrayLike | Literal["fit"] | None = None,
    *,
    key: Array | None = None,
    num_samples: int | None = None,
    batch_size: int | None = None,
) -> Linearization:
    r"""Linearize a network: :math:`g(f) \approx g(a) + J(a) (f - a)`, by default at the mean.

    The Jacobian is taken column by column in forward mode if the network has at least as many
    outputs as inputs, else row by row in reverse mode; the same pass gives the value. Large
    Jacobians, and those at many points, are computed in portions, so memory beyond the result stays
    bounded. Works inside ``jit``, ``grad`` and ``vmap``. Outside of them the network is traced in
    each call and compiled where its program is new, as in `monte_carlo`; put calls that repeat very
    often inside of ``jax.jit``, which saves the tracing too.

    Parameters
    ----------
    network
        Any JAX callable that maps one input, usually of shape ``(N_x,)``, to a vector ``(N_y,)``:
        a function, a closure, a jitted function, a Flax NNX or Equinox module in inference mode;
        the how-to pages of the documentation cover other frameworks. It may return an array of any
        shape or a pytree of arrays: their entries are the ``N_y`` outputs, and
        `Linearization.unravel` restores the structure.
    f
        Law of the input: a NumPyro distribution, an `InputLaw` or another
        `nn_uq_dist.inputs.AbstractInputLaw`, or a dict, list or tuple of independent laws and known
        arrays, which is then the argument of the network. See `nn_uq_dist.inputs.as_input_law`. Its
        batch shape becomes that of the result. A transformed input, such as a log-normal one, is
        linearized in the space of its normal scores.
    at
        Point of linearization, shape ``(..., N_x)``, in the order of the input vector; by default
        its mean. ``"fit"`` uses the best linear fit over the input law instead of a tangent: least
        squares of the network at random inputs.
    key, num_samples
        For ``at="fit"``: a JAX random key, and the number of inputs, by default ``10 (N_x + 1)``.
    batch_size
        Number of points of the batch of `f` that are linearized at a time; it bounds the memory of
        the network evaluations, not of the result. Default: as many as have about 4 million numbers
        in their Jacobians. Choose less for a network with many more neurons than inputs and
        outputs.

    Returns
    -------
    Linearization
        With ``loc`` of shape ``batch_shape + (N_y,)`` and ``jacobian`` of shape
        ``batch_shape + (N_y, N_x)``.

    Raises
    ------
    TypeError
        If `network` is not callable, its output holds no real floats, or the family of `f`
        is not supported; if `at` is not a point, or ``"fit"`` comes without a key.
    ValueError
        If `network` fails on an input of the given shape (the cause is chained), its output is
        empty, one call affects the next, or value or Jacobian are known to be NaN or infinite; if
        `at` has another shape, `num_samples` is not above ``N_x``, or `batch_size` is not positive.

    Examples
    --------
    >>> import jax
    >>> import jax.numpy as jnp
    >>> import numpyro.distributions as dist
    >>> from nn_uq_dist import linearize
    >>> f = dist.Uniform(jnp.array([0.9, 1.9]), jnp.array([1.1, 2.1])).to_event(1)
    >>> lin = linearize(lambda x: jnp.array([x[0] * x[1], x[0] ** 2, x[1]]), f)
    >>> lin.jacobian.shape
    (3, 2)
    >>> [round(float(v), 3) for v in lin.mean]
    [2.0, 1.0, 2.0]
    >>> tent = lambda x: jnp.abs(x - 0.5)  # the tangent at 0.4 does not see the other side
    >>> g = dist.Uniform(-0.6, 1.4).expand([1]).to_event(1)
    >>> fitted = linearize(tent, g, at="fit", key=jax.random.key(0), num_samples=2000)
    >>> print(f"{linearize(tent, g).jacobian[0, 0]:.0f} {fitted.jacobian[0, 0]:.2f}")
    -1 -0.17
    """
    law = as_input_law(f)
    if batch_size is not None:
        batch_size = _checks.positive_int("batch_size", batch_size)
    point = law.loc
    if isinstance(at, str):
        key, num_samples = fit_arguments(at, key, num_samples, law.num_inputs)
    elif key is not None or num_samples is not None:
        raise TypeError('key and num_samples are for at="fit"; leave them out for a tangent')
    elif at is not None:
        point = as_point(at, law)
        law = law.expand(jnp.broadcast_shapes(point.shape[:-1], law.batch_shape))
    network = flat_network(network, law)

    def each(at: Array) -> tuple[Array, Array]:
        return tangents(network, law, at, batch_size)

    try:
        value, jacobian = compiled_once(each, point)(point)
    except jax.errors.UnexpectedTracerError as error:
        # The first call, which checks the network, cannot detect a value kept for the next.
        raise ValueError(
            f"network must be a pure function, got one in which a call affects the next; {REMEDY}"
        ) from error
    where = "mean input" if at is None or isinstance(at, str) else "at"
    remedy = f"check the weights of the network and the {where}"
    _checks.require_finite(f"network({where})", value, remedy)
    _checks.require_finite(f"the Jacobian of network at the {where}", jacobian, remedy)
    if where == "at":
        value = value + matvec(jacobian, law.loc - point)
    linearization = Linearization(value, jacobian, law, output_structure=network.output_structure)
    if key is None or num_samples is None:
        return linearization
    return least_squares(network, linearization, key, num_samples)
