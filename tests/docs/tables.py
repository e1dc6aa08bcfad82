"""Tables that stand on several pages have one source, a file of `docs/_tables`.

Pages of the documentation include the file. The README, as GitHub shows it, cannot: between lines
`<!-- docs/_tables/name.md -->` and `<!-- end -->` it holds a copy. Run as a program, this makes the
summary of the accuracy from its full table and renews the copies: `python -m tests.docs.tables`.
"""

import re

from tests.docs.pages import ROOT

TABLES = ROOT / "docs" / "_tables"
README = ROOT / "README.md"
COPY = re.compile(
    r"^<!-- docs/_tables/(\w+)\.md -->\n(.*?)^<!-- end -->$", re.DOTALL | re.MULTILINE
)
ROW = re.compile(r"^\| *([^|]+?) *\|(.*)\|$", re.MULTILINE)
# Rows of the summary, and the distributions of the bank whose worst errors they show.
SUMMARY = {
    "2, 3, 4 unequal, float64": "unequal_[234]",
    "12 normal draws, float64": "draws_12",
    "31 and 120 normal draws, float64": "draws_(31|120)",
    "one large, 7 of 2e-3, float64": "one_large_7_small",
    "4 large, 10 of 1e-4, float64": "four_large_10_small",
    "31 with a normal part of 0.01 to 1 sd, float64": r"draws_31_normal_part_[\d.]+",
    "6 to 120, with and without a normal part, float32": r".*_float32",
}


def worst(cells: list[str]) -> str:
    """Return the largest of the numbers of a column, `-` if there is none."""
    return max((cell for cell in cells if cell != "-"), key=float, default="-")


def accuracy_summary() -> str:
    """Return the summary of the full table of accuracy: worst errors of groups of distributions."""
    distributions = {}
    for name, cells in ROW.findall((TABLES / "accuracy.md").read_text("utf-8")):
        distributions[name] = [cell.strip() for cell in cells.split("|")][1:]  # without the weights
    lines = [
        "| weights | log density | log survival | OpenTURNS log density |",
        "|---|---:|---:|---:|",
    ]
    for label, pattern in SUMMARY.items():
        found = [cells for name, cells in distributions.items() if re.fullmatch(pattern, name)]
        columns = [worst(list(column)) for column in zip(*found, strict=True)]
        lines.append(f"| {label} | {' | '.join(columns)} |")
    return "\n".join(lines) + "\n"


def with_copies(text: str) -> str:
    """Return the text with the copies of tables as their sources have them."""

    def copy(match: re.Match[str]) -> str:
        table = (TABLES / f"{match[1]}.md").read_text("utf-8")
        return f"<!-- docs/_tables/{match[1]}.md -->\n{table}<!-- end -->"

    return COPY.sub(copy, text)


if __name__ == "__main__":
    (TABLES / "accuracy_summary.md").write_text(accuracy_summary(), encoding="utf-8")
    README.write_text(with_copies(README.read_text("utf-8")), encoding="utf-8")
