"""The gallery page shows every figure of both cases, and no other file is there."""

import re
from pathlib import Path

import nn_uq_dist as nuq

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "evidence" / "gallery.md").read_text(encoding="utf-8")
CASES = ("seasons", "untrained")


def test_every_plot_is_shown_for_both_cases():
    code = (DOCS / "gallery" / "figures.py").read_text(encoding="utf-8")
    shown = set(re.findall(r"nuq\.plots\.(plot_\w+)\(", code))
    assert shown == {name for name in vars(nuq.plots) if name.startswith("plot_")}
    functions = re.findall(r"^def (\w+)\(", code, re.MULTILINE)
    pictures = {f"{case}_{name}.png" for case in CASES for name in functions}
    shown = re.findall(r"!\[[^\]]+\]\(\.\./_static/gallery/(\S+)\)", PAGE)
    assert set(shown) == pictures
    # What is shown and not there is an error of Sphinx.
    files = {path.name for path in (DOCS / "_static" / "gallery").iterdir()}
    assert files == pictures | {f"{case}.txt" for case in CASES}


def test_verdicts_are_good_and_bad():
    """The page says so: every output of one case is small or noise, of the other large."""
    for case, words in zip(CASES, (("small:", "noise:"), ("large:",)), strict=True):
        table = (DOCS / "_static" / "gallery" / f"{case}.txt").read_text(encoding="utf-8")
        rows = table.split("\n\n")[0].splitlines()[1:]
        rows = [row for row in rows if not row.startswith(" ")]
        assert len(rows) >= 4
        assert all(any(word in row for word in words) and " nan" not in row for row in rows)
