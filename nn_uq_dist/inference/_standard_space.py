"""The network as a function of independent standard normal variables, for any input law.

A uniform variable of the law is ``2 Phi(z) - 1`` of a normal one. The variables are NumPy arrays in
float64; the network runs in its own type, in groups of one size, so that it is compiled once.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erf as jax_erf
from numpy.typing import NDArray
from scipy.special import erf

from nn_uq_dist.basics import _checks
from nn_uq_dist.basics._compiled_once import compiled_once
from nn_uq_dist.basics._known_values import FloatArray as Array
from nn_uq_dist.inputs import AbstractInputLaw, InputTerm, as_input_law
from nn_uq_dist.inputs._flat_network import FlatNetwork
from nn_uq_dist.linearization._jacobian import values_and_jacobians

# Runs that go through the network at once, and most numbers of an array.
_GROUP_SIZE = 512
_GROUP_NUMBERS = 2**20
# Points whose derivatives are computed at once.
_SLOPES_AT_ONCE, _JACOBIANS_AT_ONCE = 32, 256
# A value with its gradient takes as long as this many values.
RUNS_PER_SLOPE = 3


class StandardSpace:
    """A network at standard normal variables, first those of the uniform ones.

    Parameters
    ----------
    flat
        The network, with a law without batch axes.
    read
        A pure function of outputs ``(n, N_y)`` that returns what is kept of them.
    report
        Is told how many runs were done.
    """

    def __init__(
        self,
        flat: FlatNetwork,
        read: Callable[[jax.Array], jax.Array],
        report: Callable[[int], object] = bool,
    ) -> None:
        self.flat, self.read, self._report = flat, read, report
        self.num_runs = 0
        law: Any = flat.law
        self.law, terms = law, law.terms
        uniform, normal = (_moving(terms, uniform=kind) for kind in (True, False))
        self.num_uniform = len(uniform)
        self._moving = np.flatnonzero(np.concatenate([uniform, normal]))
        self._num_all = len(uniform) + len(normal)
        self.num_variables, self._num_outputs = len(self._moving), flat.num_outputs
        widest = max(self.law.num_inputs, self.num_variables, flat.num_outputs)
        self.group_size = max(1, min(_GROUP_SIZE, _GROUP_NUMBERS // widest))
        self._programs: dict[str, Callable[..., Any]] = {}

    def run(self, z: Array) -> tuple[NDArray[Any], Array]:
        """Inputs ``(n, N_x)`` at points ``(n, num_variables)``, and what is kept of the outputs."""
        inputs, kept = self._in_groups("run", self._at, self._rows(z), self.group_size, 1)
        return inputs, kept.astype(np.float64)

    def inputs(self, z: Array) -> NDArray[Any]:
        """What the network takes at points, `taken` of the law, no run; NaN where a point is."""

        def at(standard: jax.Array) -> tuple[jax.Array]:
            return (self.law.taken(self._input(standard)),)

        rows = self._rows(np.nan_to_num(z))
        (inputs,) = self._in_groups("inputs", at, rows, self.group_size, 0)
        return np.where(np.isnan(z).any(axis=1, keepdims=True), np.nan, inputs)

    def _rows(self, z: Array) -> Array:
        """Values of all variables, uniform ones in [-1, 1]."""
        rows = np.zeros((len(z), self._num_all))
        rows[:, self._moving] = z
        rows[:, : self.num_uniform] = erf(rows[:, : self.num_uniform] / np.sqrt(2.0))
        return rows

    def _in_groups(
        self,
        name: str,
        at: Callable[[jax.Array], tuple[jax.Array, ...]],
        rows: Array,
        size: int,
        runs: int,
    ) -> list[NDArray[Any]]:
        """Arrays that a program for `size` rows returns, and counts as so many runs for each."""
        example = np.zeros((max(1, size), rows.shape[1]))
        if name not in self._programs:
            self._programs[name] = compiled_once(at, jnp.asarray(example, self.law.dtype))
        parts = []
        for start in range(0, max(1, len(rows)), len(example)):
            part = rows[start : start + len(example)]
            padded = example.copy()
            padded[: len(part)] = part
            parts.append(self._programs[name](jnp.asarray(padded, self.law.dtype)))
            self._count(runs * len(part))
        # Read at the end: a program runs while the next is called.
        return [np.concatenate(arrays)[: len(rows)] for arrays in zip(*parts, strict=True)]

    def _count(self, number: int) -> None:
        self.num_runs += number
        self._report(number)

    def _at(self, standard: jax.Array) -> tuple[jax.Array, jax.Array]:
        x = self._input(standard)
        return x, self.read(self.flat.at_draws(x))

    def _input(self, standard: jax.Array) -> jax.Array:
        uniform, normal = standard[..., : self.num_uniform], standard[..., self.num_uniform :]
        return self.law.loc + self.law.deviation_at(uniform, normal)

    def _outputs(self, z: jax.Array) -> jax.Array:
        """Outputs ``(N_y,)`` at one point, with derivatives; traced by JAX."""
        full = jnp.zeros(self._num_all, z.dtype).at[self._moving].set(z)
        uniform = jax_erf(full[: self.num_uniform] / np.sqrt(2.0))
        return self.flat(self._input(jnp.concatenate([uniform, full[self.num_uniform :]])))

    def slopes(self, output: int, z: Array) -> tuple[Array, Array]:
        """Output and its gradient at points, shapes ``(n,)`` and ``(n, num_variables)``."""

        def value(z: jax.Array) -> jax.Array:
            return self._outputs(z)[output]

        at = jax.vmap(jax.value_and_grad(value))
        found = self._in_groups(f"slopes of {output}", at, z, _SLOPES_AT_ONCE, RUNS_PER_SLOPE)
        return found[0].astype(np.float64), found[1].astype(np.float64)

    def outputs_and_jacobians(self, z: Array) -> tuple[Array, Array]:
        """Outputs ``(n, N_y)`` and their Jacobians ``(n, N_y, num_variables)`` at points."""

        def at(points: jax.Array) -> tuple[jax.Array, jax.Array]:
            return values_and_jacobians(self._outputs, points, self._num_outputs)

        size = min(_JACOBIANS_AT_ONCE, _GROUP_NUMBERS // (self.num_variables * self._num_outputs))
        runs = 1 + min(self.num_variables, self._num_outputs)
        found = self._in_groups("Jacobians", at, z, size, runs)
        return found[0].astype(np.float64), found[1].astype(np.float64)

    def tangent(self, output: int) -> tuple[float, Array]:
        """Value of an output and its gradient at the mean input, in the space of the inputs."""

        def value(x: jax.Array) -> jax.Array:
            return self.flat(x)[output]

        found, slope = compiled_once(jax.value_and_grad(value), self.law.loc)(self.law.loc)
        self._count(RUNS_PER_SLOPE)
        return float(found), np.asarray(slope, np.float64)


def checked_law(function: str, f: Any, *others: object) -> AbstractInputLaw:
    """The law of the input, if it is one, and all arguments hold numbers."""
    if not _checks.is_concrete(f, *others):
        raise TypeError(
            f"f and all other arguments must hold numbers, got traced values; call {function} "
            f"outside of jit, vmap and grad"
        )
    law = as_input_law(f)
    if law.batch_shape:
        raise ValueError(
            f"f must be one input law, got batch shape {law.batch_shape}; call {function} for each "
            f"of them in a loop, with keys of their own"
        )
    return law


def _moving(terms: tuple[InputTerm, ...], *, uniform: bool) -> NDArray[np.bool_]:
    """Which variables of a kind move an input: half-widths and scales may be zero."""
    found = [np.zeros(0, bool)]
    for term in terms:
        if term.is_uniform == uniform:
            factor = np.asarray(term.factor) != 0
            found.append(factor if term.is_diagonal else factor.any(axis=-2))
    return np.concatenate(found)
