"""The Python code in the README runs as it stands, block after block, without a warning."""

import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"
PYTHON_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def python_blocks(text):
    """Yield each block, moved down so that tracebacks show the line numbers of the README."""
    for match in PYTHON_BLOCK.finditer(text):
        yield "\n" * text.count("\n", 0, match.start(1)) + match[1]


def test_python_blocks_are_found_with_their_line_numbers():
    text = "text\n```python\na = 1\n```\n```sh\nmake\n```\n```python\nb = 2\n```\n"
    assert list(python_blocks(text)) == ["\n\na = 1\n", "\n" * 8 + "b = 2\n"]


def test_readme_code_runs(tmp_path, monkeypatch):
    blocks = list(python_blocks(README.read_text(encoding="utf-8")))
    assert blocks, "README.md has no ```python block"
    monkeypatch.chdir(tmp_path)  # figures that the README saves
    namespace = {"__name__": "__main__"}
    for block in blocks:
        exec(compile(block, str(README), "exec"), namespace)  # noqa: S102
