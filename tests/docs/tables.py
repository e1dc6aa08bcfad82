"""Tables that stand on several pages have one source, a file of `docs/_tables`.

Pages of the documentation include the file. The README, as GitHub shows it, cannot: between lines
`<!-- docs/_tables/name.md -->` and `<!-- end -->` it holds a copy. Run as a program, this renews
the copies: `python -m tests.docs.tables`.
"""

import re

from tests.docs.pages import ROOT

TABLES = ROOT / "docs" / "_tables"
README = ROOT / "README.md"
COPY = re.compile(
    r"^<!-- docs/_tables/(\w+)\.md -->\n(.*?)^<!-- end -->$", re.DOTALL | re.MULTILINE
)


def with_copies(text: str) -> str:
    """Return the text with the copies of tables as their sources have them."""

    def copy(match: re.Match[str]) -> str:
        table = (TABLES / f"{match[1]}.md").read_text("utf-8")
        return f"<!-- docs/_tables/{match[1]}.md -->\n{table}<!-- end -->"

    return COPY.sub(copy, text)


if __name__ == "__main__":
    README.write_text(with_copies(README.read_text("utf-8")), encoding="utf-8")
