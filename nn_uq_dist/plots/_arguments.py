"""Arguments that the figures share: what is shown, how it looks, and of which law."""

from collections.abc import Mapping, Sequence
from typing import Any

from nn_uq_dist.diagnostics._arguments import MINIMUM_DRAWS, as_output_names
from nn_uq_dist.plots._backends import in_backend_units

Visuals = Mapping[str, Mapping[str, Any] | bool]
Options = Mapping[str, dict[str, Any] | None]


def as_visuals(
    visuals: Visuals | None, defaults: Mapping[str, Mapping[str, Any]], backend: str
) -> dict[str, dict[str, Any] | None]:
    """Merge the options of each visual into its defaults; None marks a visual that is off.

    The defaults count in points and are converted for the backend; what users give is not.
    """
    given = dict(visuals or {})
    unknown = [name for name in given if name not in defaults]
    if unknown:
        raise ValueError(
            f"visuals must have keys from {', '.join(defaults)}, got {', '.join(unknown)}"
        )
    merged: dict[str, dict[str, Any] | None] = {}
    for name, options in defaults.items():
        choice = given.get(name, True)
        if choice is False:
            merged[name] = None
        else:
            chosen = choice if isinstance(choice, Mapping) else {}
            merged[name] = {**in_backend_units(options, backend), **chosen}
    return merged


def as_outputs(outputs: Sequence[int | str] | None, names: Sequence[str]) -> list[int]:
    """Return the positions of the outputs to show; they are given as positions or names."""
    if outputs is None:
        return list(range(len(names)))
    if isinstance(outputs, str):
        raise TypeError(f"outputs must be a sequence, got the string {outputs!r}; pass a list")
    positions = []
    for output in outputs:
        if isinstance(output, str):
            if output not in names:
                raise ValueError(
                    f"outputs must name outputs, got {output!r}; the names are {', '.join(names)}"
                )
            positions.append(list(names).index(output))
        else:
            if not -len(names) <= output < len(names):
                raise ValueError(f"outputs must lie between 0 and {len(names) - 1}, got {output}")
            positions.append(int(output) % len(names))
    if not positions or len(set(positions)) != len(positions):
        raise ValueError(
            f"outputs must hold at least one output and none twice, got {list(outputs)!r}"
        )
    return positions


def choose_outputs(
    outputs: Sequence[int | str] | None, output_names: Sequence[str] | None, num_outputs: int
) -> tuple[list[int], list[str]]:
    """Return positions and names of the outputs to show."""
    names = as_output_names(output_names, num_outputs)
    shown = as_outputs(outputs, names)
    return shown, [names[j] for j in shown]


def as_law(law: str) -> str:
    """Return which joint law is shown."""
    if law not in {"copula", "linear"}:
        raise ValueError(f"law must be 'copula' or 'linear', got {law!r}")
    return law


def law_name(law: str) -> str:
    """Return what legends and labels call a joint law."""
    return "copula" if law == "copula" else "linear law"


def as_coverage(coverage: float) -> float:
    """Return a probability strictly between 0 and 1."""
    level = float(coverage)
    if not 0 < level < 1:
        raise ValueError(f"coverage must lie between 0 and 1, got {coverage}; pass such as 0.95")
    return level


def require_enough(counts: Sequence[int], names: Sequence[str]) -> None:
    """Raise if an output has too few finite draws."""
    few = [f"{n}: {c}" for n, c in zip(names, counts, strict=True) if c < MINIMUM_DRAWS]
    if few:
        raise ValueError(
            f"every shown output must have at least {MINIMUM_DRAWS} finite draws, got "
            f"{', '.join(few)}; leave such outputs out by outputs="
        )
