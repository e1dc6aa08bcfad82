"""A network as a map from the vector of a random input to the vector of its outputs.

Outputs that are no vector, arrays of any shapes in a pytree, are joined to one.
"""

import dataclasses
import functools
import itertools
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.typing import ArrayLike

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.row_algebra import joined, namespace
from nn_uq_dist.inputs import Input
from nn_uq_dist.inputs.input_map import cut, names_of_entries, names_of_leaves

REMEDY = (
    "pass a pure function in jax.numpy, of one input without a batch axis and of nothing else, in "
    "inference mode; the pages 'My network is refused' and 'Networks by framework' of the "
    "documentation show how"
)
_ARRAYS = (jax.ShapeDtypeStruct, dict, list, tuple, type(None))
# Numbers of outputs: vectors ``(..., N_y)``, or of a network that returns a dict, such a dict.
type OutputNumbers = ArrayLike | Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class OutputStructure:
    """Structure of outputs whose numbers are joined to a vector; hashable.

    Attributes
    ----------
    tree
        Structure of the pytree.
    shapes
        Shape of each array, in its order; their numbers follow each other, last axis fastest.
    """

    tree: Any
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, output: Any) -> Self:
        """Return the structure of an output, or of its shapes."""
        leaves, tree = jax.tree.flatten(output)
        return cls(tree, tuple([leaf.shape for leaf in leaves]))

    @classmethod
    def of_numbers(cls, names: Sequence[str]) -> Self:
        """Return the structure of a dict of single numbers, in this order."""
        # JAX sorts the keys of other dicts.
        tree = jax.tree.structure(OrderedDict.fromkeys(names, 0))
        return cls(tree, ((),) * len(names))

    @property
    def num_outputs(self) -> int:
        """Numbers in all arrays."""
        return sum(map(math.prod, self.shapes))

    @property
    def names(self) -> list[str]:
        """A name for each number: keys of dicts and trees, positions in arrays."""
        entries = map(names_of_entries, names_of_leaves(self.tree, "y"), self.shapes)
        return list(itertools.chain.from_iterable(entries))

    def ravel(self, output: Any, dtype: jnp.dtype) -> Array:
        """Join the numbers of one output to a vector; a vector keeps its type."""
        leaves = jax.tree.leaves(output)
        if len(leaves) > 1:
            leaves = [jnp.asarray(leaf, dtype) for leaf in leaves]
        vector: Array = joined([jnp.reshape(leaf, -1) for leaf in leaves])
        return vector

    def unravel(self, values: Any) -> Any:
        """Return values of shape ``(..., N_y)`` as the pytree, leading axes in front."""
        return jax.tree.unflatten(self.tree, cut(values, self.shapes))


def by_names(
    name: str, value: OutputNumbers | None, structure: OutputStructure | None, *, each: bool = False
) -> ArrayLike | None:
    """A dict of numbers of the outputs as vectors ``(..., N_y)``; anything else as it is.

    Parameters
    ----------
    name
        Of the argument.
    value
        A dict in the structure of the outputs: for each array its numbers, leading axes in front,
        or one number for all of them.
    structure
        That of the outputs; None if they are a vector.
    each
        Whether each number of an array is needed.

    Raises
    ------
    TypeError, ValueError
        If the structure or a shape is another one, or something is no number; if labels of
        pandas or xarray are the names of the outputs in another order.
    """
    if not isinstance(value, Mapping):
        if structure is not None:
            checks.require_order(name, value, structure.names)
        return value
    leaves, tree = jax.tree.flatten(value)
    if structure is None or tree != structure.tree:
        keys = ["one vector"] if structure is None else names_of_leaves(structure.tree, "y")
        raise TypeError(
            f"{name} must have the structure of the outputs, {', '.join(keys)}, got "
            f"{', '.join(names_of_leaves(tree, 'y')) or 'nothing'}; pass a number for each output, "
            f"in dicts, lists and tuples as the network returns them, and leave outputs that have "
            f"none out of the network"
        )
    vectors = {}
    keys = names_of_leaves(structure.tree, "y")
    for key, leaf, shape in zip(keys, leaves, structure.shapes, strict=True):
        numbers: Any = checks.as_numeric(f"{name}[{key!r}]", leaf)
        # NumPy's numbers keep their digits; the type is chosen where they are used.
        numbers = numbers if isinstance(numbers, Array) else np.asarray(numbers)
        lead = numbers.shape[: numbers.ndim - len(shape)]
        if (numbers.ndim or each) and numbers.shape != (*lead, *shape):
            raise ValueError(
                f"{name}[{key!r}] must have shape {('...', *shape)}, as the output, got shape "
                f"{numbers.shape}; pass a number for each entry"
            )
        wide = namespace(numbers).broadcast_to(numbers, (*lead, *shape))
        vectors[key] = wide.reshape(*lead, -1)
    checks.broadcast_shapes(
        f"the leading axes of {name} must fit each other",
        **{key: vector.shape[:-1] for key, vector in vectors.items()},
    )
    whole: ArrayLike = joined(vectors.values())
    return whole


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class FlatNetwork:
    """A network between vectors, made by `flat_network`.

    Attributes
    ----------
    network
        The network of the structure that the distribution makes.
    distribution
        Distribution of its input.
    structure
        Shapes of its outputs.
    dtype
        Type of all of them together.
    """

    network: Callable[[Any], Any]
    distribution: Input
    structure: OutputStructure
    dtype: jnp.dtype

    @property
    def num_outputs(self) -> int:
        """Number of outputs ``N_y``."""
        return self.structure.num_outputs

    @property
    def output_structure(self) -> OutputStructure | None:
        """Structure of the outputs, None if they are one vector, as it is."""
        is_leaf = jax.tree_util.treedef_is_leaf(self.structure.tree)
        return None if is_leaf and len(self.structure.shapes[0]) == 1 else self.structure

    def __call__(self, x: Array) -> Array:
        """Outputs ``(N_y,)`` at one vector ``(N_x,)`` of a distribution whose map has no batch."""
        output = self.network(self.distribution.network_input(x))
        return self.structure.ravel(output, self.dtype)

    def at_draws(self, draws: Any) -> Array:
        """Outputs ``(n, *batch_shape, N_y)`` at draws of the input, ``(n, *batch_shape, N_x)``."""

        def at_one(value: Any) -> Array:
            return self.structure.ravel(self.network(value), self.dtype)

        for _ in range(1 + len(self.distribution.batch_shape)):
            at_one = jax.vmap(at_one)
        return at_one(self.distribution.network_input(draws))


