"""Markov chains and subset simulation against the probabilities of half-spaces."""

import math

import numpy as np
import pytest
from scipy.stats import norm, truncnorm

from nn_uq_dist.inference._markov_chains import Chains, subset_simulation


def along_first(z):
    return z[:, 0]


def populations(run, limits, count=4000, d=5):
    rng = np.random.default_rng(1)
    points = rng.standard_normal((count, d))
    return subset_simulation(run, limits, points, run(points), rng)


def test_half_spaces():
    limits = [0.5, 2.0, 3.0, 4.5]
    found = populations(along_first, limits)
    for limit, population in zip(limits, found, strict=True):
        off = population.log_probability - norm.logsf(limit)
        # Points of a level are not independent of those of the level before: twice the error.
        assert abs(off) < 3 * 2 * population.relative_error
        assert population.relative_error < 0.2
        assert np.all(population.points[:, 0] > limit)
        mean = population.points[:, 0].mean()
        assert mean == pytest.approx(truncnorm(limit, np.inf).mean(), abs=0.1)
        assert np.linalg.norm(population.points[:, 1:].mean(axis=0)) < 0.6
    logs = [population.log_probability for population in found]
    assert logs == sorted(logs, reverse=True)


def test_a_limit_that_most_exceed_is_plain_draws():
    (found,) = populations(along_first, [-1.0])
    assert found.log_probability == pytest.approx(norm.logsf(-1.0), abs=4 * found.relative_error)
    assert len(found.points) == pytest.approx(4000 * norm.sf(-1.0), abs=100)


def test_a_plateau_ends_it():
    # No point is above the level where outputs are flat.
    found = populations(lambda z: np.minimum(z[:, 0], 1.0), [0.0, 2.0])
    assert len(found[0].points) > 1500
    assert found[1].log_probability == -math.inf
    assert len(found[1].points) == 0


def test_chains_forget_where_they_began():
    rng = np.random.default_rng(0)
    chains = Chains(np.full((400, 3), 6.0))
    for _ in range(30):
        chains = chains.moved(along_first, 2.0, np.arange(400), rng)
    recent = np.stack(chains.recent)
    assert recent[..., 0].min() > 2.0
    np.testing.assert_array_equal(recent[-1], chains.points)
    # Errors of independent points are .02 and .05.
    assert recent[..., 0].mean() == pytest.approx(truncnorm(2.0, np.inf).mean(), abs=0.06)
    assert np.abs(recent[..., 1:].mean(axis=(0, 1))).max() < 0.15


def test_chains_go_on_from_the_rows_asked_for():
    rng = np.random.default_rng(0)
    chains = Chains(np.array([[3.0, -50.0], [3.0, 50.0]]))
    chains = chains.moved(along_first, 2.0, np.array([1, 1]), rng)
    assert np.all(chains.points[:, 1] > 0)
