"""The named distributions of the bank and the points at which each is evaluated."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

FRACTIONS = (0.0, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.95, 0.98, 0.993, -0.3, -0.95)
TRANSITION_OFFSETS = (-2.0, -0.5, 0.5, 2.0)
RELATIVE_NORMAL_SCALES = (0.01, 0.1, 1.0)


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
    def edge(self) -> float:
        """Half-width of the support of the uniform part."""
        return math.fsum(abs(w) for w in self.weights)

    def points(self) -> tuple[float, ...]:
        """Distinct doubles, centre to edge, a few negative, and the transition zones."""
        edge, s = self.edge, self.normal_scale or 0.0
        points = [fraction * edge for fraction in FRACTIONS]
        if s:
            points += [edge, 1.2 * edge, edge + 10 * s]
        for count in self.dominating:
            points += self._transition_points(count)
        return tuple(dict.fromkeys(points))

    def _transition_points(self, count: int) -> list[float]:
        large = [abs(w) for w in self.weights[:count]]
        s, edge = self.normal_scale or 0.0, self.edge
        small = self.weights[count:]
        sd = math.sqrt(math.fsum(w * w for w in small) / 3 + s * s)
        sums = (
            sum(e * w for e, w in zip(signs, large, strict=True))
            for signs in product((1, -1), repeat=len(large))
        )
        corners = sorted({c for c in sums if c > 0}, reverse=True)[:3]
        points = [c + z * sd for c in corners for z in TRANSITION_OFFSETS]
        # Nearer to the edge than this, rounding of x alone moves the answer by more than 1e-9.
        return [p for p in points if s or p < edge * (1 - 2e-7)]


def float64_patterns() -> list[Pattern]:
    """All distributions in double precision."""
    plain = _plain()
    by_name = {p.name: p for p in plain}
    gaussian = [
        with_normal_part(by_name[name], relative)
        for name in (
            "unequal_1",
            "unequal_2",
            "unequal_4",
            "draws_12",
            "draws_31",
            "one_large_10_small",
        )
        for relative in RELATIVE_NORMAL_SCALES
    ]
    everything = {p.name: p for p in plain + gaussian}
    scaled = [
        _scaled(everything[name], factor)
        for name in (
            "unequal_2",
            "unequal_3",
            "draws_12",
            "draws_31",
            "one_large_3_tiny",
            "one_large_7_small",
            "zeros_inside",
            "unequal_4_normal_part_0.1",
        )
        for factor in (1e-8, 1e9)
    ]
    return plain + gaussian + scaled


def float32_patterns() -> list[Pattern]:
    """Comparable weights rounded to single precision."""
    names = ("draws_6", "draws_12", "draws_31", "draws_120", "equal_8", "equal_31")
    plain = [p for p in _plain() if p.name in names]
    gaussian = [
        with_normal_part(p, relative)
        for p in plain
        if p.name in ("draws_6", "draws_12", "draws_31", "equal_8")
        for relative in (0.1, 1.0)
    ]
    return [_rounded(p) for p in plain + gaussian]


def derivative_patterns() -> list[tuple[Pattern, tuple[float, ...]]]:
    """Distributions whose derivatives are stored, with the points as fractions of the edge."""
    by_name = {p.name: p for p in _plain()}
    small = with_normal_part(by_name["one_large_4_small"], 0.1)
    return [
        (by_name["unequal_2"], (0.05, 0.6, -0.8)),
        (by_name["unequal_3"], (0.03, 0.45, -0.7, 0.97)),
        (by_name["unequal_4"], (0.03, 0.45, -0.7, 0.97)),
        (by_name["zeros_inside"], (0.03, 0.45, -0.7, 0.97)),
        (by_name["three_equal_and_zero"], (0.03, 0.55, -0.7, 0.97)),
        (by_name["one_large_7_small"], (0.02, 0.975, -0.985, 0.993)),
        (by_name["draws_6"], (0.03, 0.45, -0.7, 0.97)),
        (by_name["draws_12"], (0.03, 0.45, -0.95)),
        (with_normal_part(by_name["unequal_1"], 0.1), (0.05, 0.97, -1.1)),
        (with_normal_part(by_name["unequal_2"], 0.3), (0.05, 0.6, -0.9, 1.2)),
        (with_normal_part(by_name["zeros_inside"], 0.3), (0.05, 0.6, -0.9, 1.2)),
        (small, (0.05, 0.97, -0.99)),
    ]


def with_normal_part(pattern: Pattern, relative: float) -> Pattern:
    """Add a normal part, `relative` to the standard deviation of the uniform part."""
    sd = math.sqrt(math.fsum(w * w for w in pattern.weights) / 3)
    dominating = pattern.dominating
    if not dominating and len(pattern.weights) <= 2:
        dominating = (len(pattern.weights),)
    return replace(
        pattern,
        name=f"{pattern.name}_normal_part_{relative:g}",
        dominating=dominating,
        normal_scale=relative * sd,
        tags=(*pattern.tags, "normal_part"),
    )


def _scaled(pattern: Pattern, factor: float) -> Pattern:
    s = pattern.normal_scale
    return replace(
        pattern,
        name=f"{pattern.name}_times_{factor:.0e}",
        weights=tuple(factor * w for w in pattern.weights),
        normal_scale=None if s is None else factor * s,
        tags=(*pattern.tags, "scaled"),
    )


def _rounded(pattern: Pattern) -> Pattern:
    s = pattern.normal_scale
    return replace(
        pattern,
        name=f"{pattern.name}_float32",
        weights=tuple(float(np.float32(w)) for w in pattern.weights),
        normal_scale=None if s is None else float(np.float32(s)),
    )


def _plain() -> list[Pattern]:
    comparable, dominated, zeros = ("comparable",), ("dominated",), ("zeros",)
    spread = ("spread",)
    return [
        Pattern("unequal_1", (1.0,), tags=("few",)),
        Pattern("unequal_2", (1.0, -0.6), tags=("few",)),
        Pattern("unequal_3", (0.9, -0.5, 0.3), tags=("few",)),
        Pattern("unequal_4", (0.8, -0.35, 1.1, 0.6), tags=("few",)),
        Pattern("unequal_5", (0.7, 1.3, -0.4, 0.25, 0.9), tags=("few",)),
        Pattern("draws_6", _normal_draws(6), tags=comparable),
        Pattern("draws_12", _normal_draws(12), tags=comparable),
        Pattern("draws_31", _normal_draws(31), tags=comparable),
        Pattern("draws_120", _normal_draws(120), tags=comparable),
        Pattern("equal_4", (1.0,) * 4, tags=comparable),
        Pattern("equal_8", (0.3,) * 8, tags=comparable),
        Pattern("equal_31", (0.7,) * 31, tags=comparable),
        Pattern("lognormal_12", _lognormal_draws(12, 2.0), tags=spread),
        Pattern("lognormal_31", _lognormal_draws(31, 1.5), tags=spread),
        Pattern("geometric_10", tuple(0.3**k for k in range(10)), tags=spread),
        Pattern("one_large_3_tiny", (1.0, *(1e-6,) * 3), (1,), tags=dominated),
        Pattern("one_large_4_small", (1.0, 0.02, -0.03, 0.01, 0.02), (1,), tags=dominated),
        Pattern("one_large_7_small", (1.0, *(2e-3,) * 7), (1,), tags=dominated),
        Pattern("one_large_10_small", (1.0, *(1e-3,) * 10), (1,), tags=dominated),
        Pattern("two_large_5_small", (1.0, 0.7, *(1e-4,) * 5), (2,), tags=dominated),
        Pattern("three_large_20_small", (1.0, 0.9, 0.8, *(1e-3,) * 20), (3,), tags=dominated),
        Pattern("four_large_10_small", (1.0, 0.8, 0.6, 0.5, *(1e-4,) * 10), (4,), tags=dominated),
        Pattern("three_magnitudes", (1.0, 1e-4, 1e-8), (1, 2), tags=dominated),
        Pattern("zeros_inside", (1.0, 0.5, 0.0, 0.25, 0.0), tags=zeros),
        Pattern("three_equal_and_zero", (1.0, 1.0, 1.0, 0.0), tags=zeros),
        Pattern("one_and_zeros", (1.0, 0.0, 0.0), tags=zeros),
    ]


def _normal_draws(n: int) -> tuple[float, ...]:
    return tuple(np.random.default_rng(n).standard_normal(n).tolist())


def _lognormal_draws(n: int, sigma: float) -> tuple[float, ...]:
    return tuple(np.random.default_rng(n).lognormal(0.0, sigma, n).tolist())
