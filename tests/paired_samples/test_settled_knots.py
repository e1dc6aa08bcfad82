"""Knots within what the draws say of quantiles, and apart in the type of the outputs."""

import numpy as np
from scipy.special import ndtr

from nn_uq_dist.distributions import MonotoneSpline
from nn_uq_dist.paired_samples.settled_knots import _resolved, held

SCORES = np.linspace(-3.5, 3.5, 29)


def test_true_quantiles_are_left_alone():
    # 500 samples, four standard deviations at each score: a true quantile is clipped in 0.01%.
    draws = np.random.default_rng(0).exponential(size=(400, 500))
    truth = -np.log1p(-ndtr(SCORES))
    assert np.mean([held(truth, column, SCORES) != truth for column in draws.T]) < 0.001


def test_wild_values_are_clipped_to_the_draws():
    draws = np.sort(np.random.default_rng(1).normal(size=1000))
    middle = 1000 * ndtr(SCORES)
    reach = 4 * np.sqrt(middle * (1 - ndtr(SCORES))) + 3
    inner = (SCORES > -2) & (SCORES < 2)
    for wild in (-1e3, 1e3):
        ranks = np.searchsorted(draws, held(np.full(SCORES.size, wild), draws, SCORES))
        assert (np.abs(ranks - middle) <= reach)[inner].all()


def test_knots_that_the_type_does_not_tell_apart():
    """They move beyond the ends: the map is the same within three steps of some two roundings."""
    rise = np.array([0.0, 0, 0, 0, 1, 5, 5.0001, 9, 10, 10, 10, 10])
    x = np.linspace(-3, 3, rise.size)
    for y in 1e4 + np.stack([rise, rise - rise[::-1], 0 * rise, 1e-3 * rise, 1e3 * rise]):
        found = _resolved((x, y, np.gradient(y, x) + 1e-6), np.float32)
        spline = MonotoneSpline(*(part.astype(np.float32) for part in found))
        values = np.asarray(spline(x.astype(np.float32)), np.float64)
        assert np.abs(values - y).max() < 3 * 2.0**-8
