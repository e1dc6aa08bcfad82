"""Simulation-based calibration, a short version; `make sbc` runs the long one."""

import jax
import numpy as np
import pytest
import scipy.stats

from tests.sbc import run_sbc


@pytest.mark.slow
@pytest.mark.usefixtures("fully_optimized")
def test_posterior_is_calibrated_where_the_linearization_is_exact():
    found = run_sbc.run(jax.random.key(1), "exact", 24)
    for name in run_sbc.PARAMETERS:
        assert found[name].shape == (24,)
        # A right posterior fails once in a thousand keys for each parameter.
        assert run_sbc.uniformity(found[name]) > 1e-3


@pytest.mark.viz
def test_uniformity_tells_uniform_ranks_from_others(tmp_path):
    rng = np.random.default_rng(1)
    uniform = rng.integers(0, run_sbc.DRAWS + 1, 200)
    narrow = rng.binomial(run_sbc.DRAWS, 0.5, 200)  # of a posterior that is too wide
    assert run_sbc.uniformity(uniform) > 1e-3
    assert run_sbc.uniformity(narrow) < 1e-3
    assert run_sbc.uniformity(np.minimum(uniform + 20, run_sbc.DRAWS)) < 1e-3
    results = {"exact": {"beta": uniform, "sigma": narrow}}
    run_sbc.draw(results).savefig(tmp_path / "ranks.png")


def test_smallest_tail_is_a_binomial_probability():
    points = np.arange(1, run_sbc.DRAWS + 1)[:, None] / (run_sbc.DRAWS + 1)
    shares = scipy.stats.binom(20, points).pmf(np.arange(21))
    tails = 2 * np.minimum(shares[:, :11].sum(axis=1), shares[:, 10:].sum(axis=1))
    found = run_sbc.smallest_tail(np.full(run_sbc.DRAWS, 10), 20)
    np.testing.assert_allclose(found, tails.min(), rtol=1e-9)
