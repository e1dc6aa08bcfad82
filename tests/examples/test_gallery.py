"""The gallery page shows every figure of both cases, and the files are there."""

import re
from pathlib import Path

import nn_uq_dist as nuq

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "gallery.md").read_text(encoding="utf-8")


def test_every_plot_is_shown_for_both_cases():
    code = (DOCS / "gallery" / "figures.py").read_text(encoding="utf-8")
    shown = set(re.findall(r"nuq\.plots\.(plot_\w+)\(", code))
    assert shown == set(nuq.plots.__all__)
    functions = re.findall(r"^def (\w+)\(", code, re.MULTILINE)
    assert set(re.findall(r":pyobject: (\w+)", PAGE)) == set(functions)
    pictures = re.findall(r"!\[[^]]+\]\(([^)]+)\)", PAGE)
    expected = {f"_static/gallery/{case}_{name}.png" for case in ("sea_surface", "untrained")
                for name in functions}  # fmt: skip
    assert set(pictures) == expected


def test_files_of_the_page_exist():
    files = re.findall(r"\((_static/[^)]+)\)|literalinclude\} (\S+)", PAGE)
    assert len(files) > 20
    for picture, text in files:
        assert (DOCS / (picture or text)).stat().st_size > 100