def flat_network(network: Callable[[Any], Any], distribution: Input) -> FlatNetwork:
    """Return the network between vectors, or say what is wrong with it.

    The network is only traced, not run. One that maps a vector to a vector is called as it is.
    Where the distribution makes a list of numbers the network may take their vector.
    """
    network, structure, dtype = checked_network(network, distribution.example)
    return FlatNetwork(network, distribution, structure, dtype)


def checked_network(network: Any, taken: Any) -> tuple[Any, OutputStructure, jnp.dtype]:
    """The network, structure and type of its outputs, given shapes and types of what it takes."""
    if not callable(network) or isinstance(network, type):
        is_class = isinstance(network, type)
        name = f"the class {network.__name__} itself" if is_class else type(network).__name__
        raise TypeError(f"network must be a JAX function of one input, got {name}; {REMEDY}")
    network, output = _accepting(network, taken)
    is_tuple = type(output) is tuple

    def is_object(node: Any) -> bool:
        # The arrays in a state, or in a distribution, would be taken for outputs.
        is_state = is_tuple and not isinstance(node, _ARRAYS)
        return is_state or isinstance(node, dist.Distribution)

    for path, leaf in jax.tree.leaves_with_path(output, is_leaf=is_object):
        if is_object(leaf) or not jnp.issubdtype(leaf.dtype, jnp.floating):
            name = type(leaf).__name__
            kind = f"an object {name}" if is_object(leaf) else f"dtype {leaf.dtype}"
            place = f" at output{jax.tree_util.keystr(path)}" if path else ""
            raise TypeError(
                f"network must return real floats, got {kind}{place}; return the continuous "
                f"output, such as logits instead of labels, a margin, whose limit is 0, instead of "
                f"True and False, real and imaginary parts, the mean of a distribution, the first "
                f"of (output, state), or, for draws alone, output.astype(float)"
            )
    structure = OutputStructure.of(output)
    if not structure.num_outputs:
        raise ValueError(
            f"network must return at least one number, got output of {_words(output)}; return what "
            f"is to have a distribution"
        )
    dtype = jnp.result_type(*[leaf.dtype for leaf in jax.tree.leaves(output)])
    return network, structure, dtype


def _accepting(network: Callable[[Any], Any], taken: Any) -> tuple[Any, Any]:
    """The network, or that of the vector of a list of numbers, with shapes of its outputs."""

    def of_vector(x: Any) -> Any:
        return network(jnp.hstack(x))

    paths, leaves = zip(*jax.tree.leaves_with_path(taken), strict=True)
    is_structure = any(paths)
    is_list = type(taken) in {list, tuple} and is_structure
    remedy = REMEDY
    if is_structure:
        entries = ", ".join(f"x{jax.tree_util.keystr(path)}" for path in paths)
        remedy = (
            f"for a network of one vector pass lambda x: network(jnp.hstack([{entries}])), with "
            f"the entries in its order; else {REMEDY}"
        )
    # Not first as a plain list: of that, `2 * x` and `x + x` repeat the entries.
    is_vector = is_list and all(len(path) == 1 for path in paths)
    candidates = [of_vector] if is_vector and not any(leaf.ndim for leaf in leaves) else []
    for candidate in (*candidates, network):
        try:
            # JAX needs a hashable function, which a module may not be, and would remember the shape
            # after the weights of a module were replaced. A new partial object is neither.
            return candidate, jax.eval_shape(functools.partial(candidate), taken)
        except Exception as error:  # noqa: BLE001
            cause = error
    first_line = (str(cause).strip().splitlines() or ["no message"])[0]
    raise ValueError(
        f"network must be a JAX function of one input of {_words(taken)}, got "
        f"{type(cause).__name__} from it: {first_line}; {remedy}"
    ) from cause


def _words(value: Any) -> str:
    """Shapes and types in a message."""
    if isinstance(value, jax.ShapeDtypeStruct):
        return f"shape {value.shape} and dtype {value.dtype}"
    return f"structure {jax.tree.map(lambda leaf: f'{leaf.dtype}{list(leaf.shape)}', value)}"
