"""The scripts refuse wrong arguments before they start, and name them."""

import importlib

import pytest

from tests.examples.conftest import FOLDER

pytestmark = pytest.mark.viz

REFUSED = [
    ("architectures", "--num-draws 10"), ("beam", "--rare nan"), ("beam", "--num-beams 10"),
    ("errors_in_variables", "--num-draws 30"), ("errors_in_variables", "--num-chains 0"),
    ("inverse", "--num-runs 0"), ("inverse", "--half-width nan"), ("noisy_inputs", "--num-draws 5"),
    ("noisy_inputs", "--error-sd -1"), ("sea_surface", "--beta -1"),
    ("sea_surface", "--num-draws 10"), ("train", "--steps 0"), ("train", "--learning-rate -1"),
    ("train", "--layers 20 --resnet"), ("train", "--layers 3"),
]  # fmt: skip


@pytest.mark.parametrize(("script", "arguments"), REFUSED)
def test_wrong_arguments_are_refused_by_name(script, arguments, monkeypatch, capsys):
    monkeypatch.syspath_prepend(FOLDER)
    monkeypatch.syspath_prepend(FOLDER / "operators")
    with pytest.raises(SystemExit):
        importlib.import_module(script).parse_arguments(arguments.split())
    assert arguments.split()[0] in capsys.readouterr().err
