"""Sizes of the arrays of a program, from which its memory is known without running it."""

import math

import jax
from jax.extend import core


def largest_array(function, *arguments):
    """Numbers in the largest array that the traced function makes, loops and branches included."""
    return _largest(jax.make_jaxpr(function)(*arguments))


def _largest(program):
    equations = getattr(program, "jaxpr", program).eqns
    sizes = [math.prod(v.aval.shape) for equation in equations for v in equation.outvars]
    leaves = jax.tree.leaves([equation.params for equation in equations], is_leaf=_is_program)
    return max(sizes + [_largest(leaf) for leaf in leaves if _is_program(leaf)], default=0)


def _is_program(leaf):
    return isinstance(leaf, core.Jaxpr | core.ClosedJaxpr)
