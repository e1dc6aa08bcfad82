"""The example that each file of tests is named after."""

import importlib
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def example(request):
    """The module, imported as from a script in its folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        return importlib.import_module(request.module.__name__.rpartition("test_")[2])
