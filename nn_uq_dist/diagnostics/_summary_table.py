"""How a summary is printed: the verdict first, within 80 columns, and all of it in a notebook."""

import textwrap
from functools import cache
from typing import Any

WIDTH = 80
MOST_ROWS = 20
LONGEST_NAME = 30  # that verdicts are indented for
# Columns of the main numbers, by what they are called in print.
SHOWN = {
    "mean": ("mean", "analytic"), "error": ("mean", "error"), "+-": ("mean", "standard_error"),
    "sd": ("sd", "analytic"), "error ": ("sd", "error"), "+- ": ("sd", "standard_error"),
    "KS": ("kolmogorov_smirnov", "monte_carlo"), "chance": ("kolmogorov_smirnov", "noise_floor"),
}  # fmt: skip


@cache
def table_class() -> Any:
    """The class of tables, a data frame; made when it is needed, as pandas is an extra."""
    import pandas as pd

    class SummaryTable(pd.DataFrame):
        """A data frame of `summary`. Parts and copies of it, and what is unpickled, are plain."""

        @property
        def _constructor(self) -> type[pd.DataFrame]:
            return pd.DataFrame

        def __reduce__(self) -> Any:
            return pd.DataFrame(self).__reduce__()

        def __repr__(self) -> str:
            return printed(self)

        def _repr_html_(self) -> str:
            with pd.option_context("display.max_columns", None, "display.max_colwidth", None):
                return str(pd.DataFrame(self)._repr_html_())

    return SummaryTable


def printed(table: Any) -> str:
    """The verdicts and the main numbers of a table of `summary`."""
    shown = table.iloc[:MOST_ROWS]
    names = [", ".join(map(str, at)) if isinstance(at, tuple) else str(at) for at in shown.index]
    width = min(max(map(len, [*names, "output"])), LONGEST_NAME)
    lines = [f"{'output':{width}}  verdict"]
    for name, words in zip(names, shown["verdict", "words"], strict=True):
        indent = " " * (width + 2)
        lines += textwrap.wrap(f"{name:{width}}  {words}", WIDTH, subsequent_indent=indent)
    numbers = shown[list(SHOWN.values())].set_axis(names).set_axis(list(SHOWN), axis="columns")
    for title, (_, value) in SHOWN.items():
        digits = 3 if value == "analytic" else 2
        numbers[title] = numbers[title].map(f"{{:.{digits}g}}".format)
    lines += ["", numbers.to_string(line_width=WIDTH)]
    if len(table) > MOST_ROWS:
        lines.append(f"and {len(table) - MOST_ROWS} more rows, all with .to_string()")
    return "\n".join(lines)
