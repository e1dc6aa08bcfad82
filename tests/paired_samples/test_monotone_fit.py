"""Increasing maps from averages: derivatives, exact averages, noise, and what the prior prefers."""

import numpy as np
import pytest
from scipy.special import ndtr

from nn_uq_dist.paired_samples import ScoreBins
from nn_uq_dist.paired_samples._monotone_fit import Curve, CurveAverages, fit_curve

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


def test_noise_leaves_the_reference():
    """Averages of draws that follow the reference move it by less than their errors."""
    rng = np.random.default_rng(0)
    flat = np.zeros((50, BINS.centers.size))
    model = CurveAverages(BINS, *(np.tile(part, (50, 1)) for part in (BINS.nodes, BINS.knots)))
    averages = model(Curve(flat, np.zeros(50)))[0]
    noisy = averages + 0.1 * rng.normal(size=averages.shape)
    found = fit_curve(model, noisy, np.repeat(small_noise(0.1), 50, axis=0), flat)
    errors = np.sqrt(np.mean((model(found)[0] - averages) ** 2, axis=0))
    inner = ndtr(-np.abs(BINS.centers)) > 0.05
    assert errors[inner].max() < 0.05


def test_units_and_direction_of_the_output():
    """Adding a constant moves the map; turning the axis around turns it around."""
    rng = np.random.default_rng(1)
    logs = 0.5 * np.sin(2 * BINS.centers) + 0.1
    averages = MODEL(Curve(logs[None], np.zeros(1)))[0] + 0.01 * rng.normal(size=logs.size)
    flat = np.zeros_like(averages)
    found = fit_curve(MODEL, averages, small_noise(0.01), flat)
    moved = fit_curve(MODEL, averages + 0.5, small_noise(0.01), flat)
    np.testing.assert_allclose(moved.log_slopes, found.log_slopes, atol=2e-3)
    turned = fit_curve(MODEL, -averages[:, ::-1], small_noise(0.01), flat)
    np.testing.assert_allclose(turned.log_slopes[:, ::-1], found.log_slopes, atol=2e-3)
