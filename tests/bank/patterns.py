"""The named distributions of the bank and the points at which each is evaluated."""

import math
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

FRACTIONS = (0.0, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.95, 0.98, 0.993, -0.3, -0.95)
TRANSITION_OFFSETS = (-2.0, -0.5, 0.5, 2.0)


@dataclass(frozen=True)
class Pattern:
    """A distribution: exact double weights, and how many of the leading ones dominate the rest.

    Each entry of `dominating` asks for points in the transition zones of so many large weights.
    """

    name: str
    weights: tuple[float, ...]
    dominating: tuple[int, ...] = ()
    normal_scale: float | None = None
    tags: tuple[str, ...] = ()

    @property
    def edge(self):
        """Half-width of the support of the uniform part."""
        return math.fsum(abs(w) for w in self.weights)

    def points(self):
        """Distinct doubles, center to edge, a few negative, and the transition zones."""
        edge, s = self.edge, self.normal_scale or 0.0
        points = [fraction * edge for fraction in FRACTIONS]
        if s:
            points += [edge, 1.2 * edge, edge + 10 * s]
        for count in self.dominating:
            points += self._transition_points(count)
        return tuple(dict.fromkeys(points))

    def _transition_points(self, count):
        large = [abs(w) for w in self.weights[:count]]
        s, edge = self.normal_scale or 0.0, self.edge
        sd = math.sqrt(math.fsum(w * w for w in self.weights[count:]) / 3 + s * s)
        sums = (
            sum(e * w for e, w in zip(signs, large, strict=True))
            for signs in product((1, -1), repeat=len(large))
        )
        corners = sorted({c for c in sums if c > 0}, reverse=True)[:3]
        points = [c + z * sd for c in corners for z in TRANSITION_OFFSETS]
        # Nearer to the edge than this, rounding of x alone moves the answer by more than 1e-9.
        return [p for p in points if s or p < edge * (1 - 2e-7)]

    def with_normal_part(self, relative):
        """Add a normal part, `relative` to the standard deviation of the uniform part."""
        sd = math.sqrt(math.fsum(w * w for w in self.weights) / 3)
        dominating = self.dominating
        if not dominating and len(self.weights) <= 2:
            dominating = (len(self.weights),)
        return replace(
            self, name=f"{self.name}_normal_part_{relative:g}", dominating=dominating,
            normal_scale=relative * sd, tags=(*self.tags, "normal_part"),
        )  # fmt: skip

    def times(self, factor):
        """In other units."""
        scaled = self._each(lambda v: factor * v, f"times_{factor:.0e}")
        return replace(scaled, tags=(*self.tags, "scaled"))

    def rounded(self):
        """To single precision."""
        return self._each(lambda v: float(np.float32(v)), "float32")

    def _each(self, function, suffix):
        s = self.normal_scale
        return replace(
            self, name=f"{self.name}_{suffix}", weights=tuple(function(w) for w in self.weights),
            normal_scale=None if s is None else function(s),
        )  # fmt: skip


def _draws(n):
    return tuple(np.random.default_rng(n).standard_normal(n).tolist())


def _lognormal_draws(n, sigma):
    return tuple(np.random.default_rng(n).lognormal(0.0, sigma, n).tolist())


