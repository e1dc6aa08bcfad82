"""What to write in place of a network that JAX cannot trace, told from its kind and its error.

Nothing is imported: an object is known by the package that its class comes from. All of this runs
only after a network has failed, so that it may look at the network more closely than is cheap.
"""

import functools
import inspect
import re
import sys
from collections.abc import Iterator
from typing import Any

import jax

_PAGE = "see 'Networks by framework' in the documentation"
_TREES = "trees are piecewise constant and have no tangent; pass a differentiable network"


def _rewrite(what: str, weights: str) -> str:
    return f"{what}: write its layers in jax.numpy with its weights ({weights}); {_PAGE}"


# By the package of the class: what to do about it.
_REMEDIES = {
    "torch": _rewrite("PyTorch computes on tensors of its own", "state_dict"),
    "sklearn": _rewrite("scikit-learn computes in NumPy", "coefs_ and intercepts_"),
    "onnxruntime": _rewrite("a session runs outside of JAX", "graph.initializer of the model"),
    "onnx": _rewrite("an ONNX model is a description", "graph.initializer"),
    "tensorflow": _rewrite("TensorFlow computes outside of JAX", "trainable_variables"),
    "tf_keras": _rewrite("tf_keras computes in TensorFlow", "get_weights()"),
    "xgboost": _TREES,
    "lightgbm": _TREES,
}
_INFERENCE = (
    "switch dropout and batch statistics to inference mode: model.eval() in Flax NNX, the flag of "
    "the network's own, such as train=False, in Flax Linen and Haiku, eqx.nn.inference_mode(model) "
    "in Equinox, training=False in Keras"
)
# The first kind that fits counts: some are special cases of later ones.
_BY_KIND: tuple[tuple[type[Exception], str], ...] = (
    (
        jax.errors.TracerBoolConversionError,
        "choose by jnp.where or jax.lax.cond: Python's if needs a known number",
    ),
    (
        jax.errors.TracerArrayConversionError,
        "write it in jax.numpy: what NumPy computes, as methods like predict do, has no derivative",
    ),
    (
        jax.errors.UnexpectedTracerError,
        f"it keeps values of one call for the next: make or load it anew, and {_INFERENCE}",
    ),
    (
        jax.errors.ConcretizationTypeError,
        "leave out float(), int() and .item(), which need a known number",
    ),
)
_STATE_ERRORS = ("TraceContextError", "ModifyScopeVariableError")
# Sizes that a network is tried with.
_MOST_SIZES = 8
_KEY_ERRORS = ("InvalidRngError", "MissingRNGError")


def remedy_for(
    network: object, error: BaseException | None = None, argument: Any = None
) -> str | None:
    """Say what to write in place of a network, or ``None`` if nothing better than general is known.

    Parameters
    ----------
    network
        What was passed as a network, callable or not.
    error
        What it raised; ``None`` if it could not be called.
    argument
        Shape and dtype of the input that it was called with, or a pytree of those. With it the
        network is traced once more, on a batch of one.
    """
    owner = getattr(network, "__self__", None)
    found = _of_description(network) or _of_description(owner)
    found = found or next(filter(None, map(_of_object, _objects_in(network))), None)
    if found is None and error is not None:
        found = _of_signature(network, error) or _of_error(error)
        if found is None and argument is not None:
            found = _of_shapes(network, error, argument)
    return found


def _objects_in(network: object) -> Iterator[object]:
    """The network, what it is made of or a method of, and what a function refers to by name."""
    yield network
    function = network
    while isinstance(function, functools.partial):
        yield from (*function.args, *function.keywords.values(), function.func)
        function = function.func
    owner = getattr(function, "__self__", None)
    yield owner
    function = inspect.unwrap(function) if callable(function) else function
    if inspect.isfunction(function):
        try:
            names = inspect.getclosurevars(function)
        except ValueError:  # it refers to a name that has no value yet
            return
        yield from names.nonlocals.values()
        yield from names.globals.values()
    else:
        # A function of C belongs to a module, which says nothing of what the function needs.
        whole = function if owner is None or inspect.ismodule(owner) else owner
        yield from getattr(whole, "__dict__", {}).values()


def _packages(value: object) -> set[str]:
    return {cls.__module__.partition(".")[0] for cls in type(value).__mro__}


