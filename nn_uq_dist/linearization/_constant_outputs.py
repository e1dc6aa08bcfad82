"""Outputs that do not depend on the input raise an error that names their position."""

import jax
import numpy as np

from nn_uq_dist.basics import _checks
from nn_uq_dist.inputs import LinearImage


def require_varying(image: LinearImage) -> None:
    """Raise ``ValueError`` if an output is known to be constant."""
    if not _checks.is_concrete(image):
        return
    # In NumPy, which compiles nothing; not in float64, which would take twice the memory.
    constant = np.asarray(jax.tree.map(np.asarray, image).is_constant)
    if not constant.any():
        return
    *batch, output = _checks.first_index(constant)
    where = f"output {output}" + (f" of batch entry {tuple(batch)}" if batch else "")
    count = int(constant.sum())
    others = f" and {count - 1} more" if count > 1 else ""
    raise ValueError(
        f"every output must vary with the input, got zero sensitivity for {where}{others}: a "
        f"constant has no density; pass noise_scale > 0 or leave the output out of the network"
    )
