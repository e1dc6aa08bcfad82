"""Write the bank: ``python -m tests.bank.generate [--out FILE] [--processes 2] [--quiet]``.

Values hold 40 correct digits, derivatives 25. Derivatives are central finite differences of
the reference itself, with a step of ``2**-66`` of the smallest scale of the distribution and at
least 80 working digits: the truncation error is about 1e-38, and no algebra of derivatives is used.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from mpmath import mp
from tqdm import tqdm

from tests.bank.patterns import (
    Pattern,
    derivative_patterns,
    float32_patterns,
    float64_patterns,
)
from tests.bank.reference import LogValues, log_values

DATA = Path(__file__).with_name("uniform_sum.json")
VALUE_DIGITS = 40
DERIVATIVE_DIGITS = 25
DIFFERENCE_DIGITS = 85
STEP = Fraction(1, 2**66)

Job = tuple[str, Pattern, tuple[float, ...]]


def jobs() -> list[Job]:
    """One job per case: block, distribution, points."""
    work: list[Job] = [("float64", p, p.points()) for p in float64_patterns()]
    for pattern in float32_patterns():
        rounded = dict.fromkeys(float(np.float32(x)) for x in pattern.points())
        work.append(("float32", pattern, tuple(rounded)))
    for pattern, fractions in derivative_patterns():
        points = tuple(fraction * pattern.edge for fraction in fractions)
        work.append(("derivatives", pattern, points))
    return work


def compute(job: Job) -> tuple[str, dict[str, Any]]:
    """Evaluate one case."""
    block, pattern, points = job
    entry: dict[str, Any] = {
        "name": pattern.name,
        "tags": list(pattern.tags),
        "weights": list(pattern.weights),
        "normal_scale": pattern.normal_scale,
        "x": list(points),
    }
    fill = _derivatives if block == "derivatives" else _values
    entry |= fill(pattern, points)
    return block, entry


def _values(pattern: Pattern, points: Sequence[float]) -> dict[str, Any]:
    weights = [Fraction(w) for w in pattern.weights]
    s = Fraction(pattern.normal_scale or 0.0)
    values = [log_values(Fraction(x), weights, s, VALUE_DIGITS + 2) for x in points]
    return {
        "log_density": [_text(v.log_density, VALUE_DIGITS) for v in values],
        "log_survival": [_text(v.log_survival, VALUE_DIGITS) for v in values],
    }


def _derivatives(pattern: Pattern, points: Sequence[float]) -> dict[str, Any]:
    columns: dict[str, list[Any]] = {}
    for x in points:
        for name, (gradient, hessian) in _differences(pattern, x).items():
            columns.setdefault(f"{name}_gradient", []).append(gradient)
            columns.setdefault(f"{name}_hessian", []).append(hessian)
    return columns


def _differences(pattern: Pattern, x: float) -> dict[str, tuple[list[str], list[list[str]]]]:
    """Gradient and Hessian in (x, weights..., normal_scale if there is one)."""
    n = len(pattern.weights)
    center = [Fraction(v) for v in (x, *pattern.weights)]
    if pattern.normal_scale is not None:
        center.append(Fraction(pattern.normal_scale))
    h = STEP * min(abs(v) for v in center[1:] if v != 0)

    @cache
    def at(arguments: tuple[Fraction, ...]) -> LogValues:
        s = arguments[n + 1] if len(arguments) > n + 1 else Fraction(0)
        return log_values(arguments[0], arguments[1 : n + 1], s, DIFFERENCE_DIGITS)

    def shifted(moves: dict[int, int]) -> LogValues:
        # Signs of weights and their order do not matter to the distribution: shorten the cache
        # keys.
        moved = [v + moves.get(i, 0) * h for i, v in enumerate(center)]
        weights = sorted(abs(w) for w in moved[1 : n + 1])
        return at((moved[0], *weights, *moved[n + 1 :]))

    size = len(center)
    result = {}
    with mp.workdps(DIFFERENCE_DIGITS + 20):
        step = mp.mpf(h.numerator) / h.denominator
        for index, name in enumerate(LogValues._fields):
            take = _component(shifted, index)
            first = [_text((take({i: 1}) - take({i: -1})) / (2 * step)) for i in range(size)]
            second = [[""] * size for _ in range(size)]
            for i in range(size):
                curvature = take({i: 1}) - 2 * take({}) + take({i: -1})
                second[i][i] = _text(curvature / step**2)
                for j in range(i):
                    same = take({i: 1, j: 1}) + take({i: -1, j: -1})
                    opposite = take({i: 1, j: -1}) + take({i: -1, j: 1})
                    second[i][j] = second[j][i] = _text((same - opposite) / (4 * step**2))
            result[name] = (first, second)
    return result


def _component(
    function: Callable[[dict[int, int]], LogValues], index: int
) -> Callable[[dict[int, int]], Any]:
    return lambda moves: function(moves)[index]


def _text(value: Any, digits: int = DERIVATIVE_DIGITS) -> str:
    # Below 1e-30 there is only the truncation error of a derivative that vanishes.
    if digits == DERIVATIVE_DIGITS and abs(value) < mp.mpf(10) ** -30:
        return "0.0"
    return str(mp.nstr(value, digits, min_fixed=-5, max_fixed=20))


def main() -> None:
    """Compute all cases and write the data file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=DATA)
    parser.add_argument("--processes", type=int, default=2, choices=(1, 2))
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    arguments = parser.parse_args()

    work = jobs()
    blocks: dict[str, list[dict[str, Any]]] = {"float64": [], "float32": [], "derivatives": []}
    with multiprocessing.Pool(arguments.processes) as pool:
        finished = tqdm(pool.imap(compute, work), total=len(work), disable=arguments.quiet)
        for block, entry in finished:
            blocks[block].append(entry)
    lines = []
    for block, entries in blocks.items():
        rows = ",\n".join(json.dumps(e, separators=(",", ":")) for e in entries)
        lines.append(f'"{block}":[\n{rows}\n]')
    arguments.out.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
