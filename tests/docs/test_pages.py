"""The README and every page of the docs: each block of code runs and prints what the page says.

No row of numbers stands in two files by hand: copies are those of their source.

The frameworks of the pages are in the group `tests`. PyTorch alone is not: its page runs from the
file that its first block saved once.
"""

import re
import shutil
from collections import defaultdict
from pathlib import Path

import pytest

from tests.docs.pages import (
    COPY,
    MARKDOWN,
    PAGES,
    ROOT,
    assert_same_output,
    blocks,
    run_page,
    with_copies,
)

# Made by the first block of `docs/howto/outside_jax.md` with PyTorch 2.14.1.
SAVED_BY_TORCH = Path(__file__).parent / "torch_network.safetensors"
HOWTO = [page for page in PAGES if page.parent.name == "howto"]
MOST_LINES = 80
CODE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


def pages():
    """The pages; `tests/docs/test_extending.py` runs that on extending."""
    for page in PAGES:
        if page.name != "extending.md":
            marks = [] if page.name == "README.md" else [pytest.mark.slow]
            name = str(page.relative_to(ROOT).with_suffix(""))
            yield pytest.param(page, id=name, marks=marks)


@pytest.mark.viz
@pytest.mark.parametrize("page", [*pages()])
def test_code_of_the_page_prints_what_the_page_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # figures and files that the page saves
    monkeypatch.setenv("KERAS_BACKEND", "jax")  # undone after the page sets it, too
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    shutil.copy(SAVED_BY_TORCH, tmp_path / "net.safetensors")
    run_page(page)


def test_answers_are_short_and_listed():
    for page in HOWTO:
        code = "".join(block.code for block in blocks(page.read_text("utf-8")))
        assert len([line for line in code.splitlines() if line.strip()]) <= MOST_LINES, page
        index = (page.parent / "index.md").read_text("utf-8")
        assert f"]({page.name}" in index


def test_outputs_are_compared_by_words_and_last_places():
    assert_same_output("[0.19 0.2 0.18] True\n", "[0.19 0.20 0.19] True\n")
    for other in ("[0.19 0.2 0.18] False", "[0.19 0.2 0.21] True", "[0.19 0.2] True"):
        with pytest.raises(AssertionError):
            assert_same_output("[0.19 0.2 0.18] True", other)


def test_copies_are_those_of_their_source():
    text = (ROOT / "README.md").read_text("utf-8")
    assert len(COPY.findall(text)) >= 2
    assert with_copies(text) == text


def test_rows_of_numbers_stand_once():
    places = defaultdict(set)
    for path in MARKDOWN:
        text = CODE.sub("", COPY.sub("", path.read_text("utf-8")))
        for row in re.findall(r"^\|.*\|$(?!\n\|-)", text, re.MULTILINE):  # no headings
            if len(re.findall(r"\d[\d.]*", row)) >= 3:
                places[re.sub(r"\s", "", row)].add(path)
    assert len(places) > 300
    assert not {row: files for row, files in places.items() if len(files) > 1}
