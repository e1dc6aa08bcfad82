"""Sizes of the arrays of a program, from which its memory is known without running it."""

import math

import jax
from jax.extend import core


def largest_array(function, *arguments):
    """Numbers in the largest array that the traced function makes, loops and branches included."""
    return _largest(jax.make_jaxpr(function)(*arguments).jaxpr)


def _largest(jaxpr):
    sizes = [math.prod(v.aval.shape) for equation in jaxpr.eqns for v in equation.outvars]
    return max(sizes + [_largest(inner) for inner in _inner(jaxpr)], default=0)


def _inner(jaxpr):
    for equation in jaxpr.eqns:
        for leaf in jax.tree.leaves(
            equation.params, is_leaf=lambda x: isinstance(x, core.Jaxpr | core.ClosedJaxpr)
        ):
            if isinstance(leaf, core.ClosedJaxpr):
                yield leaf.jaxpr
            elif isinstance(leaf, core.Jaxpr):
                yield leaf
