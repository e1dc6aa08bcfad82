"""Pages of the documentation as programs: their blocks of code, and what those print.

A block of a page opens with three backticks and `python`; what it prints, if anything, is in the
block of `text` below it. Tables that stand on several pages have one source, a file of
`docs/_tables`. Pages of the documentation include it. The README, as GitHub shows it, cannot:
between lines `<!-- docs/_tables/name.md -->` and `<!-- end -->` it holds a copy.

Run as a program, this writes what the blocks print, and such copies, into the pages named, and the
figures that they save and show into a folder of `docs/_static`: `python -m tests.docs.pages
docs/tutorial.md`.
"""

import contextlib
import importlib.util
import io
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax

ROOT = Path(__file__).parents[2]
# All pages of text that GitHub shows.
MARKDOWN = sorted(
    path
    for folder, pattern in ((ROOT, "*.md"), (ROOT / "docs", "**/*.md"), (ROOT / "examples", "*.md"))
    for path in folder.glob(pattern)
    if "_build" not in path.parts
)
PAGES = [path for path in MARKDOWN if "```python\n" in path.read_text("utf-8")]
# A block, and what it prints if that is shown next.
BLOCK = re.compile(r"^```python\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?", re.DOTALL | re.MULTILINE)
COPY = re.compile(
    r"^<!-- (docs/_tables/\w+\.md) -->\n(.*?)^<!-- end -->$", re.DOTALL | re.MULTILINE
)
IMPORT = re.compile(r"^(?:import|from) (\w+)", re.MULTILINE)
# With its white space: a column of a table is narrower or wider with the length of its numbers.
NUMBER = re.compile(r"(?<![\w.])-?\d+\.\d*(?:e[-+]\d+)?")


class Block(NamedTuple):
    """A block of code, its first line in the page, and what the page says that it prints."""

    code: str
    line: int
    shown: str | None

    def missing(self) -> list[str]:
        """Return the packages that the block imports and that are not installed."""
        names = IMPORT.findall(self.code)
        return [name for name in names if importlib.util.find_spec(name) is None]

    def run(self, page: Path, namespace: dict[str, Any]) -> str:
        """Run the block, with tracebacks that show lines of the page; return what it prints."""
        output = io.StringIO()
        code = compile("\n" * (self.line - 1) + self.code, str(page), "exec")
        with contextlib.redirect_stdout(output):
            exec(code, namespace)  # noqa: S102 (the repository's own page)
        return output.getvalue()


def blocks(text: str) -> Iterator[Block]:
    """Yield the blocks of a page."""
    for match in BLOCK.finditer(text):
        yield Block(match[1], 1 + text.count("\n", 0, match.start(1)), match[2])


def assert_same_output(printed: str, shown: str) -> None:
    """Compare words; decimal fractions may differ by one in the last place that is shown."""
    assert NUMBER.sub("#", printed).split() == NUMBER.sub("#", shown).split(), printed
    for found, expected in zip(NUMBER.findall(printed), NUMBER.findall(shown), strict=True):
        mantissa, _, exponent = expected.partition("e")
        step = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
        assert abs(float(found) - float(expected)) < 1.5 * step, printed


def run_page(page: Path) -> dict[str, Any]:
    """Run a page, whose blocks must print what it says; return the names that they define.

    Blocks with PyTorch, where that is not installed, have left what the next ones need in a file.
    """
    namespace: dict[str, Any] = {"__name__": "__main__"}
    try:
        for block in blocks(page.read_text("utf-8")):
            absent = block.missing()
            if "torch" in absent:
                continue
            assert not absent, f"{absent} not installed: pip install --group tests"
            printed = block.run(page, namespace)
            assert bool(printed.strip()) == (block.shown is not None), printed
            if block.shown is not None:
                assert_same_output(printed, block.shown)
    finally:
        jax.config.update("jax_enable_x64", False)  # a page may have switched
    return namespace


def with_copies(text: str) -> str:
    """Return the text with the copies of tables as their sources have them."""
    return COPY.sub(
        lambda copy: f"<!-- {copy[1]} -->\n{(ROOT / copy[1]).read_text('utf-8')}<!-- end -->", text
    )


def with_outputs(page: Path) -> str:
    """Return the text of a page with what its blocks print now."""
    text = with_copies(page.read_text("utf-8"))
    namespace: dict[str, Any] = {"__name__": "__main__"}
    found = blocks(text)

    def with_output(match: re.Match[str]) -> str:
        output = next(found).run(page, namespace).rstrip()
        shown = f"\n\n```text\n{output}\n```" if output else ""
        return f"```python\n{match[1]}```{shown}"

    return BLOCK.sub(with_output, text)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        file = Path(name).resolve()
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            written = with_outputs(file)
            pictures = ROOT / "docs" / "_static" / file.stem
            for figure in Path().glob("*.png"):
                if f"/{file.stem}/{figure.name}" in written:
                    pictures.mkdir(exist_ok=True)
                    shutil.copy(figure, pictures)
        file.write_text(written, encoding="utf-8")
