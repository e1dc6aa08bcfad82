"""Entropies by quadrature of densities that share no algebra with the package.

Up to five weights: alternating sums of iterated integrals of the normal distribution. More: the
difference of two values of the distribution function of all weights but the largest, whose
characteristic function is inverted by the midpoint rule. Densities are right to 1e-14 in absolute
terms, which is what an entropy needs.
"""

import itertools
import math

import numpy as np
from scipy.special import ndtr

# Panels halve this often towards each knot.
_DEPTH = 58


def entropy(weights, scale):
    """Differential entropy of ``sum_k w_k U_k + s N``, all weights positive."""
    weights = sorted(weights, reverse=True)
    if len(weights) <= 5:
        signs = itertools.product([1, -1], repeat=len(weights))
        knots = [abs(np.dot(sign, weights)) for sign in signs]
        return _by_quadrature(_alternating_sum(weights, scale), knots, sum(weights) + 13 * scale)
    largest = weights[0]
    below, reach = _distribution_function(np.array(weights[1:]), scale)

    def density(x):
        return (below(largest - x) - below(-largest - x)) / (2 * largest)

    knots = [0, largest, abs(largest - reach), largest + reach]
    return _by_quadrature(density, knots, largest + reach)


def _alternating_sum(weights, scale):
    order = len(weights) - 1
    patterns = [np.array(sign) for sign in itertools.product([1, -1], repeat=len(weights))]

    def excess(a):
        """``E[(a - s N)_+^order] / order!``"""
        if not scale:
            return np.maximum(a, 0) ** order / math.factorial(order) if order else 1.0 * (a > 0)
        z = a / scale
        before, current = np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi), ndtr(z)
        for j in range(1, order + 1):
            before, current = current, (z * current + before) / j
        return scale**order * current

    def density(x):
        terms = (np.prod(sign) * excess(np.dot(sign, weights) - x) for sign in patterns)
        return sum(terms) / np.prod(2 * np.array(weights))

    return density


def _distribution_function(weights, scale):
    """The distribution function of a smooth distribution, and beyond which distance it is 0 and
    1."""
    deviation = math.sqrt(np.sum(weights**2) / 3 + scale**2)
    reach = min(weights.sum() + 13 * scale, 16 * deviation)
    step = math.pi / (2.2 * reach)
    angle = (np.arange(40_000) + 0.5) * step
    factors = np.sinc(weights[:, None] * angle / np.pi)
    values = np.prod(factors, axis=0) * np.exp(-0.5 * (scale * angle) ** 2)
    last = np.flatnonzero(np.abs(values) > 1e-19)[-1] + 1
    angle, values = angle[:last], values[:last] / angle[:last]

    def below(x):
        clipped = np.clip(x, -1.05 * reach, 1.05 * reach)
        portions = np.array_split(clipped, -(-len(clipped) // 2000))
        sums = np.concatenate([np.sin(np.outer(part, angle)) @ values for part in portions])
        middle = 0.5 + sums * step / math.pi
        return np.where(x >= reach, 1, np.where(x <= -reach, 0, middle))

    return below, reach


def _by_quadrature(density, knots, end):
    """Twice the integral of ``-p log p`` from 0 to the end, with panels graded at the knots."""
    steps = end * 2.0 ** -np.arange(_DEPTH)
    ends = np.concatenate([knots, [0, end], *[k + s * steps for k in knots for s in (1, -1)]])
    ends = np.unique(np.clip(ends, 0, end))
    ends = ends[np.concatenate([[True], np.diff(ends) > 1e-15 * end])]
    points, rule = np.polynomial.legendre.leggauss(16)
    half = 0.5 * np.diff(ends)[:, None]
    values = density((0.5 * (ends[1:] + ends[:-1])[:, None] + half * points).ravel())
    lengths = (half * rule).ravel()
    assert abs(2 * lengths @ values - 1) < 1e-10
    positive = values > 1e-300
    logs = np.log(np.where(positive, values, 1))
    return -2 * lengths @ (values * logs * positive)
