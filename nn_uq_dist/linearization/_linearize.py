"""Linearize a network at the mean of a random input."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from numpyro.distributions import Distribution

from nn_uq_dist.basics import _checks
from nn_uq_dist.inputs import AbstractInputLaw, as_input_law
from nn_uq_dist.linearization._linearization import Linearization


def linearize(net: Callable[[Array], Array], f: Distribution | AbstractInputLaw) -> Linearization:
    r"""Linearize `net` at the mean of `f`: :math:`g(f) \approx g(\mu) + J(\mu) (f - \mu)`.

    The Jacobian is taken column by column in forward mode if the network has at least as many
    outputs as inputs, else row by row in reverse mode; the value comes out of the same pass. Works
    inside ``jit``, ``grad`` and ``vmap``. Wrap repeated calls in ``jax.jit``: outside of it the
    network is traced anew in each call.

    Parameters
    ----------
    net
        Any JAX callable that maps one input of shape ``(N_x,)`` to a vector ``(N_y,)``: a
        function, a closure, a jitted function, a Flax NNX or Equinox module in inference mode.
    f
        Law of the input: a NumPyro distribution over vectors (see
        `nn_uq_dist.inputs.as_input_law`), an `InputLaw` or another
        `nn_uq_dist.inputs.AbstractInputLaw`. Its batch shape becomes that of the result.

    Returns
    -------
    Linearization
        With ``loc`` of shape ``batch_shape + (N_y,)`` and ``jacobian`` of shape
        ``batch_shape + (N_y, N_x)``.

    Raises
    ------
    TypeError
        If `net` is not callable, its output is not an array of real floats, or the family of `f`
        is not supported.
    ValueError
        If `net` fails on an input of shape ``(N_x,)`` (the cause is chained), its output is not a
        vector, or value or Jacobian are known to be NaN or infinite.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import numpyro.distributions as dist
    >>> from nn_uq_dist import linearize
    >>> f = dist.Uniform(jnp.array([0.9, 1.9]), jnp.array([1.1, 2.1])).to_event(1)
    >>> lin = linearize(lambda x: jnp.array([x[0] * x[1], x[0] ** 2, x[1]]), f)
    >>> lin.jacobian.shape
    (3, 2)
    >>> [round(float(v), 3) for v in lin.mean]
    [2.0, 1.0, 2.0]
    """
    law = as_input_law(f)
    num_outputs = check_network(net, law).shape[0]

    def at(mean: Array) -> tuple[Array, Array]:
        if law.num_inputs <= num_outputs:
            value, jvp = jax.linearize(net, mean)
            basis = jnp.eye(law.num_inputs, dtype=mean.dtype)
            return value, jax.vmap(jvp, out_axes=-1)(basis)
        value, vjp = jax.vjp(net, mean)
        basis = jnp.eye(num_outputs, dtype=value.dtype)
        return value, jax.vmap(vjp)(basis)[0]

    for _ in law.batch_shape:
        at = jax.vmap(at)
    value, jacobian = at(law.loc)
    remedy = "check the weights of the network and the mean input"
    _checks.require_finite("net(mean input)", value, remedy)
    _checks.require_finite("the Jacobian of net at the mean input", jacobian, remedy)
    return Linearization(value, jacobian, law)


def check_network(net: Callable[[Array], Array], law: AbstractInputLaw) -> jax.ShapeDtypeStruct:
    """Return shape ``(N_y,)`` and dtype of the network's output, or say what is wrong with it.

    The network is only traced, not run.
    """
    if not callable(net):
        raise TypeError(
            f"net must be a callable (N_x,) -> (N_y,), got {type(net).__name__}; "
            f"pass a function or a module"
        )
    shape = (law.num_inputs,)
    one_input = "for a network of batches pass lambda x: net(x[None])[0]"
    try:
        # Not `eval_shape(net, ...)`: JAX needs a hashable function, which a module may not be, and
        # would remember the shape after the weights of a module were replaced by other ones.
        output: Any = jax.eval_shape(
            lambda x: net(x),  # noqa: PLW0108
            jax.ShapeDtypeStruct(shape, law.dtype),
        )
    except Exception as error:
        raise ValueError(
            f"net must accept one input of shape {shape} and dtype {law.dtype}, got "
            f"{type(error).__name__} from it: {_first_line(error)}; {one_input}, and switch "
            f"modules with dropout or batch statistics to inference mode"
        ) from error
    if not isinstance(output, jax.ShapeDtypeStruct):
        raise TypeError(
            f"net must return one array of shape (N_y,), got {type(output).__name__}; "
            f"return a single array, by jnp.concatenate if there are several"
        )
    if len(output.shape) != 1 or output.shape[0] == 0:
        raise ValueError(
            f"net must map an input of shape {shape} to a vector (N_y,), got output of shape "
            f"{output.shape}; for a scalar or array output pass lambda x: net(x).reshape(-1); "
            f"{one_input}"
        )
    if not jnp.issubdtype(output.dtype, jnp.floating):
        raise TypeError(
            f"net must return real floats, got dtype {output.dtype}, which has no derivative; "
            f"return the continuous output, such as logits instead of labels"
        )
    return output


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else "no message"
