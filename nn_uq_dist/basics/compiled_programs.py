"""Programs that are compiled once, although the functions that they come from are made anew.

A network is a Python function, a bound method or a module. It may read a global or weights that
change from one call to the next, so its identity does not tell what it computes; and `jax.jit` of a
function that is made of it in each call compiles in each call. Here the function is traced and
lowered in every call, which takes a tenth of the time, and a compiled program is looked up by what
was lowered: the text of the program holds all that is not passed as an argument. Arrays that the
function closes over are passed as arguments, so new weights of the same shapes need no new program.
"""

import dataclasses
import hashlib
from collections.abc import Callable, Hashable
from functools import lru_cache, partial
from typing import Any

import jax
import jax.extend.core as jax_core
import numpy as np
from jax import lax

from nn_uq_dist.basics.checks import is_concrete

# Programs that are kept; the ones not used for longest go first.
_MOST_PROGRAMS = 128
# An argument of each program beside those of the function.
_MARK = np.uint8(0)
# What refers to things outside of the text of a program: functions of Python on the host.
_OUTSIDE = ("callback", "stablehlo.send", "stablehlo.recv", "stablehlo.infeed", "stablehlo.outfeed")


def compiled_once[T](function: Callable[..., T], *examples: Any) -> Callable[..., T]:
    """Return `function` compiled for arguments like `examples`; the same program is compiled once.

    Parameters
    ----------
    function
        A function of pytrees of arrays. It may close over arrays.
    *examples
        Arguments that have the structures, shapes, types and devices of those to come. If one of
        them is traced, or something that `function` closes over, there is nothing to compile now,
        and `function` itself is returned.
    """
    leaves = jax.tree.leaves(examples)
    if not is_concrete(leaves):
        return function
    # JAX would remember what the same object computed before. A new partial object is another one.
    closed, shapes = jax.make_jaxpr(partial(function), return_shape=True)(*examples)
    constants = list(closed.consts)
    if not is_concrete(constants):
        return function
    program = _program(closed.jaxpr, [*constants, *leaves])
    structure = jax.tree.structure(shapes)

    def run(*arguments: Any) -> T:
        flat = program(_MARK, *constants, *jax.tree.leaves(arguments))[1]
        result: T = jax.tree.unflatten(structure, flat)
        return result

    return run


def _program(jaxpr: jax_core.Jaxpr, leaves: list[Any]) -> Callable[..., Any]:
    """Compiled program of the variables of a jaxpr, first those for constants, at such leaves."""
    count = len(jaxpr.constvars)

    def evaluated(mark: Any, *flat: Any) -> tuple[Any, list[Any]]:
        # JAX leaves arguments that are not used out of the text. The barrier uses all of them, and
        # stays because the mark is returned. (`keep_unused=True` makes JAX remember the jaxpr.)
        mark, *flat = lax.optimization_barrier((mark, *flat))
        return mark, jax.core.eval_jaxpr(jaxpr, flat[:count], *flat[count:])

    lowered = jax.jit(evaluated).lower(_MARK, *leaves)
    text = lowered.as_text()
    # More arguments than were passed are arrays that JAX has hidden from the text and keeps with
    # the compiled program: such a text, or one that calls something outside, does not determine it.
    signature = text.partition("@main(")[2].partition("\n")[0]
    has_others = signature.count("%arg") != 1 + len(leaves)
    if has_others or [word for word in _OUTSIDE if word in text]:
        return lowered.compile()
    key = (
        hashlib.sha256(text.encode()).digest(),
        # The text has neither weak types nor devices.
        tuple([str(jax.typeof(leaf)) for leaf in leaves]),
        tuple([getattr(leaf, "sharding", None) for leaf in leaves]),
        tuple([getattr(leaf, "committed", False) for leaf in leaves]),
        tuple([str(variable.aval) for variable in jaxpr.outvars]),
        jax.config.jax_default_device,
    )
    return _compiled(_Program(key, lowered.compile))


@dataclasses.dataclass(unsafe_hash=True)
class _Program:
    """A program that is yet to be compiled, as an argument that only its key tells apart."""

    key: Hashable
    compile: Any = dataclasses.field(compare=False)


@lru_cache(_MOST_PROGRAMS)
def _compiled(program: _Program) -> Callable[..., Any]:
    compiled: Any = program.compile()
    # What is kept holds no arrays and no Python functions of the caller.
    program.compile = None
    return compiled
