"""Typed access to the bank: named cases as frozen dataclasses with NumPy arrays."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

DATA = Path(__file__).with_name("uniform_sum.json")


@dataclass(frozen=True, eq=False)
class ValueCase:
    """Log density and log survival of one distribution at several points.

    `x`, `weights` and `normal_scale` are exact in the case's dtype (float64 or float32); the
    answers belong to exactly those arguments and are float64. The `*_decimal` fields hold all
    40 digits. `tags` are among few, comparable, dominated, spread, zeros, scaled, normal_part.
    """

    name: str
    tags: frozenset[str]
    weights: NDArray[np.floating[Any]]
    normal_scale: float | None
    x: NDArray[np.floating[Any]]
    log_density: NDArray[np.float64]
    log_survival: NDArray[np.float64]
    log_density_decimal: tuple[str, ...]
    log_survival_decimal: tuple[str, ...]

    @property
    def edge(self) -> float:
        """Half-width of the support of the uniform part, ``sum |w|``."""
        return float(np.abs(self.weights.astype(np.float64)).sum())

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False)
class DerivativeCase:
    """Gradients and Hessians of one distribution at several points.

    Arguments are ordered ``(x, weights..., normal_scale)``, the last only if there is a normal
    part; gradients have shape ``(points, m)``, Hessians ``(points, m, m)``.
    """

    name: str
    tags: frozenset[str]
    weights: NDArray[np.float64]
    normal_scale: float | None
    x: NDArray[np.float64]
    log_density_gradient: NDArray[np.float64]
    log_density_hessian: NDArray[np.float64]
    log_survival_gradient: NDArray[np.float64]
    log_survival_hessian: NDArray[np.float64]

    def __str__(self) -> str:
        return self.name


def float64_cases(*tags: str) -> tuple[ValueCase, ...]:
    """Double-precision cases that carry all of `tags`."""
    return tuple(c for c in _value_cases("float64") if c.tags.issuperset(tags))


def float32_cases(*tags: str) -> tuple[ValueCase, ...]:
    """Single-precision cases (comparable weights) that carry all of `tags`."""
    return tuple(c for c in _value_cases("float32") if c.tags.issuperset(tags))


@cache
def derivative_cases() -> tuple[DerivativeCase, ...]:
    """All cases with derivatives."""
    return tuple(
        DerivativeCase(
            **_distribution(entry, np.dtype(np.float64)),
            log_density_gradient=_numbers(entry["log_density_gradient"]),
            log_density_hessian=_numbers(entry["log_density_hessian"]),
            log_survival_gradient=_numbers(entry["log_survival_gradient"]),
            log_survival_hessian=_numbers(entry["log_survival_hessian"]),
        )
        for entry in _data()["derivatives"]
    )


def value_case(name: str) -> ValueCase:
    """The value case of that name, in either precision."""
    found = [c for c in (*float64_cases(), *float32_cases()) if c.name == name]
    if not found:
        raise KeyError(f"the bank has no value case named {name!r}; see float64_cases()")
    return found[0]


@cache
def _value_cases(dtype: str) -> tuple[ValueCase, ...]:
    return tuple(
        ValueCase(
            **_distribution(entry, np.dtype(dtype)),
            log_density=_numbers(entry["log_density"]),
            log_survival=_numbers(entry["log_survival"]),
            log_density_decimal=tuple(entry["log_density"]),
            log_survival_decimal=tuple(entry["log_survival"]),
        )
        for entry in _data()[dtype]
    )


def _distribution(entry: dict[str, Any], dtype: np.dtype[Any]) -> dict[str, Any]:
    return {
        "name": entry["name"],
        "tags": frozenset(entry["tags"]),
        "weights": _frozen(np.array(entry["weights"], dtype)),
        "normal_scale": entry["normal_scale"],
        "x": _frozen(np.array(entry["x"], dtype)),
    }


def _numbers(decimals: list[Any]) -> NDArray[np.float64]:
    return _frozen(np.array(decimals).astype(np.float64))


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.setflags(write=False)
    return array


@cache
def _data() -> dict[str, list[dict[str, Any]]]:
    data: dict[str, list[dict[str, Any]]] = json.loads(DATA.read_text(encoding="utf-8"))
    return data
