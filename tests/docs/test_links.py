"""Links of all pages that GitHub shows lead to an existing file and an existing heading.

Sphinx checks those of the documentation as it builds it; the README, CONTRIBUTING and the pages as
GitHub shows them are checked here.
"""

import re

import pytest

from tests.docs.pages import MARKDOWN, ROOT

LINK = re.compile(r"\]\(([^)\s]*)\)")
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.DOTALL | re.MULTILINE)
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def anchor(heading):
    """The name that GitHub and MyST give to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(page):
    return {anchor(heading) for heading in HEADING.findall(page.read_text("utf-8"))}


@pytest.mark.parametrize("page", MARKDOWN, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_have_targets(page):
    for link in LINK.findall(CODE.sub("", page.read_text("utf-8"))):
        if "://" in link:
            continue
        name, _, heading = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), link
        assert ROOT in target.parents, f"{link} leads out of the repository"
        assert not heading or heading in anchors(target), link


def test_pages_and_links_are_found():
    assert {"README.md", "CONTRIBUTING.md"} <= {page.name for page in MARKDOWN}
    assert anchor("What `it` cannot do: 2, 3") == "what-it-cannot-do-2-3"
    assert LINK.findall("[a](b.md) ![c](d/e.png#f)") == ["b.md", "d/e.png#f"]


TEST = re.compile(r"(tests/[\w/]+\.py)(?:::(\w+))?|\b(bench_\w+[a-z])\b")
STANDS_FOR_ANY = {"tests/package/test_x.py", "bench_name"}


def test_tests_and_benchmarks_that_are_named_exist():
    """A renamed test in `.ci/run` leaves a step of CI without tests."""
    for page in [*MARKDOWN, *ROOT.glob(".ci/run")]:
        for name, function, benchmark in TEST.findall(page.read_text("utf-8")):
            if {name, benchmark} & STANDS_FOR_ANY:
                continue
            file = ROOT / (name or f"tests/benchmarks/{benchmark}.py")
            assert file.exists(), (page.name, name, benchmark)
            assert f"def {function}" in file.read_text("utf-8"), (page.name, name, function)
