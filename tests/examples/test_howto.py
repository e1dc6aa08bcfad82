"""The how-to pages: each block of code runs, and prints what the page says below it.

A page whose framework is not installed is skipped on a developer's machine and fails in CI. PyTorch
alone is never installed there: its page runs from the file that its first block saved once.
"""

import contextlib
import importlib.util
import io
import os
import re
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for path in (ROOT / "docs" / "howto").glob("*.md")
    if "```python\n" in path.read_text("utf-8")
)
# Made by the page's first block with PyTorch 2.14.1.
SAVED_BY_TORCH = Path(__file__).parent / "torch_network.safetensors"
# A block, and what it prints if that is shown next.
BLOCK = re.compile(r"^```python\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?", re.DOTALL | re.MULTILINE)
IMPORT = re.compile(r"^(?:import|from) (\w+)", re.MULTILINE)
NUMBER = re.compile(r"(?<![\w.])-?\d+\.\d*")
MOST_LINES = 80


def blocks(page):
    text = page.read_text(encoding="utf-8")
    for match in BLOCK.finditer(text):
        yield "\n" * text.count("\n", 0, match.start(1)) + match[1], match[2]


def missing(code):
    return [name for name in IMPORT.findall(code) if importlib.util.find_spec(name) is None]


def assert_same_output(printed, shown):
    """The same words; decimal fractions may differ by one in the last place that is shown."""
    assert NUMBER.sub("#", printed).split() == NUMBER.sub("#", shown).split(), printed
    for found, expected in zip(NUMBER.findall(printed), NUMBER.findall(shown), strict=True):
        step = 10.0 ** -len(expected.partition(".")[2])
        assert abs(float(found) - float(expected)) < 1.5 * step, printed


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_code_of_the_page_prints_what_the_page_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KERAS_BACKEND", "jax")  # undone after the page sets it, too
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    shutil.copy(SAVED_BY_TORCH, tmp_path / "net.safetensors")
    namespace = {"__name__": "__main__"}
    for code, shown in blocks(page):
        absent = missing(code)
        if "torch" in absent:
            continue
        if absent and not os.environ.get("CI"):
            pytest.skip(f"{', '.join(absent)} not installed: pip install --group frameworks")
        assert not absent, f"CI must install {absent}: the group `frameworks` of pyproject.toml"
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(compile(code, str(page), "exec"), namespace)  # noqa: S102
        assert bool(output.getvalue()) == (shown is not None), output.getvalue()
        if shown is not None:
            assert_same_output(output.getvalue(), shown)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_is_short_and_listed(page):
    lines = [line for code, _ in blocks(page) for line in code.splitlines() if line.strip()]
    assert len(lines) <= MOST_LINES
    index = (page.parent / "index.md").read_text("utf-8")
    assert f"]({page.name})" in index
    assert f"\n{page.stem}\n" in index


def test_outputs_are_compared_by_words_and_last_places():
    assert_same_output("[0.19 0.2 0.18] True\n", "[0.19 0.20 0.19] True\n")
    for other in ("[0.19 0.2 0.18] False", "[0.19 0.2 0.21] True", "[0.19 0.2] True"):
        with pytest.raises(AssertionError):
            assert_same_output("[0.19 0.2 0.18] True", other)
