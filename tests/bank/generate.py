"""Write the bank: ``python -m tests.bank.generate [--out FILE]``.

Values hold 40 correct digits, derivatives 25. Derivatives are central finite differences of
the reference itself, with a step of ``2**-66`` of the smallest scale of the distribution and at
least 80 working digits: the truncation error is about 1e-38, and no algebra of derivatives is used.
"""

import argparse
import json
import multiprocessing
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
from mpmath import mp
from tqdm import tqdm

from tests.bank.loader import DATA
from tests.bank.patterns import derivative_patterns, float32_patterns, float64_patterns
from tests.bank.reference import LogValues, log_values

VALUE_DIGITS, DERIVATIVE_DIGITS, DIFFERENCE_DIGITS = 40, 25, 85
STEP = Fraction(1, 2**66)


def jobs():
    """One job per case: block, distribution, points."""
    work = [("float64", p, p.points()) for p in float64_patterns()]
    for pattern in float32_patterns():
        rounded = dict.fromkeys(float(np.float32(x)) for x in pattern.points())
        work.append(("float32", pattern, tuple(rounded)))
    for pattern, fractions in derivative_patterns():
        points = tuple(fraction * pattern.edge for fraction in fractions)
        work.append(("derivatives", pattern, points))
    return work


def compute(job):
    """Block and entry of one case."""
    block, pattern, points = job
    entry = {
        "name": pattern.name, "tags": list(pattern.tags), "weights": list(pattern.weights),
        "normal_scale": pattern.normal_scale, "x": list(points),
    }  # fmt: skip
    of_point = _differences if block == "derivatives" else _values
    for found in (of_point(pattern, x) for x in points):
        for name, value in found.items():
            entry.setdefault(name, []).append(value)
    return block, entry


def _values(pattern, x):
    weights, s = [Fraction(w) for w in pattern.weights], Fraction(pattern.normal_scale or 0.0)
    found = log_values(Fraction(x), weights, s, VALUE_DIGITS + 2)
    return {name: _text(value, VALUE_DIGITS) for name, value in found._asdict().items()}


def _differences(pattern, x):
    """Gradients and Hessians in (x, weights..., normal_scale if there is one)."""
    n = len(pattern.weights)
    center = [Fraction(v) for v in (x, *pattern.weights)]
    if pattern.normal_scale is not None:
        center.append(Fraction(pattern.normal_scale))
    h = STEP * min(abs(v) for v in center[1:] if v != 0)

    @cache
    def at(x, weights, s=Fraction(0)):
        return log_values(x, weights, s, DIFFERENCE_DIGITS)

    size = len(center)
    result = {}
    with mp.workdps(DIFFERENCE_DIGITS + 20):
        step = mp.mpf(h.numerator) / h.denominator
        for index, name in enumerate(LogValues._fields):

            def take(moves, index=index):
                moved = [v + moves.get(i, 0) * h for i, v in enumerate(center)]
                # Signs of weights and their order do not matter: fewer keys of the cache.
                weights = tuple(sorted(abs(w) for w in moved[1 : n + 1]))
                return at(moved[0], weights, *moved[n + 1 :])[index]

            first = [_text((take({i: 1}) - take({i: -1})) / (2 * step)) for i in range(size)]
            second = [[""] * size for _ in range(size)]
            for i in range(size):
                curvature = take({i: 1}) - 2 * take({}) + take({i: -1})
                second[i][i] = _text(curvature / step**2)
                for j in range(i):
                    same = take({i: 1, j: 1}) + take({i: -1, j: -1})
                    opposite = take({i: 1, j: -1}) + take({i: -1, j: 1})
                    second[i][j] = second[j][i] = _text((same - opposite) / (4 * step**2))
            result |= {f"{name}_gradient": first, f"{name}_hessian": second}
    return result


def _text(value, digits=DERIVATIVE_DIGITS):
    # Below 1e-30 there is only the truncation error of a derivative that vanishes.
    if digits == DERIVATIVE_DIGITS and abs(value) < mp.mpf(10) ** -30:
        return "0.0"
    return str(mp.nstr(value, digits, min_fixed=-5, max_fixed=20))


def main():
    """Compute all cases and write the data file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=DATA)
    out = parser.parse_args().out
    work, blocks = jobs(), {"float64": [], "float32": [], "derivatives": []}
    with multiprocessing.Pool(2) as pool:
        for block, entry in tqdm(pool.imap(compute, work), total=len(work)):
            blocks[block].append(json.dumps(entry, separators=(",", ":")))
    texts = [f'"{block}":[\n{",\n".join(rows)}\n]' for block, rows in blocks.items()]
    out.write_text("{\n" + ",\n".join(texts) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
