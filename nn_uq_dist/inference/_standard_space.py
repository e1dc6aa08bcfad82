"""The network as a function of independent standard normal variables, for any input distribution.

A uniform variable of the distribution is ``2 Phi(z) - 1`` of a normal one. Inputs are computed in
float64, a uniform variable from the edge that is nearer: next to an edge at zero an input keeps all
its digits, which sums from the middle lose. The network runs in its own type, in a loop over blocks
of one size, so that it is compiled once, whatever the number of points.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from nn_uq_dist.basics import checks
from nn_uq_dist.basics.chunks import in_chunks
from nn_uq_dist.basics.compiled_programs import compiled_once
from nn_uq_dist.basics.concrete import FloatArray, known_arrays
from nn_uq_dist.inputs import as_input
from nn_uq_dist.linearization.jacobians import values_and_jacobians
from nn_uq_dist.sampling.flat_network import FlatNetwork, flat_network

# Points that a program gets, and most numbers of an array.
_GROUP_SIZE = 512
_GROUP_NUMBERS = 2**20
# Blocks of all runs, at least: some 100 calls are filled up, each by half a block.
_BLOCKS = 2000
# Most points whose derivatives are computed at once: each takes several runs.
_SLOPES_AT_ONCE, _JACOBIANS_AT_ONCE = 32, 4
# A value with its gradient takes as long as this many values.
RUNS_PER_SLOPE = 3


class StandardSpace:
    """A network at standard normal variables, first those of the uniform ones.

    Parameters
    ----------
    flat
        The network, with a distribution without batch axes.
    read
        A pure function of outputs ``(n, N_y)`` that returns what is kept of them.
    num_runs
        About how many runs there will be: what fills up the last blocks are few of them.
    report
        Is told how many runs were done.

    Attributes
    ----------
    block : int
        Points that go through the network at once. A call is filled up to a multiple of it, and
        what fills it up counts as runs.
    num_runs : int
        Runs so far.
    """

    def __init__(
        self,
        flat: FlatNetwork,
        read: Callable[[jax.Array], jax.Array],
        num_runs: int,
        report: Callable[[int], object] = bool,
    ) -> None:
        self.flat, self.read, self._report = flat, read, report
        self.num_runs = 0
        distribution: Any = flat.distribution
        self.distribution = distribution
        # Uniform ones first, as the variables are.
        self._terms = sorted(distribution.terms, key=lambda term: not term.is_uniform)
        self._factors = [np.asarray(term.factor, np.float64) for term in self._terms]
        self._mean = np.asarray(distribution.mean, np.float64)
        # Half-widths and scales may be zero: such a variable moves no input.
        moving = [np.atleast_2d(factor != 0).any(axis=0) for factor in self._factors]
        self._moving = np.flatnonzero(np.concatenate([np.zeros(0, bool), *moving]))
        sizes = [columns.size for columns in moving]
        self._ends = np.cumsum(sizes)
        self._num_uniform = sum(sizes[: sum(term.is_uniform for term in self._terms)])
        self.num_variables = len(self._moving)
        if self.num_variables == 0:
            raise ValueError(
                "f must be random, got only known values; give an input a half-width or a scale"
            )
        widest = max(distribution.num_inputs, self.num_variables, flat.num_outputs)
        self._most = max(1, min(_GROUP_SIZE, _GROUP_NUMBERS // widest))
        # A few sizes, so that other numbers of runs compile nothing.
        powers = [4**k for k in range(5) if _BLOCKS * 4**k <= max(num_runs, _BLOCKS)]
        self.block = min(powers[-1], self._most)
        self._programs: dict[str, Callable[..., Any]] = {}

    @property
    def groups(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Group of each input, numbered from the first on, and of each variable.

        Inputs are in one group if they share a variable, or if a chain of such inputs joins them.
        """
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        size, starts = self.distribution.num_inputs, [0, *self._ends[:-1]]
        edges = []
        for term, factor, start in zip(self._terms, self._factors, starts, strict=True):
            places = np.nonzero(factor)
            edges.append((term.start + places[0], size + start + places[-1]))
        rows, columns = np.concatenate(edges, axis=1)
        shape = 2 * (size + self._ends[-1],)
        graph = coo_array((np.ones(len(rows)), (rows, columns)), shape)
        _, labels = connected_components(graph, directed=False)
        return labels[:size], labels[size:][self._moving]

    def run(self, z: FloatArray) -> FloatArray:
        """What is kept of the outputs at points ``(n, num_variables)``."""

        def kept(x: jax.Array) -> tuple[jax.Array]:
            return (self.read(self.flat.at_draws(x)),)

        return self._in_groups("run", kept, z, self.block, 1)[0].astype(np.float64)

    def inputs(self, z: FloatArray) -> NDArray[Any]:
        """What the network takes at points, `taken` of the input, no run; NaN where a point is."""

        def taken(x: jax.Array) -> tuple[jax.Array]:
            return (self.distribution.taken(x),)

        (inputs,) = self._in_groups("inputs", taken, np.nan_to_num(z), self._most, 0)
        inputs[np.isnan(z).any(axis=1)] = np.nan  # keeps the type, as `np.where` does not
        return inputs

    def slopes(self, z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The one number that is kept and its gradient, ``(n,)`` and ``(n, num_variables)``."""

        def value(x: jax.Array) -> jax.Array:
            return self.read(self.flat(x)[None])[0]

        with_slopes = jax.vmap(jax.value_and_grad(value))
        block = min(self.block, _SLOPES_AT_ONCE)
        values, slopes = self._in_groups("slopes", with_slopes, z, block, RUNS_PER_SLOPE)
        return values.astype(np.float64), self._pulled_back(slopes, z)

    def outputs_and_jacobians(self, z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Outputs ``(n, N_y)`` and their Jacobians ``(n, N_y, num_variables)`` at points."""
        num_inputs, num_outputs = self.distribution.num_inputs, self.flat.num_outputs

        def with_jacobians(x: jax.Array) -> tuple[jax.Array, jax.Array]:
            return values_and_jacobians(self.flat, x, num_outputs)

        most = min(_JACOBIANS_AT_ONCE, _GROUP_NUMBERS // (num_inputs * num_outputs))
        runs, block = 1 + min(self.num_variables, num_outputs), max(1, min(self.block, most))
        outputs, jacobians = self._in_groups("Jacobians", with_jacobians, z, block, runs)
        return outputs.astype(np.float64), self._pulled_back(jacobians, z[:, None])

    def _in_groups(
        self,
        name: str,
        function: Callable[[jax.Array], tuple[jax.Array, ...]],
        z: FloatArray,
        block: int,
        runs: int,
    ) -> list[NDArray[Any]]:
        """Arrays that a program returns, and counts as so many runs for each point."""
        dtype, size = np.dtype(self.distribution.dtype), block * (self._most // block)
        padded = np.zeros((size, self.distribution.num_inputs), dtype)
        if name not in self._programs:

            def blocks(x: jax.Array, count: jax.Array) -> tuple[jax.Array, ...]:
                return in_chunks(function, x, size=block, num_rows=count if block < size else None)

            self._programs[name] = compiled_once(blocks, jnp.asarray(padded), np.int32(size))
        results = []
        for start in range(0, max(1, len(z)), size):
            inputs = self._inputs(z[start : start + size])
            rows, count = padded.copy(), len(inputs)
            # A block is not filled up by zeros, where a network may be NaN.
            rows[:count], rows[count:] = inputs, inputs[-1:] if count else 0
            results.append(self._programs[name](jnp.asarray(rows), np.int32(count)))
            done = runs * block * -(-count // block)
            self.num_runs += done
            self._report(done)
        # Read at the end: a program runs while the next is called.
        columns = zip(*known_arrays(results), strict=True)
        return [np.concatenate(arrays)[: len(z)] for arrays in columns]

    def _inputs(self, z: FloatArray) -> FloatArray:
        """Inputs ``(n, N_x)`` of the distribution, in float64."""
        variables = np.zeros((len(z), self._ends[-1]))
        variables[:, self._moving] = z
        edges = np.zeros_like(variables)
        uniform = slice(0, self._num_uniform)
        edges[:, uniform] = np.sign(variables[:, uniform])
        variables[:, uniform] = -2 * edges[:, uniform] * ndtr(-np.abs(variables[:, uniform]))
        inputs = np.repeat(self._mean[None], len(z), axis=0)
        # Edges first: an input next to zero is what remains when they have cancelled.
        for values in (edges, variables):
            by_term = np.split(values, self._ends[:-1], axis=1)
            for term, factor, of_term in zip(self._terms, self._factors, by_term, strict=True):
                moved = of_term * factor if term.is_diagonal else of_term @ factor.T
                inputs[:, term.start : term.stop] += moved
        return inputs

    # An infinite derivative by an input that a variable does not move is NaN.
    @np.errstate(over="ignore", invalid="ignore")
    def _pulled_back(self, slopes: NDArray[Any], z: FloatArray) -> FloatArray:
        """Derivatives by the standard variables, of those by the inputs ``(..., N_x)``."""
        by_term = []
        for term, factor in zip(self._terms, self._factors, strict=True):
            rows = slopes[..., term.start : term.stop]
            by_term.append(rows * factor if term.is_diagonal else rows @ factor)
        pulled = np.concatenate(by_term, axis=-1)[..., self._moving].astype(np.float64)
        uniform = slice(0, np.searchsorted(self._moving, self._num_uniform))
        pulled[..., uniform] *= np.sqrt(2 / np.pi) * np.exp(-0.5 * z[..., uniform] ** 2)
        return pulled


def known_flat_network(
    function: str, network: Callable[[Any], Any], f: Any, *others: object
) -> FlatNetwork:
    """The network of a distribution of one input, if all arguments of `function` hold numbers."""
    if not checks.is_concrete(f, *others):
        raise TypeError(
            f"f and all other arguments must hold numbers, got traced values; call {function} "
            f"outside of jit, vmap and grad"
        )
    distribution = as_input(f)
    if distribution.batch_shape:
        raise ValueError(
            f"f must be one input, got batch shape {distribution.batch_shape}; call {function} in "
            f"a loop, for linearize(network, f)[i].input with keys of their own"
        )
    return flat_network(network, distribution)
