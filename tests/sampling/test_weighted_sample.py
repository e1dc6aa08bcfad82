"""Moments of plain draws: values against SciPy, errors against the jackknife."""

import numpy as np
import pytest
import scipy.stats

from nn_uq_dist.sampling.weighted_sample import (
    WeightedSample,
    correlation,
    excess_kurtosis,
    mean,
    sd,
    skewness,
)

SAMPLERS = {
    "skewed": scipy.stats.beta(2, 6),
    "two_peaks": scipy.stats.arcsine(-1, 2),
}
EXPECTED = {
    "mean": lambda x: np.mean(x, axis=-1),
    "sd": lambda x: np.std(x, ddof=1, axis=-1),
    "skewness": lambda x: scipy.stats.skew(x, axis=-1),
    "excess_kurtosis": lambda x: scipy.stats.kurtosis(x, axis=-1),
}


def plain(count):
    return WeightedSample.equal(np.full(count, True))


def sample(distribution, shape):
    return distribution.rvs(size=shape, random_state=np.random.default_rng(0))


def moments_of(x):
    moments = (mean, sd, skewness, excess_kurtosis)
    return {moment.__name__: moment(plain(x.size), x) for moment in moments}


@pytest.mark.parametrize("scale", [1.0, 1e-170])
def test_moments_agree_with_scipy(scale):
    for distribution in SAMPLERS.values():
        x = sample(distribution, 5_000)
        for name, (value, error, worth) in moments_of(scale * x).items():
            unit = scale if name in {"mean", "sd"} else 1.0
            np.testing.assert_allclose(value / unit, EXPECTED[name](x), rtol=1e-10, atol=1e-13)
            assert error > 0
            if scale == 1:
                assert worth == pytest.approx(5_000, rel=0.01)


def test_standard_errors_of_moments_agree_with_the_jackknife():
    for distribution in SAMPLERS.values():
        x = sample(distribution, 2_000)
        left_out = np.broadcast_to(x, (x.size, x.size))[~np.eye(x.size, dtype=bool)]
        left_out = left_out.reshape(x.size, x.size - 1)
        for name, found in moments_of(x).items():
            jackknife = np.sqrt((x.size - 1) * np.var(EXPECTED[name](left_out)))
            # They differ in the order 1/n, times the largest draw's pull on the moment.
            np.testing.assert_allclose(found.standard_error, jackknife, rtol=0.03)


def test_the_correlation_and_its_standard_error_agree_with_the_jackknife():
    x, y = np.random.default_rng(0).gamma(2, size=(2, 1_000))
    y = y - 0.7 * x
    found = correlation(plain(x.size), x, y)
    assert found.value == pytest.approx(np.corrcoef(x, y)[0, 1], abs=1e-12)
    left_out = [np.corrcoef(np.delete([x, y], i, axis=1))[0, 1] for i in range(x.size)]
    jackknife = np.sqrt((x.size - 1) * np.var(left_out))
    assert found.standard_error == pytest.approx(jackknife, rel=0.03)
