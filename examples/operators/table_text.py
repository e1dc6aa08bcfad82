"""Tables as Markdown."""

from collections.abc import Sequence


def as_markdown(heading: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table; short rows are filled with empty cells."""
    lines = ["| " + " | ".join(heading) + " |", "|" + "---|" * len(heading)]
    for row in rows:
        cells = [str(cell) for cell in row] + [""] * (len(heading) - len(row))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"
