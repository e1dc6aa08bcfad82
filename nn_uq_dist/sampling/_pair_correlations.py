r"""Correlations of every two of many outputs at once, without their errors.

Two outputs `a` and `b` have weights of their own, with which :math:`z_a, z_b, z_a^2 - 1, z_b^2 - 1`
and :math:`z_a z_b - r` of their linear outputs have mean 0 (`weighted_sample`). All these columns,
and all that is averaged, are products of a function of `a` and one of `b`. So the averages of all
pairs are products of matrices, and a weighted mean is :math:`E y - E c^T S^+ \mathrm{cov}(c, y)`.
"""

from itertools import combinations_with_replacement

import numpy as np

from nn_uq_dist.basics.concrete import FloatArray
from nn_uq_dist.sampling.weighted_sample import NEGLIGIBLE, Mask

# Outputs whose pairs with all others are in memory at once.
_BLOCK = 64
# The columns as products of a function of either output, of 1, z and z^2 - 1 by their numbers, and
# what is averaged, of whether it is used, y and y^2.
_COLUMNS = (1, 0), (0, 1), (2, 0), (0, 2), (1, 1)
_RESPONSES = (0, 0), (1, 0), (0, 1), (2, 0), (0, 2), (1, 1)

type Table = list[list[FloatArray]]


def correlations(z: FloatArray, network: FloatArray, used: Mask, known: FloatArray) -> FloatArray:
    """Correlations of all outputs, ``(R, R)``; NaN for constants, and where few draws are used.

    Parameters
    ----------
    z, network, used
        Standardized linear outputs, outputs of the network, and which of these are finite, ``(R,
        n)``.
    known
        Correlations of the linear outputs, ``(R, R)``.
    """
    count = np.maximum(used.sum(axis=1, keepdims=True), 1)
    y = np.where(used, network, 0.0)
    center = y.sum(axis=1, keepdims=True) / count
    y = np.where(used, network - center, 0.0)
    unit = np.abs(y).max(axis=1, keepdims=True)
    y = y / np.where(unit > 0, unit, 1)
    # The spread of a constant output is only rounding error.
    rounding = 4 * np.finfo(np.float64).eps * (np.abs(center) / np.where(unit > 0, unit, 1) + 1)
    least = rounding[:, 0] ** 2
    # Functions of the linear output, products of two of them, and with those of the output.
    functions = np.ones_like(z), z, z**2 - 1
    products = [[one * other for other in functions] for one in functions]
    mixed = [[one * other for other in (used.astype(float), y, y**2)] for one in functions]
    found = np.full(known.shape, np.nan)
    for start in range(0, len(z), _BLOCK):
        rows = slice(start, start + _BLOCK)
        found[rows] = _of_rows(rows, products, mixed, known[rows], least)
    upper = np.triu(found, 1)
    varies = (unit > 0) & (rounding < 1)
    return upper + upper.T + np.diag(np.where(varies[:, 0], 1.0, np.nan))


def _of_rows(
    rows: slice, products: Table, mixed: Table, known: FloatArray, least: FloatArray
) -> FloatArray:
    """Correlations of some outputs with all."""

    def mean(table: Table, one: tuple[int, int], other: tuple[int, int]) -> FloatArray:
        """Mean of functions of both outputs, each a product of two, by their numbers."""
        (a, b), (c, d) = one, other
        return table[a][c][rows] @ table[b][d].T / table[0][0].shape[1]

    means = [mean(products, column, (0, 0)) for column in _COLUMNS]
    gram = np.empty((*known.shape, 5, 5))
    for i, j in combinations_with_replacement(range(5), 2):
        product = mean(products, _COLUMNS[i], _COLUMNS[j]) - means[i] * means[j]
        gram[..., i, j] = gram[..., j, i] = product
    values, vectors = np.linalg.eigh(gram)
    kept = values > NEGLIGIBLE * values.max(axis=-1, initial=0, keepdims=True)
    off = np.stack([*means[:4], means[4] - known], axis=-1)
    along = (off[..., None, :] @ vectors)[..., 0, :] * kept / np.where(kept, values, 1)
    slopes = np.moveaxis((vectors @ along[..., None])[..., 0], -1, 0)
    weighted = []
    for response in _RESPONSES:
        total = plain = mean(mixed, (0, 0), response)
        for column, center, slope in zip(_COLUMNS, means, slopes, strict=True):
            total = total - slope * (mean(mixed, column, response) - center * plain)
        weighted.append(total)
    share, *others = weighted
    used = mixed[0][0]
    enough = used[rows] @ used.T >= 2 * (kept.sum(axis=-1) + 2)
    with np.errstate(invalid="ignore", divide="ignore"):
        a, b, aa, bb, ab = (part / share for part in others)
        first, second = aa - a * a, bb - b * b
        valid = enough & (first > least[rows, None]) & (second > least)
        found: FloatArray = np.clip((ab - a * b) / np.sqrt(first * second), -1, 1)
    return np.where(valid, found, np.nan)
