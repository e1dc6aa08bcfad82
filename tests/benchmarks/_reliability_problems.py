"""Problems of the reliability challenge of TNO (Rozsas and Slobbe 2019), with references.

The definitions are those of OpenTURNS' otbenchmark. All inputs are standard normal: functions turn
them into their own variables. Problems fail below zero. Probabilities of two variables are sums
over lines of the plane, whose crossings are found between 8,000 points; those of sums with a known
distribution are one integral; the others are 40 million draws. All in float64.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.numpy import maximum, minimum
from jax.scipy.special import log_ndtr
from scipy.integrate import quad
from scipy.special import gammainc, ndtr
from scipy.stats import chi2, norm

LINES, POINTS, EDGE = 4000, 8000, 8.5
DRAWS, DRAWS_AT_ONCE = 40_000_000, 1_000_000
ROOT = math.sqrt(2)


class Problem(NamedTuple):
    """A margin of standard normal variables, on the first axis, that fails below zero."""

    margin: Callable
    num_inputs: int = 2
    exact: float | None = None  # by an integral of one variable

    def network(self, z):
        """The margin as a network."""
        return self.margin(z)[None]

    def reference(self):
        """Probability and relative standard error."""
        if self.exact is not None:
            return self.exact, 0.0
        margin = jax.jit(self.margin)
        return of_plane(margin) if self.num_inputs == 2 else of_draws(margin, self.num_inputs)


def of_plane(margin):
    """Probability by lines of the first variable, along which crossings are interpolated."""
    edges = np.linspace(-EDGE, EDGE, LINES + 1)
    middle, masses = (edges[1:] + edges[:-1]) / 2, np.diff(ndtr(edges))
    along = np.linspace(-EDGE, EDGE, POINTS)
    total = 0.0
    for z, mass in zip(middle, masses, strict=True):
        g = np.asarray(margin(np.stack([np.full_like(along, z), along])))
        fails = g < 0
        change = np.flatnonzero(fails[1:] != fails[:-1])
        share = g[change] / (g[change] - g[change + 1])
        at = ndtr(along[change] + share * (along[1] - along[0]))
        ends = np.concatenate([[0.0] * int(fails[0]), at, [1.0] * int(fails[-1])])
        total += (ends[1::2] - ends[::2]).sum() * mass
    return total, 1e-4


def of_draws(margin, num_inputs):
    """Share of failing draws."""
    rng, size = np.random.default_rng(0), (num_inputs, DRAWS_AT_ONCE)
    counts = [(margin(rng.standard_normal(size)) < 0).sum() for _ in range(DRAWS // DRAWS_AT_ONCE)]
    fails = int(sum(counts))
    return fails / DRAWS, 1 / math.sqrt(fails)


def log_normal(z, mean, sd):
    """Log-normal variable of this mean and standard deviation."""
    variance = math.log1p((sd / mean) ** 2)
    return jnp.exp(math.log(mean) - variance / 2 + math.sqrt(variance) * z)


def plastic_frame(z):
    """RP8: a sum of six log-normal variables."""
    means, sds = (120.0,) * 4 + (50.0, 40.0), (12.0,) * 4 + (10.0, 8.0)
    factors = 1, 2, 2, 1, -5, -5
    return sum(c * log_normal(*of) for c, *of in zip(factors, z, means, sds, strict=True))


def shaft(z):
    """RP14: uniform, normal and Gumbel variables."""
    strength = 70 + 10 * jnp.exp(log_ndtr(z[0]))
    diameter = 39 + 0.1 * z[1]
    scale = 272.9 * math.sqrt(6) / math.pi
    force = 1342 - np.euler_gamma * scale - scale * jnp.log(-log_ndtr(z[2]))
    length, torque = 400 + 0.1 * z[3], 250_000 + 35_000 * z[4]
    bending = jnp.sqrt((force * length) ** 2 / 16 + torque**2)
    return strength - 32 / (math.pi * diameter**3) * bending


def steel_frame(z):
    """RP38: seven normal variables."""
    means = (350.0, 50.8, 3.81, 173.0, 9.38, 33.1, 0.036)
    sds = (35.0, 5.08, 0.381, 17.3, 0.938, 3.31, 0.0036)
    x1, x2, x3, x4, x5, x6, x7 = (m + s * one for m, s, one in zip(means, sds, z, strict=True))
    above = x4**2 - 4 * x5 * x6 * x7**2 + x4 * (x6 + 4 * x5 + 2 * x6 * x7)
    return 15.59e4 - x1 * x2**3 / (2 * x3**3) * above / (x4 * x5 * (x4 + x6 + 2 * x6 * x7))


def series_of_four(bent, along, across, rest):
    """The least of two bent margins on both sides of a line, and of two planes."""
    return minimum(bent - jnp.abs(along) / ROOT, rest - jnp.abs(across))


def ridges(z):
    """RP55: a series of four, of uniform variables."""
    x, y = 2 * jnp.exp(log_ndtr(z)) - 1
    return series_of_four(0.2 + 0.6 * (x - y) ** 4, x - y, x - y, 5 / ROOT - 2.2)


def branches(z):
    """The four-branch system of Waarts (2000)."""
    x, y = z
    return series_of_four(3 + 0.1 * (x - y) ** 2, x + y, x - y, 7 / ROOT)


def bends(z):
    """RP110: two piecewise linear parts."""
    first = jnp.where(z[0] > 3.5, 4 - z[0], 0.85 - 0.1 * z[0])
    return minimum(first, jnp.where(z[1] > 2, 0.5 - 0.1 * z[1], 2.3 - z[1]))


def jumps(z):
    """RP77: two planes, each where the third variable is on its side."""
    first, second, third = 10 + 0.5 * z[0], z[1], 4 + z[2]
    return jnp.where(third <= 5, first - second - third, third - second)


def curves(z):
    """The two margins of RP57 and RP89."""
    return 3 - z[0] ** 2 + z[1] ** 3, 2 - z[0] - 8 * z[1]


def problems():
    """The problems by name."""
    jump = quad(lambda t: norm.pdf(t, 4) * ndtr((t - 10) / math.sqrt(1.25)), -4, 5)[0]
    jump += quad(lambda t: norm.pdf(t, 4) * ndtr(-t), 5, 12)[0]
    squares = quad(
        lambda c: chi2.pdf(c, 99) * ndtr(4.5 - 0.1 * c), 20, 250, points=[60], limit=500
    )[0]
    exponential = float(gammainc(20, 8.951))
    return {
        "RP8, 6 log-normal": Problem(plastic_frame, 6),
        "RP14, shaft": Problem(shaft, 5),
        "RP22": Problem(lambda z: 2.5 - (z[0] + z[1]) / ROOT + 0.1 * (z[0] - z[1]) ** 2),
        "RP24": Problem(
            lambda z: 2.5 - 0.2357 * 3 * (z[0] - z[1]) + 0.00463 * (3 * (z[0] + z[1])) ** 4
        ),
        "RP25": Problem(lambda z: maximum(z[0] ** 2 - 8 * z[1] + 16, -16 * z[0] + z[1] ** 2 + 32)),
        "RP28, product": Problem(
            lambda z: (78_064.4 + 11_709.7 * z[0]) * (0.0104 + 0.00156 * z[1]) - 146.14
        ),
        "RP31": Problem(lambda z: 2 - z[1] + (4 * z[0]) ** 4),
        "RP33": Problem(lambda z: minimum(3 * math.sqrt(3) - z[0] - z[1] - z[2], 3 - z[2]), 3),
        "RP35": Problem(
            lambda z: minimum(
                2 - z[1] + jnp.exp(-0.1 * z[0] ** 2) + (0.2 * z[0]) ** 4, 4.5 - z[0] * z[1]
            )
        ),
        "RP38, frame": Problem(steel_frame, 7),
        "RP53": Problem(
            lambda z: jnp.sin(2.5 * (1.5 + z[0])) + 2 - ((1.5 + z[0]) ** 2 + 4) * (1.5 + z[1]) / 20
        ),
        "RP54, 20 exponential": Problem(
            lambda z: -jnp.sum(log_ndtr(-z), axis=0) - 8.951, 20, exponential
        ),
        "RP55": Problem(ridges),
        "RP57": Problem(
            lambda z: minimum(maximum(*curves(z)), (z[0] + 3) ** 2 + (z[1] + 3) ** 2 - 4)
        ),
        "RP63, 100 inputs": Problem(
            lambda z: 0.1 * jnp.sum(z[1:] ** 2, axis=0) - z[0] - 4.5, 100, squares
        ),
        "RP75": Problem(lambda z: 3 - z[0] * z[1]),
        "RP77, jump": Problem(jumps, 3, jump),
        "RP89": Problem(lambda z: minimum(*curves(z))),
        "RP107": Problem(lambda z: 5 - jnp.sum(z, axis=0) / math.sqrt(10), 10, float(ndtr(-5.0))),
        "RP110": Problem(bends),
        "four branches": Problem(branches),
    }