def _of_description(network: object) -> str | None:
    """What to do about a description of a network that has no weights of its own."""
    packages = _packages(network)
    if "haiku" in packages and hasattr(network, "init") and hasattr(network, "apply"):
        return (
            "haiku.transform gives a pair of functions: pass "
            "lambda x: network.apply(params, None, x) "
            f"with params = network.init(key, x); {_PAGE}"
        )
    if "flax" in packages and getattr(network, "scope", "") is None:
        return (
            "a Flax Linen module has no weights of its own: pass lambda x: "
            f"network.apply(variables, x) with variables = network.init(key, x); {_PAGE}"
        )
    return None


def _of_object(value: object) -> str | None:
    """What to do about an object of another framework."""
    if inspect.ismodule(value) or isinstance(value, type | Exception):
        return None
    packages = _packages(value)
    if "keras" in packages:
        return _of_keras()
    for package, remedy in _REMEDIES.items():
        if package in packages:
            return remedy
    return None


def _of_keras() -> str | None:
    """What to do about Keras, unless it computes in JAX."""
    backend = getattr(getattr(sys.modules.get("keras"), "backend", None), "backend", None)
    name = backend() if callable(backend) else "another backend"
    if name == "jax":
        return None
    return (
        f"Keras runs on {name}: set KERAS_BACKEND=jax in the environment before keras is imported, "
        f"load the model again and pass lambda x: model(x[None], training=False)[0]; {_PAGE}"
    )


def _of_signature(network: object, error: BaseException) -> str | None:
    """What to do about a network that takes other than one argument."""
    if not isinstance(error, TypeError) or not callable(network):
        return None
    try:
        signature = inspect.signature(network)
    except (TypeError, ValueError):  # functions of C do not tell
        return None
    try:
        signature.bind(None)
    except TypeError:
        empty = inspect.Parameter.empty
        variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        required = [
            name
            for name, parameter in signature.parameters.items()
            if parameter.default is empty and parameter.kind not in variable
        ]
        listed = ", ".join(required) or "none"
        return (
            f"its required arguments are ({listed}): bind all but the input, as in "
            f"lambda x: network(params, x)"
        )
    return None


def _of_error(error: BaseException) -> str | None:
    """What to do about a failure that tells its reason by its kind, or by its words."""
    for kind, remedy in _BY_KIND:
        if isinstance(error, kind):
            return remedy
    name, words = type(error).__name__, str(error)
    if name in _STATE_ERRORS:
        return f"it changes its own state when it is called: {_INFERENCE}"
    if name in _KEY_ERRORS or ("key" in words and "dropout" in words.lower()):
        return f"it wants random numbers: {_INFERENCE}"
    if isinstance(error, NameError) and "axis name" in words:
        return f"it takes means over a named batch axis: {_INFERENCE}"
    if "hk.transform" in words or "must be called with an RNG" in words:
        return (
            "a function of Haiku modules has to be transformed and called with parameters and no "
            f"key: pass lambda x: haiku.transform(network).apply(params, None, x); {_PAGE}"
        )
    return None


def _of_shapes(network: object, error: BaseException, argument: Any) -> str | None:
    """What to do about a network that takes a batch, or another number of inputs."""
    if _gives(network, jax.tree.map(lambda leaf: _struct(leaf, (1, *leaf.shape)), argument)):
        return "it takes a batch of inputs: pass lambda x: network(x[None])[0]"
    if len(getattr(argument, "shape", ())) != 1:
        return None
    # A network that was given too many or too few inputs mostly says how many it expected.
    sizes = dict.fromkeys(int(word) for word in re.findall(r"\b\d{1,6}\b", str(error)))
    for size in list(sizes)[:_MOST_SIZES]:
        if any(_gives(network, _struct(argument, shape)) for shape in ((size,), (1, size))):
            return (
                f"it takes {size} inputs, not {argument.shape[0]}: pass a law of {size} inputs, "
                f"with half-width or scale 0 for those that are known"
            )
    return None


def _struct(leaf: Any, shape: tuple[int, ...]) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, leaf.dtype)


def traced_output(network: Any, argument: Any) -> Any:
    """Shapes and types that a network returns for one argument, given by its shapes and types."""
    # JAX needs a hashable function, which a module may not be, and would remember the shape after
    # the weights of a module were replaced by other ones. A new partial object is neither.
    return jax.eval_shape(functools.partial(network), argument)


def _gives(network: object, argument: Any) -> bool:
    """Whether the network gives one output for this input, for a batch of one a batch of one."""
    try:
        output = traced_output(network, argument)
    except Exception:  # noqa: BLE001 - whatever it raises, this shape is not the remedy
        return False
    batch = jax.tree.leaves(argument)[0].shape[:-1]
    return isinstance(output, jax.ShapeDtypeStruct) and output.shape[: len(batch)] == batch
