"""The cases of the bank, with NumPy arrays that cannot be written to."""

import json
from functools import cache
from pathlib import Path

import numpy as np

DATA = Path(__file__).with_name("uniform_sum.json")


class Case:
    """A distribution, points `x`, and answers in float64; arguments are exact in the case's type.

    `tags` are among few, comparable, dominated, spread, zeros, scaled, normal_part. Some cases have
    `log_density` and `log_survival`, and all 40 digits as `log_density_decimal` and
    `log_survival_decimal`; the others `log_density_gradient` (points, m), `log_density_hessian`
    (points, m, m) and those of `log_survival`, in the arguments ``(x, weights..., normal_scale)``,
    the last only if there is a normal part.
    """

    def __init__(self, entry, dtype):
        self.name, self.normal_scale = entry["name"], entry["normal_scale"]
        self.tags = frozenset(entry["tags"])
        self.weights, self.x = (_frozen(entry[name], dtype) for name in ("weights", "x"))
        for name, decimals in entry.items():
            if name.startswith("log_"):
                setattr(self, name, _frozen(decimals, float))
                setattr(self, f"{name}_decimal", tuple(decimals))

    @property
    def edge(self):
        """Half-width of the support of the uniform part."""
        return float(np.abs(self.weights.astype(float)).sum())

    def __str__(self):
        return self.name


def float64_cases(*tags):
    """Values in double precision that carry all of `tags`."""
    return tuple(c for c in _cases("float64", "float64") if c.tags.issuperset(tags))


def float32_cases():
    """Values in single precision, of comparable weights."""
    return _cases("float32", "float32")


def derivative_cases():
    """All cases with derivatives."""
    return _cases("derivatives", "float64")


@cache
def _cases(block, dtype):
    return tuple(Case(entry, dtype) for entry in json.loads(DATA.read_text("utf-8"))[block])


def _frozen(values, dtype):
    array = np.array(values).astype(dtype)
    array.setflags(write=False)
    return array
