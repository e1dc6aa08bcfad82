"""Links and commands of all pages that GitHub shows, and commands of CI, lead to what exists.

Sphinx checks those of the documentation as it builds it; the README, CONTRIBUTING and the pages as
GitHub shows them are checked here.
"""

import pkgutil
import re

import pytest

from tests.docs.pages import MARKDOWN, ROOT

CI = ROOT / ".ci" / "run"
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


TARGET = re.compile(r"(?:^|`)make\s+([a-z]+)(?=`|$| +#|\s[A-Z]+=)", re.MULTILINE)
SCRIPT = re.compile(r"(?<![\w/])(?:examples|docs)/[\w/]+\.py")
NAME = re.compile(r"\btests(?:\.\w+)+(?![\w<])|(?<=\[)nn_uq_dist[\w.]+(?=\])")


@pytest.mark.parametrize("page", [*MARKDOWN, CI], ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_exist(page):
    """Targets of make, scripts, and names in modules, those of examples in docstrings included."""
    text = page.read_text("utf-8")
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert set(TARGET.findall(text)) <= set(targets)
    assert all((ROOT / script).exists() for script in SCRIPT.findall(text))
    for name in NAME.findall(text):
        pkgutil.resolve_name(name)


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
