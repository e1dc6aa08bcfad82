"""Distances between draws and laws: against SciPy and brute force, errors by repetition."""

import numpy as np
import pytest
import scipy.stats
from arviz_stats.base import array_stats

from nn_uq_dist.diagnostics import _estimates as distances
from nn_uq_dist.diagnostics import _estimates as estimates
from nn_uq_dist.diagnostics._verdict import dominating_part
from tests.diagnostics.known_laws import LAWS, sample

pytestmark = pytest.mark.viz


def test_kolmogorov_smirnov_agrees_with_scipy():
    for name in LAWS:
        for scale, shift in [(1, 0), (1.05, 0.02), (3, -1)]:
            law = LAWS[name]
            x = shift + scale * sample(law, 2_000)
            x[500:600] = x[500]  # ties
            x.sort()
            found = distances.kolmogorov_smirnov(law.cdf(x))
            expected = scipy.stats.kstest(x, law.cdf)
            assert found.value == pytest.approx(expected.statistic, abs=1e-15)
            level = np.mean(x <= expected.statistic_location)
            if expected.statistic_sign < 0:
                level = np.mean(x < expected.statistic_location)
            assert found.standard_error == pytest.approx(
                np.sqrt(level * (1 - level) / 2_000), rel=1e-12
            )
            floor = scipy.stats.kstwobign.mean() / np.sqrt(2_000)
            assert found.noise_floor == pytest.approx(floor, rel=1e-6)


def test_kolmogorov_smirnov_of_an_invalid_law_is_nan():
    assert np.isnan(distances.kolmogorov_smirnov(np.full(200, np.nan))).all()


@pytest.mark.slow
def test_standard_errors_and_noise_floors_are_calibrated():
    # 1000 repetitions: standard deviations are known to 2.2%, means to 3% of them.
    law = scipy.stats.norm(0.3, 1)  # shifted: the distances are attained at the same place
    found, same = (
        [distances.kolmogorov_smirnov(scipy.stats.norm.cdf(x)) for x in sample(of, (1_000, 1_000))]
        for of in (law, scipy.stats.norm)
    )
    values, errors, _ = np.array(found).T
    np.testing.assert_allclose(np.std(values) / np.mean(errors), 1, atol=0.1)
    np.testing.assert_allclose(np.mean([one.value for one in same]), same[0].noise_floor, rtol=0.06)


@pytest.mark.parametrize("count", [100, 1_000])
def test_uniformity_test_is_calibrated(count):
    # ArviZ's own p-value is below 0.05 for 6.5% of uniform samples. 2000 of them here: 5% +- 0.5%.
    u = np.random.default_rng(7).random((2_000, count))
    found = np.array([distances.uniformity_p_value(row) for row in u])
    for level in (0.05, 0.2):
        error = np.sqrt(level * (1 - level) / len(u))
        assert abs((found < level).mean() - level) < 3.5 * error + 0.005
    raw, _, _ = array_stats.uniformity_test(u[:100], method="pot_c")
    assert (np.argsort(raw) == np.argsort(found[:100], kind="stable")).mean() > 0.9


def test_uniformity_test_sees_a_wrong_law():
    u = np.random.default_rng(7).random(1_000)
    assert distances.uniformity_p_value(u**1.2) < 1e-3


def test_exceedances_are_counted_and_never_certain():
    x = np.arange(100.0)
    below = estimates.exceedances(x, np.array([-1.0, 10.0]), above=False)
    assert [e.value for e in below] == [0, 0.1]
    above = estimates.exceedances(x, np.array([10.0, 200.0]), above=True)
    assert [e.value for e in above] == [0.89, 0]
    assert above[1].standard_error == pytest.approx(np.sqrt((2 / 104) * (102 / 104) / 100))


def test_exceedance_errors_are_calibrated():
    counts = np.random.default_rng(0).binomial(1_000, 0.02, 2_000)
    errors = []
    for count in counts:
        found = estimates.exceedances(np.arange(1_000.0), np.array([count - 0.5]), above=False)[0]
        assert found.value == count / 1_000
        errors.append((found.value - 0.02) / found.standard_error)
    np.testing.assert_allclose(np.std(errors), 1, atol=0.1)


def test_dominating_part_follows_its_rule():
    for numbers, expected in [
        # Distance and p-value of the network's draws, and of exact linear draws.
        ((0.009, 0.3, 0.009, 0.4), "noise"),
        ((0.03, 1e-6, 0.009, 0.4), "linearization"),
        ((0.03, 1e-6, 0.029, 1e-6), "copula"),
        ((0.06, 1e-9, 0.029, 1e-6), "linearization"),
        ((0.009, 0.3, 0.05, 1e-9), "copula"),
        ((0.02, 2e-3, 0.009, 0.4), "noise"),  # once in 500 rows: not in a table of four
        ((np.nan, 0.01, 0.01, 0.01), "unknown"),
    ]:
        assert dominating_part(*numbers, "copula", 4) == expected
