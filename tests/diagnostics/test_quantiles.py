"""Values at given scores by bracketing, for laws that do not state where their supports end."""

import numpy as np
import pytest
import scipy.stats

from nn_uq_dist.diagnostics._quantiles import values_at_scores

TARGETS = np.array([-6.0, -1.0, 0.0, 0.5, 3.0])


@pytest.mark.parametrize("ends_are_known", [True, False])
def test_bounded_laws(ends_are_known: bool) -> None:
    laws = [scipy.stats.uniform(-1, 2), scipy.stats.norm(3, 1e-4), scipy.stats.beta(2, 5)]

    def scores(points: np.ndarray) -> np.ndarray:
        assert np.abs(points).max() < 1e6
        columns = []
        for law, x in zip(laws, points.T, strict=True):
            is_lower = x < law.median()
            score = scipy.stats.norm.isf(np.where(is_lower, law.cdf(x), law.sf(x)))
            columns.append(np.where(is_lower, -score, score))
        return np.stack(columns, axis=1)

    low, high = (np.array([law.support()[k] for law in laws]) for k in (0, 1))
    ends = (low, high) if ends_are_known else (np.full(3, -np.inf), np.full(3, np.inf))
    start = np.array([-40.0, 0.0, -8.0]), np.array([40.0, 6.0, 8.0])
    found = values_at_scores(TARGETS, scores, start, ends, (1e-14, np.full(3, 1e-14)), 256)
    expected = np.stack([law.ppf(scipy.stats.norm.cdf(TARGETS)) for law in laws], axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9)
