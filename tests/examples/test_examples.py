"""The examples run, at a small size, and write what they say."""

import importlib.util
import warnings
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.viz

FOLDER = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def sea_surface():
    spec = importlib.util.spec_from_file_location("sea_surface", FOLDER / "sea_surface.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_sea_surface_runs(sea_surface, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sea_surface, "STEPS", 200)
    sea_surface.main(["--num-draws", "2000", "--out", "figures", "--no-progress"])
    output, errors = capsys.readouterr()
    assert errors == ""  # no progress bar
    assert {path.name for path in tmp_path.iterdir()} == {"figures"}
    written = sorted(path.name for path in (tmp_path / "figures").iterdir())
    assert written == ["forecast.png", "marginals_box.png", "marginals_gaussian.png"]
    for name in written:
        assert str(tmp_path / "figures" / name) in output
    lines = output.splitlines()
    assert sum(line.startswith("Jan ") for line in lines) == 2
    table = [line for line in lines if line[:3] in sea_surface.MONTHS]
    assert len(table) == 24
    assert max(map(len, table)) <= 100
    numbers = np.array([line.split()[1:] for line in table], dtype=float)
    mean, mean_monte_carlo, sd, sd_monte_carlo = numbers[:, :4].T
    assert (np.abs(mean - mean_monte_carlo) < sd).all()
    np.testing.assert_allclose(sd, sd_monte_carlo, rtol=0.5)
    # By chance alone 0.87/sqrt(2000) = 0.02 on average.
    tangent, corrected = numbers[:, -2:].T
    assert corrected.max() < 0.06
    assert corrected.mean() < tangent.mean()


def test_sea_surface_data_and_baselines(sea_surface):
    years, curves = sea_surface.load_curves()
    assert years.tolist() == list(range(1950, 2011))
    assert curves.shape == (61, 12)
    assert (curves > 15).all()
    assert (curves < 32).all()


def test_sea_surface_input_laws_share_their_spread(sea_surface):
    _, curves = sea_surface.load_curves()
    laws = sea_surface.input_laws(curves[-1], 0.3)
    for law in laws.values():
        np.testing.assert_allclose(law.mean, curves[-1], rtol=1e-6)
        np.testing.assert_allclose(law.variance, 0.3**2 / 3, rtol=1e-4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--beta", "-1"], "--beta must be positive"),
        (["--num-draws", "10"], "at least 100"),
    ],
)
def test_sea_surface_refuses_wrong_arguments(sea_surface, arguments, message, capsys):
    with warnings.catch_warnings(), pytest.raises(SystemExit):
        sea_surface.parse_arguments(arguments)
    assert message in capsys.readouterr().err
