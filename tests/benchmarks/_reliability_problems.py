"""Problems of the reliability challenge of TNO (Rozsas and Slobbe 2019), with references.

The definitions are those of OpenTURNS' otbenchmark. All inputs are standard normal: functions turn
them into their own variables. Problems fail below zero. Probabilities of two variables are sums
over lines of the plane, whose crossings are found between 8,000 points; those of sums with a known
distribution are one integral; the others are 40 million draws.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr
from scipy.integrate import quad
from scipy.special import gammainc, ndtr
from scipy.special import log_ndtr as log_ndtr_of_arrays
from scipy.stats import chi2, norm

Margin = Callable[[Any, Any], Any]  # of the variables on the first axis, and the array module
LINES, POINTS, EDGE = 4000, 8000, 8.5
DRAWS, DRAWS_AT_ONCE = 40_000_000, 1_000_000


class Problem(NamedTuple):
    """A margin of standard normal variables that fails below zero."""

    margin: Margin
    num_inputs: int
    exact: float | None = None  # by an integral of one variable

    def network(self, z: Any) -> Any:
        """The margin as a network."""
        return self.margin(z, jnp)[None]

    def reference(self) -> tuple[float, float]:
        """Probability and relative standard error."""
        if self.exact is not None:
            return self.exact, 0.0
        return of_plane(self.margin) if self.num_inputs == 2 else of_draws(self)


def of_plane(margin: Margin) -> tuple[float, float]:
    """Probability by lines of the first variable, along which crossings are interpolated."""
    edges = np.linspace(-EDGE, EDGE, LINES + 1)
    middle = (edges[1:] + edges[:-1]) / 2
    along = np.linspace(-EDGE, EDGE, POINTS)
    total = 0.0
    for z, low, high in zip(middle, edges[:-1], edges[1:], strict=True):
        g = margin(np.stack([np.full_like(along, z), along]), np)
        fails = g < 0
        change = np.flatnonzero(fails[1:] != fails[:-1])
        share = g[change] / (g[change] - g[change + 1])
        at = ndtr(along[change] + share * (along[1] - along[0]))
        ends = np.concatenate([[0.0] * int(fails[0]), at, [1.0] * int(fails[-1])])
        total += (ends[1::2] - ends[::2]).sum() * (ndtr(high) - ndtr(low))
    return total, 1e-4


def of_draws(problem: Problem) -> tuple[float, float]:
    """Share of failing draws."""
    rng = np.random.default_rng(0)
    calls = DRAWS // DRAWS_AT_ONCE
    size = (problem.num_inputs, DRAWS_AT_ONCE)
    fails = sum(
        int((problem.margin(rng.standard_normal(size), np) < 0).sum()) for _ in range(calls)
    )
    return fails / DRAWS, 1 / math.sqrt(fails)


def log_normal(z: Any, mean: float, sd: float, xp: Any) -> Any:
    """Log-normal variable of this mean and standard deviation."""
    variance = math.log1p((sd / mean) ** 2)
    return xp.exp(math.log(mean) - variance / 2 + math.sqrt(variance) * z)


def log_cdf(z: Any, xp: Any) -> Any:
    """Logarithm of the standard normal distribution function."""
    return log_ndtr(z) if xp is jnp else log_ndtr_of_arrays(z)


def plastic_frame(z: Any, xp: Any) -> Any:
    """RP8: a sum of six log-normal variables."""
    means, sds = (120.0,) * 4 + (50.0, 40.0), (12.0,) * 4 + (10.0, 8.0)
    x = [log_normal(z[i], *pair, xp) for i, pair in enumerate(zip(means, sds, strict=True))]
    return x[0] + 2 * x[1] + 2 * x[2] + x[3] - 5 * x[4] - 5 * x[5]


def shaft(z: Any, xp: Any) -> Any:
    """RP14: uniform, normal and Gumbel variables."""
    strength = 70 + 10 * xp.exp(log_cdf(z[0], xp))
    diameter = 39 + 0.1 * z[1]
    scale = 272.9 * math.sqrt(6) / math.pi
    force = 1342 - np.euler_gamma * scale - scale * xp.log(-log_cdf(z[2], xp))
    length, torque = 400 + 0.1 * z[3], 250_000 + 35_000 * z[4]
    root = xp.sqrt((force * length) ** 2 / 16 + torque**2)
    return strength - 32 / (math.pi * diameter**3) * root


def steel_frame(z: Any, xp: Any) -> Any:
    """RP38: seven normal variables."""
    del xp
    means = (350.0, 50.8, 3.81, 173.0, 9.38, 33.1, 0.036)
    sds = (35.0, 5.08, 0.381, 17.3, 0.938, 3.31, 0.0036)
    x1, x2, x3, x4, x5, x6, x7 = (
        m + s * z[i] for i, (m, s) in enumerate(zip(means, sds, strict=True))
    )
    above = x4**2 - 4 * x5 * x6 * x7**2 + x4 * (x6 + 4 * x5 + 2 * x6 * x7)
    return 15.59e4 - x1 * x2**3 / (2 * x3**3) * above / (x4 * x5 * (x4 + x6 + 2 * x6 * x7))


def ridges(z: Any, xp: Any) -> Any:
    """RP55: a series of four, of uniform variables."""
    x, y = (2 * xp.exp(log_cdf(z[i], xp)) - 1 for i in (0, 1))
    root = math.sqrt(2)
    first = 0.2 + 0.6 * (x - y) ** 4
    parts = (first - (x - y) / root, first + (x - y) / root)
    rest = (x - y + 5 / root - 2.2, y - x + 5 / root - 2.2)
    return xp.minimum(xp.minimum(*parts), xp.minimum(*rest))


def branches(z: Any, xp: Any) -> Any:
    """The four-branch system of Waarts (2000)."""
    x, y = z
    root = math.sqrt(2)
    bent = 3 + 0.1 * (x - y) ** 2
    parts = xp.minimum(bent - (x + y) / root, bent + (x + y) / root)
    return xp.minimum(parts, xp.minimum(x - y + 7 / root, y - x + 7 / root))


def series_of_three(z: Any, xp: Any) -> Any:
    """RP57."""
    x, y = z
    both = xp.maximum(-(x**2) + y**3 + 3, 2 - x - 8 * y)
    return xp.minimum(both, (x + 3) ** 2 + (y + 3) ** 2 - 4)


def bends(z: Any, xp: Any) -> Any:
    """RP110: two piecewise linear parts."""
    first = xp.where(z[0] > 3.5, 4 - z[0], 0.85 - 0.1 * z[0])
    return xp.minimum(first, xp.where(z[1] > 2, 0.5 - 0.1 * z[1], 2.3 - z[1]))


def jumps(z: Any, xp: Any) -> Any:
    """RP77: two planes, each where the third variable is on its side."""
    first, second, third = 10 + 0.5 * z[0], z[1], 4 + z[2]
    return xp.where(third <= 5, first - second - third, third - second)


def sum_of_squares(z: Any, xp: Any) -> Any:
    """RP63."""
    return 0.1 * xp.sum(z[1:] ** 2, axis=0) - z[0] - 4.5


def problems() -> dict[str, Problem]:
    """The problems by name."""
    jump = quad(lambda t: norm.pdf(t, 4) * ndtr((t - 10) / math.sqrt(1.25)), -4, 5)[0]
    jump += quad(lambda t: norm.pdf(t, 4) * ndtr(-t), 5, 12)[0]
    squares = quad(
        lambda c: chi2.pdf(c, 99) * ndtr(4.5 - 0.1 * c), 20, 250, points=[60], limit=500
    )[0]
    return {
        "RP8, 6 log-normal": Problem(plastic_frame, 6),
        "RP14, shaft": Problem(shaft, 5),
        "RP22": Problem(
            lambda z, _: 2.5 - (z[0] + z[1]) / math.sqrt(2) + 0.1 * (z[0] - z[1]) ** 2, 2
        ),
        "RP24": Problem(
            lambda z, _: 2.5 - 0.2357 * 3 * (z[0] - z[1]) + 0.00463 * (3 * (z[0] + z[1])) ** 4, 2
        ),
        "RP25": Problem(
            lambda z, xp: xp.maximum(z[0] ** 2 - 8 * z[1] + 16, -16 * z[0] + z[1] ** 2 + 32), 2
        ),
        "RP28, product": Problem(
            lambda z, _: (78_064.4 + 11_709.7 * z[0]) * (0.0104 + 0.00156 * z[1]) - 146.14, 2
        ),
        "RP31": Problem(lambda z, _: 2 - z[1] + (4 * z[0]) ** 4, 2),
        "RP33": Problem(
            lambda z, xp: xp.minimum(3 * math.sqrt(3) - z[0] - z[1] - z[2], 3 - z[2]), 3
        ),
        "RP35": Problem(
            lambda z, xp: xp.minimum(
                2 - z[1] + xp.exp(-0.1 * z[0] ** 2) + (0.2 * z[0]) ** 4, 4.5 - z[0] * z[1]
            ),
            2,
        ),
        "RP38, frame": Problem(steel_frame, 7),
        "RP53": Problem(
            lambda z, xp: (
                xp.sin(2.5 * (1.5 + z[0])) + 2 - ((1.5 + z[0]) ** 2 + 4) * (1.5 + z[1]) / 20
            ),
            2,
        ),
        "RP54, 20 exponential": Problem(
            lambda z, xp: -xp.sum(log_cdf(-z, xp), axis=0) - 8.951, 20, float(gammainc(20, 8.951))
        ),
        "RP55": Problem(ridges, 2),
        "RP57": Problem(series_of_three, 2),
        "RP63, 100 inputs": Problem(sum_of_squares, 100, squares),
        "RP75": Problem(lambda z, _: 3 - z[0] * z[1], 2),
        "RP77, jump": Problem(jumps, 3, jump),
        "RP89": Problem(
            lambda z, xp: xp.minimum(-(z[0] ** 2) + z[1] ** 3 + 3, 2 - z[0] - 8 * z[1]), 2
        ),
        "RP107": Problem(
            lambda z, xp: 5 - xp.sum(z, axis=0) / math.sqrt(10), 10, float(ndtr(-5.0))
        ),
        "RP110": Problem(bends, 2),
        "four branches": Problem(branches, 2),
    }
