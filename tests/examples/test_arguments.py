"""The scripts refuse wrong arguments before they start, and name them."""

import importlib

import pytest

from tests.examples.conftest import FOLDER

pytestmark = pytest.mark.viz

REFUSED = [
    ("architectures", "--num-draws 10", "--num-draws must be at least 100, got 10"),
    ("beam", "--rare nan", "--rare must be positive"),
    ("beam", "--num-beams 10", "at least 1000"),
    ("errors_in_variables", "--num-draws 30", "--num-draws must be"),
    ("errors_in_variables", "--num-chains 0", "--num-chains must be"),
    ("inverse", "--num-runs 0", "--num-runs must be"),
    ("inverse", "--half-width nan", "--half-width must be"),
    ("noisy_inputs", "--num-draws 5", "--num-draws must be"),
    ("noisy_inputs", "--error-sd -1", "--error-sd must be"),
    ("sea_surface", "--beta -1", "--beta must be positive"),
    ("sea_surface", "--num-draws 10", "at least 100"),
    ("train", "--steps 0", "--steps must be positive, got 0"),
    ("train", "--learning-rate -1", "--learning-rate must be positive"),
    ("train", "--resnet --layers 20", "leave out --operator and --layers"),
    ("train", "--layers 3", "invalid choice: 3"),
]


@pytest.mark.parametrize(("script", "arguments", "message"), REFUSED)
def test_wrong_arguments_are_refused(script, arguments, message, monkeypatch, capsys):
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.syspath_prepend(FOLDER / "operators")
    with pytest.raises(SystemExit):
        importlib.import_module(script).parse_arguments(arguments.split())
    assert message in capsys.readouterr().err
