"""Copies of pytrees in NumPy's float64, for results that are shown and not differentiated."""

import jax
import numpy as np
from numpy.typing import NDArray

type FloatArray = NDArray[np.float64]


def in_float64[T](tree: T) -> T:
    """Return the same object with NumPy leaves in float64; its values must be known.

    What is computed from the copy stays in NumPy: exact to float64 whatever the precision of JAX
    is, and without a program to compile. `nn_uq_dist.inputs.LinearImage` and all that it is made
    from work on either kind of array; transformations of JAX take the original.
    """
    copy: T = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), tree)
    return copy
