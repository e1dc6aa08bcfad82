"""How a summary is printed: the verdict first, within 80 columns, and all of it in a notebook."""

import textwrap

import pandas as pd

WIDTH = 80
MOST_ROWS = 20
LONGEST_NAME = 20
# Columns of the main numbers, by what they are called in print.
SHOWN = {
    "mean": ("mean", "analytic"), "error": ("mean", "error"), "+-": ("mean", "standard_error"),
    "sd": ("sd", "analytic"), "error ": ("sd", "error"), "+- ": ("sd", "standard_error"),
    "KS": ("kolmogorov_smirnov", "monte_carlo"), "chance": ("kolmogorov_smirnov", "noise_floor"),
}  # fmt: skip


class SummaryTable(pd.DataFrame):
    """A data frame of `summary`; parts of it are plain data frames."""

    @property
    def _constructor(self) -> type[pd.DataFrame]:
        return pd.DataFrame

    def __repr__(self) -> str:
        shown = self.iloc[:MOST_ROWS]
        names = [
            ", ".join(map(str, at)) if isinstance(at, tuple) else str(at) for at in shown.index
        ]
        width = min(max(map(len, [*names, "output"])), LONGEST_NAME)
        names = [textwrap.shorten(name, width, placeholder="...") for name in names]
        lines = [f"{'output':{width}}  verdict"]
        for name, words in zip(names, shown["verdict", "words"], strict=True):
            indent = " " * (width + 2)
            lines += textwrap.wrap(
                f"{name:{width}}  {words}", WIDTH, subsequent_indent=indent, drop_whitespace=True
            )
        numbers = pd.DataFrame(
            {
                title: shown[column].map(f"{{:.{3 if column[1] == 'analytic' else 2}g}}".format)
                for title, column in SHOWN.items()
            }
        ).set_axis(names)
        lines += ["", numbers.to_string(line_width=WIDTH)]
        if len(self) > MOST_ROWS:
            lines.append(f"and {len(self) - MOST_ROWS} more rows, all with .to_string()")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        with pd.option_context("display.max_columns", None, "display.max_colwidth", None):
            return str(pd.DataFrame(self)._repr_html_())
