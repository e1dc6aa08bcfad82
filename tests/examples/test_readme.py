"""The Python code in the README and the docs runs as it stands, without a warning."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = sorted(
    path for path in (ROOT / "docs").glob("*.md") if "```python\n" in path.read_text("utf-8")
)
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def python_blocks(text):
    """Yield each block, moved down so that tracebacks show the line numbers of the README."""
    for match in PYTHON_BLOCK.finditer(text):
        yield "\n" * text.count("\n", 0, match.start(1)) + match[1]


def test_python_blocks_are_found_with_their_line_numbers():
    text = "text\n```python\na = 1\n```\n```sh\nmake\n```\n```python\nb = 2\n```\n"
    assert list(python_blocks(text)) == ["\n\na = 1\n", "\n" * 8 + "b = 2\n"]


def run_blocks(page, folder, monkeypatch):
    blocks = list(python_blocks(page.read_text(encoding="utf-8")))
    assert blocks, f"{page.name} has no ```python block"
    monkeypatch.chdir(folder)  # figures that the page saves
    namespace = {"__name__": "__main__"}
    for block in blocks:
        exec(compile(block, str(page), "exec"), namespace)  # noqa: S102


@pytest.mark.viz
def test_readme_code_runs(tmp_path, monkeypatch):
    run_blocks(README, tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.viz
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_code_of_the_docs_runs(page, tmp_path, monkeypatch):
    run_blocks(page, tmp_path, monkeypatch)
