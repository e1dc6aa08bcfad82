"""What the page on extending defines: the laws and the figure that these tests send through."""

import types
from pathlib import Path

import pytest

from tests.examples.test_readme import python_blocks

PAGE = Path(__file__).parents[2] / "docs" / "extending.md"


@pytest.fixture(scope="session")
def page():
    """The names of the page after its code has run, as a user would have them."""
    namespace = {"__name__": "extending"}
    for block in python_blocks(PAGE.read_text(encoding="utf-8")):
        exec(compile(block, str(PAGE), "exec"), namespace)  # noqa: S102
    return types.SimpleNamespace(**namespace)