# Tag, name, weights, numbers of dominating weights.
_PLAIN = (
    ("few", "unequal_1", (1.0,)),
    ("few", "unequal_2", (1.0, -0.6)),
    ("few", "unequal_3", (0.9, -0.5, 0.3)),
    ("few", "unequal_4", (0.8, -0.35, 1.1, 0.6)),
    ("few", "unequal_5", (0.7, 1.3, -0.4, 0.25, 0.9)),
    *(("comparable", f"draws_{n}", _draws(n)) for n in (6, 12, 31, 120)),
    ("comparable", "equal_4", (1.0,) * 4),
    ("comparable", "equal_8", (0.3,) * 8),
    ("comparable", "equal_31", (0.7,) * 31),
    ("spread", "lognormal_12", _lognormal_draws(12, 2.0)),
    ("spread", "lognormal_31", _lognormal_draws(31, 1.5)),
    ("spread", "geometric_10", tuple(0.3**k for k in range(10))),
    ("dominated", "one_large_3_tiny", (1.0, *(1e-6,) * 3), 1),
    ("dominated", "one_large_4_small", (1.0, 0.02, -0.03, 0.01, 0.02), 1),
    ("dominated", "one_large_7_small", (1.0, *(2e-3,) * 7), 1),
    ("dominated", "one_large_10_small", (1.0, *(1e-3,) * 10), 1),
    ("dominated", "two_large_5_small", (1.0, 0.7, *(1e-4,) * 5), 2),
    ("dominated", "three_large_20_small", (1.0, 0.9, 0.8, *(1e-3,) * 20), 3),
    ("dominated", "four_large_10_small", (1.0, 0.8, 0.6, 0.5, *(1e-4,) * 10), 4),
    ("dominated", "three_magnitudes", (1.0, 1e-4, 1e-8), 1, 2),
    ("zeros", "zeros_inside", (1.0, 0.5, 0.0, 0.25, 0.0)),
    ("zeros", "three_equal_and_zero", (1.0, 1.0, 1.0, 0.0)),
    ("zeros", "one_and_zeros", (1.0, 0.0, 0.0)),
)
PLAIN = {
    name: Pattern(name, weights, tuple(dominating), tags=(tag,))
    for tag, name, weights, *dominating in _PLAIN
}


def float64_patterns():
    """All distributions in double precision."""
    names = "unequal_1 unequal_2 unequal_4 draws_12 draws_31 one_large_10_small"
    found = PLAIN | {
        (p := PLAIN[name].with_normal_part(relative)).name: p
        for name in names.split()
        for relative in (0.01, 0.1, 1.0)
    }
    names = (
        "unequal_2 unequal_3 draws_12 draws_31 one_large_3_tiny one_large_7_small zeros_inside "
        "unequal_4_normal_part_0.1"
    )
    scaled = [found[name].times(factor) for name in names.split() for factor in (1e-8, 1e9)]
    return [*found.values(), *scaled]


def float32_patterns():
    """Comparable weights rounded to single precision."""
    plain = [PLAIN[name] for name in (*(f"draws_{n}" for n in (6, 12, 31, 120)), "equal_8")]
    normal = [
        p.with_normal_part(relative)
        for p in plain
        if p.name != "draws_120"
        for relative in (0.1, 1.0)
    ]
    return [pattern.rounded() for pattern in [*plain, PLAIN["equal_31"], *normal]]


def derivative_patterns():
    """Distributions whose derivatives are stored, with the points as fractions of the edge."""
    four, with_scale = (0.03, 0.45, -0.7, 0.97), (0.05, 0.6, -0.9, 1.2)
    return [
        (PLAIN["unequal_2"], (0.05, 0.6, -0.8)),
        (PLAIN["unequal_3"], four),
        (PLAIN["unequal_4"], four),
        (PLAIN["zeros_inside"], four),
        (PLAIN["three_equal_and_zero"], (0.03, 0.55, -0.7, 0.97)),
        (PLAIN["one_large_7_small"], (0.02, 0.975, -0.985, 0.993)),
        (PLAIN["draws_6"], four),
        (PLAIN["draws_12"], (0.03, 0.45, -0.95)),
        (PLAIN["unequal_1"].with_normal_part(0.1), (0.05, 0.97, -1.1)),
        (PLAIN["unequal_2"].with_normal_part(0.3), with_scale),
        (PLAIN["zeros_inside"].with_normal_part(0.3), with_scale),
        (PLAIN["one_large_4_small"].with_normal_part(0.1), (0.05, 0.97, -0.99)),
    ]
