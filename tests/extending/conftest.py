"""The distributions and the figure from the page on extending, which these tests use."""

import types

import pytest

from tests.docs.pages import ROOT, blocks

PAGE = ROOT / "docs" / "reference" / "extending.md"


@pytest.fixture(scope="session")
def page():
    """The names of the page after its code has run, as a user would have them."""
    namespace = {"__name__": "extending"}
    for block in blocks(PAGE.read_text(encoding="utf-8")):
        block.run(PAGE, namespace)
    return types.SimpleNamespace(**namespace)
