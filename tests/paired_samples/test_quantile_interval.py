"""Intervals for quantiles from the draws alone: their coverage, and what they clip."""

import numpy as np
from scipy.special import ndtr

from nn_uq_dist.paired_samples._quantile_map import hold_in_interval

SCORES = np.linspace(-3.5, 3.5, 29)
RATIO = np.ones(500)


def test_true_quantiles_are_left_alone() -> None:
    # 500 samples, four standard deviations at each score: a true quantile is clipped in 0.01%.
    draws = np.random.default_rng(0).exponential(size=(400, 500))
    truth = np.broadcast_to(-np.log1p(-ndtr(SCORES)), (500, SCORES.size))
    held = hold_in_interval(truth, draws, SCORES, RATIO)
    assert np.mean(held != truth) < 0.001


def test_wild_values_are_clipped_to_the_draws() -> None:
    draws = np.random.default_rng(1).normal(size=(1000, 500))
    for wild in (-1e3, 1e3):
        held = hold_in_interval(np.full((500, SCORES.size), wild), draws, SCORES, RATIO)
        ordered = np.sort(draws, axis=0).T
        ranks = np.stack([np.searchsorted(*pair) for pair in zip(ordered, held, strict=True)])
        inner = (SCORES > -2) & (SCORES < 2)
        middle = 1000 * ndtr(SCORES)
        reach = 4 * np.sqrt(middle * (1 - ndtr(SCORES))) + 3
        assert (np.abs(ranks - middle) <= reach)[:, inner].all()
        # In the tails, ten spans of the six outermost draws beyond the last.
        end = np.where(wild < 0, ordered[:, 0], ordered[:, -1])
        span = np.where(wild < 0, np.ptp(ordered[:, :6], axis=1), np.ptp(ordered[:, -6:], axis=1))
        assert (np.abs(held - end[:, None]).max(axis=1) <= np.abs(end) + 4 + 10 * span).all()
