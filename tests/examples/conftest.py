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


@pytest.fixture
def run(example, tmp_path, monkeypatch, capsys):
    """A function that runs the example, which writes these figures alone; returns its lines."""

    def run(arguments, *figures, longest=100):
        monkeypatch.chdir(tmp_path)
        example.main([*arguments.split(), "--no-progress", "--out", "figures"])
        output, errors = capsys.readouterr()
        assert errors == ""  # no progress bar
        assert {path.name for path in tmp_path.iterdir()} == {"figures"}
        assert {path.name for path in (tmp_path / "figures").iterdir()} == set(figures)
        assert str(tmp_path / "figures") in output
        lines = [line for line in output.splitlines() if str(tmp_path) not in line]
        # Verdicts may be longer, indented further.
        assert all(len(line) <= longest or line.startswith(" " * 6) for line in lines)
        return lines

    return run


@pytest.fixture(scope="module")
def operators():
    """The modules of the folder `operators`."""
    folder = FOLDER / "operators"
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        names = [path.stem for path in folder.glob("*.py")]
        return SimpleNamespace(**{name: importlib.import_module(name) for name in names})
