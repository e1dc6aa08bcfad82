"""The scripts that the tests are about, imported as from a script in their folder."""

import importlib
from pathlib import Path
from types import SimpleNamespace

import pytest

FOLDER = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def example(request):
    """The example that the file of tests is named after."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        return importlib.import_module(request.module.__name__.rpartition("test_")[2])


@pytest.fixture(scope="module")
def operators():
    """The modules of the folder `operators`."""
    folder = FOLDER / "operators"
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        names = [path.stem for path in folder.glob("*.py")]
        return SimpleNamespace(**{name: importlib.import_module(name) for name in names})
