"""The band for a distribution function: its coverage, and zero width if nothing is unknown."""

import numpy as np
import scipy.stats

from nn_uq_dist.paired_samples import controlled_band

POINTS = scipy.stats.norm.ppf((np.arange(49) + 0.5) / 49)[:, None]
KNOWN = scipy.stats.norm.cdf(POINTS)


def test_the_control_itself_has_the_width_of_what_no_draw_may_show():
    draws = np.random.default_rng(0).normal(size=(300, 1))
    band = controlled_band(draws, draws, POINTS, KNOWN, 0.95, np.random.default_rng(1))
    # A share that none of 300 draws hits with probability .05.
    least = 1 - 0.05 ** (1 / 300)
    np.testing.assert_allclose(band.lower, np.maximum(KNOWN - least, 0), atol=1e-7)
    np.testing.assert_allclose(band.upper, np.minimum(KNOWN + least, 1), atol=1e-7)


def test_covers_at_its_level():
    # 300 repetitions at 95%: the share has a standard error of 1.3%.
    rng = np.random.default_rng(2)
    control = rng.normal(size=(200, 300))
    network = control + 0.3 * control**2
    # x + 0.3 x^2 <= y between the roots of a parabola.
    root = np.sqrt(np.maximum(1 + 1.2 * POINTS, 0))
    low, high = (-1 - root) / 0.6, (-1 + root) / 0.6
    truth = scipy.stats.norm.cdf(high) - scipy.stats.norm.cdf(low)
    points, known = np.repeat(POINTS, 300, axis=1), np.repeat(KNOWN, 300, axis=1)
    band = controlled_band(network, control, points, known, 0.95, rng)
    held = ((band.lower <= truth + 1e-12) & (truth <= band.upper + 1e-12)).all(axis=0)
    assert 0.90 < held.mean() <= 0.99
    # Sharper than a band from plain draws (Kolmogorov).
    assert np.mean(band.upper - band.lower) < 2 * 1.36 / np.sqrt(200) * 0.75
