"""Shares of the variances of outputs that single inputs explain, from draws of a model."""

import jax
import numpy as np
from numpy.typing import NDArray

from nn_uq_dist.linearization._linear_model import LinearModel

Array = NDArray[np.float64]

NUM_DRAWS = 2**16
NUM_BINS = 128
# Numbers in the draws of inputs and outputs together; with thousands of inputs there are fewer.
MOST_NUMBERS = 2**26


def explained_shares(model: LinearModel, key: jax.Array) -> tuple[Array, Array]:
    """First-order indices of a model at one point, and their standard errors, ``(N_y, N_x)``."""
    width = model.input.num_inputs + model.num_outputs
    in_a_bin = max(8, min(NUM_DRAWS, MOST_NUMBERS // width) // NUM_BINS)
    inputs, outputs = model.sample_pairs(key, (NUM_BINS * in_a_bin,))
    y = np.asarray(outputs, np.float64)
    y = y - y.mean(axis=0)
    scale = np.abs(y).max(axis=0)  # before squares, which may overflow
    y = y / np.where(scale > 0, scale, np.nan)
    found = [share_of_bins(np.asarray(x), y) for x in np.asarray(inputs).T]
    value, error = np.array(found).transpose(1, 2, 0)
    return value, error


def share_of_bins(x: NDArray[np.floating], y: Array) -> tuple[Array, Array]:
    r"""Estimate ``Var(E[y | x]) / Var(y)`` for the columns of `y`, with standard errors.

    Parameters
    ----------
    x
        Draws of an input, shape ``(n,)``, `n` a multiple of the number of bins.
    y
        Draws of the outputs with mean 0, shape ``(n, N_y)``.

    Notes
    -----
    What is left of the variance is that about a line in each bin: about the means of the bins it
    would hold the slope within the outermost ones. With the lines `m` and the variance `V` of `y`,
    the influence function of the share `S` is ``(2 y m - m^2 - S y^2) / V``. Where `S` is 0 this
    vanishes to first order, and the standard error is that of a sum of ``2 B`` squares,
    ``sqrt(4 B) / n``.
    """
    if x.min() == x.max():  # a known input
        nothing = np.where(np.isnan(y[0]), np.nan, 0.0)
        return nothing, nothing
    count = len(x)
    order = np.argsort(x, kind="stable")
    groups = y[order].reshape(NUM_BINS, -1, y.shape[1])
    at = x[order].astype(np.float64).reshape(NUM_BINS, -1, 1)
    at = at - at.mean(axis=1, keepdims=True)
    size = groups.shape[1]
    squares = np.sum(at**2, axis=1, keepdims=True)
    slopes = np.sum(at * groups, axis=1, keepdims=True) / np.where(squares > 0, squares, np.inf)
    m = groups.mean(axis=1, keepdims=True) + slopes * at
    variance = np.mean(y**2, axis=0) * count / (count - 1)
    left = np.sum((groups - m) ** 2, axis=(0, 1)) / (NUM_BINS * (size - 2))
    share = np.clip(1 - left / variance, 0, 1)
    influence = (2 * groups * m - m**2 - share * groups**2) / variance
    error = np.sqrt(influence.var(axis=(0, 1)) / count + 4 * NUM_BINS / count**2)
    return share, error
