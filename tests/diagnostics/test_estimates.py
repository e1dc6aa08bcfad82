"""The uniformity test is calibrated, and what dominates follows its rule."""

import numpy as np
import pytest
from arviz_stats.base import array_stats

from nn_uq_dist.diagnostics import _estimates as estimates
from nn_uq_dist.diagnostics._verdict import dominating_part

pytestmark = pytest.mark.viz


@pytest.mark.parametrize("count", [100, 1_000])
def test_uniformity_test_is_calibrated(count):
    # ArviZ's own p-value is below 0.05 for 6.5% of uniform samples. 2000 of them here: 5% +- 0.5%.
    u = np.random.default_rng(7).random((2_000, count))
    found = np.array([estimates.uniformity_p_value(row) for row in u])
    for level in (0.05, 0.2):
        error = np.sqrt(level * (1 - level) / len(u))
        assert abs((found < level).mean() - level) < 3.5 * error + 0.005
    raw, _, _ = array_stats.uniformity_test(u[:100], method="pot_c")
    assert (np.argsort(raw) == np.argsort(found[:100], kind="stable")).mean() > 0.9


def test_uniformity_test_sees_a_wrong_distribution():
    u = np.random.default_rng(7).random(1_000)
    assert estimates.uniformity_p_value(u**1.2) < 1e-3


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
