"""The forecast of the sea surface runs, at a small size, and writes the file that it announces."""

import numpy as np
import pytest

pytestmark = pytest.mark.viz


@pytest.mark.slow
def test_sea_surface_runs(example, run, monkeypatch):
    monkeypatch.setattr(example, "STEPS", 200)
    lines = run("--num-draws 2000", "forecast.png")
    table = [line.split()[1:] for line in lines if line[:3] in example.MONTHS]
    both, alone = np.array(table[:12], dtype=float).T, np.array(table[12:], dtype=float).T
    observed, forecast, input_sd, own_sd, low, high, low_drawn, high_drawn = both
    years, curves = example.load_curves()
    assert years[-1] == 2010
    np.testing.assert_allclose(observed, curves[-1], atol=0.005)
    # The own error is nearly all of it, and normal; 5% quantiles of 2000 draws are known to 5% sd.
    assert (input_sd < 0.5 * own_sd).all()
    np.testing.assert_allclose(high - low, 2 * 1.645 * np.hypot(input_sd, own_sd), rtol=0.03)
    np.testing.assert_allclose(low, forecast - 1.645 * np.hypot(input_sd, own_sd), atol=0.1)
    np.testing.assert_allclose([low_drawn, high_drawn], [low, high], atol=0.2)
    sd, sd_drawn = alone[:3:2]
    np.testing.assert_allclose(sd, sd_drawn, rtol=0.5)
    # By chance alone 0.87/sqrt(2000) = 0.02 on average.
    tangent, corrected = alone[-2:]
    assert corrected.max() < 0.06
    assert corrected.mean() < tangent.mean()


def test_sea_surface_coverage(example):
    observed = np.zeros((3, 4))
    observed[0] = [0, 0, 2, 2]  # half of a year inside, then all, then all
    share, error = example.share_inside(observed, np.array([-1.0, 1.0])[:, None, None])
    assert share == pytest.approx(2.5 / 3)
    assert error == pytest.approx(np.std([0.5, 1, 1], ddof=1) / np.sqrt(3))


def test_sea_surface_own_error_is_without_that_of_the_input(example, monkeypatch):
    # A network that returns its input: the residual is the change from year to year.
    monkeypatch.setattr(example, "train", lambda *_: lambda x: x)
    years, curves = example.load_curves()
    found = example.own_error(None, years, curves, 0.3)
    change = np.diff(curves[years < example.FIRST_TEST_YEAR], axis=0)
    np.testing.assert_allclose(found**2, (change**2).mean(axis=0) - 0.3**2 / 3, rtol=1e-4)
