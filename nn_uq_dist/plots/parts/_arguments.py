"""Arguments that the figures share: what is shown, and how it looks."""

from collections.abc import Mapping, Sequence
from typing import Any

from nn_uq_dist.basics._indices import as_indices
from nn_uq_dist.plots.parts._backends import in_backend_units
from nn_uq_dist.plots.parts._from_diagnostics import as_output_names

Visuals = Mapping[str, Mapping[str, Any] | bool]
Options = Mapping[str, dict[str, Any] | None]


def as_visuals(
    visuals: Visuals | None, defaults: Mapping[str, Mapping[str, Any]], backend: str
) -> dict[str, dict[str, Any] | None]:
    """Merge the options of each visual into its defaults; None marks a visual that is off.

    The defaults are in points and are converted for the backend; options from users are not.
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
    """Return the positions of the outputs to show, which are given as positions or names."""
    if outputs is None:
        return list(range(len(names)))
    if isinstance(outputs, str):
        raise TypeError(f"outputs must be a sequence, got the string {outputs!r}; pass a list")
    known = list(names)
    positions: list[Any] = []
    for output in outputs:
        if isinstance(output, str) and output not in known:
            raise ValueError(
                f"outputs must name outputs, got {output!r}; the names are {', '.join(known)}"
            )
        position = known.index(output) if isinstance(output, str) else output
        if not -len(known) <= position < len(known):
            raise ValueError(f"outputs must lie between 0 and {len(known) - 1}, got {output}")
        positions.append(position)
    try:
        return list(as_indices(positions, len(known), "outputs"))
    except ValueError as error:
        raise ValueError(
            f"outputs must name at least one output, and none twice, got {list(outputs)!r}"
        ) from error


def choose_outputs(
    outputs: Sequence[int | str] | None, output_names: Sequence[str] | None, num_outputs: int
) -> tuple[list[int], list[str]]:
    """Return positions and names of the outputs to show."""
    names = as_output_names(output_names, num_outputs)
    shown = as_outputs(outputs, names)
    return shown, [names[j] for j in shown]


def as_coverage(coverage: float) -> float:
    """Return a probability strictly between 0 and 1."""
    level = float(coverage)
    if not 0 < level < 1:
        raise ValueError(f"coverage must lie between 0 and 1, got {coverage}; pass 0.95")
    return level
