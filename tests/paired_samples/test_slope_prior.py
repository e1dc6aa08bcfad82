"""Increasing maps from averages: derivatives, and what exact averages give back."""

import numpy as np
import pytest

from nn_uq_dist.paired_samples import ScoreBins
from nn_uq_dist.paired_samples._slope_prior import Curve, CurveAverages, fit_curve

BINS = ScoreBins.for_samples(400)
MODEL = CurveAverages(BINS, BINS.nodes[None], BINS.knots[None])


def small_noise(scale):
    return scale**2 * np.eye(BINS.centers.size)[None]


def test_averages_are_those_of_the_integral_of_the_slopes():
    curve = Curve(np.sin(BINS.centers)[None], np.array([0.3]))
    z = np.linspace(-9, 9, 200_001)
    slope = np.exp(np.interp(z, BINS.centers, np.sin(BINS.centers)))
    values = np.concatenate([[0], np.cumsum((slope[1:] + slope[:-1]) / 2 * np.diff(z))])
    averages, _ = MODEL(curve)
    at_knots = MODEL.values(curve)[0]
    # The location is the value at the first of the points above zero.
    values += at_knots[0] - np.interp(BINS.knots[0], z, values)
    assert np.interp(0, z, values) == pytest.approx(0.3, abs=0.02)
    weights = np.exp(-(z**2) / 2)
    for k, (low, high) in enumerate(zip(BINS.edges[:-1], BINS.edges[1:], strict=True), start=1):
        inside = (z >= low) & (z <= high)
        expected = np.average(values[inside], weights=weights[inside])
        assert averages[0, k] == pytest.approx(expected, abs=2e-4)
    np.testing.assert_allclose(at_knots, np.interp(BINS.knots, z, values), atol=1e-4)


def test_derivatives_are_those_of_differences():
    logs = np.random.default_rng(0).normal(size=BINS.centers.size)
    logs[3] = logs[4]  # where the quotient is a limit
    _, found = MODEL(Curve(logs[None], np.zeros(1)))
    step = 1e-6
    for k, unit in enumerate(step * np.eye(logs.size)):
        after, before = (MODEL(Curve((logs + s * unit)[None], np.zeros(1)))[0] for s in (1, -1))
        np.testing.assert_allclose(found[0, :, k], (after - before)[0] / (2 * step), atol=1e-7)


@pytest.mark.parametrize("rate", [0.0, 0.5, -1.0])
def test_exact_averages_of_exponentials_give_them_back(rate):
    """The prior holds tilts of the log slope for likely, so they go on beyond the averages."""
    wanted = Curve(rate * BINS.centers[None], np.array([2.0]))
    averages, _ = MODEL(wanted)
    flat = np.zeros_like(wanted.log_slopes)
    found = fit_curve(MODEL, averages, small_noise(1e-5), flat)
    np.testing.assert_allclose(found.log_slopes, wanted.log_slopes, atol=2e-3)
    np.testing.assert_allclose(found.location, 2.0, atol=1e-3)
