"""Simulation-based calibration, a short version; `make sbc` runs the long one."""

import jax
import numpy as np
import pytest
import scipy.stats

from tests.sbc import run_sbc


@pytest.mark.slow
@pytest.mark.usefixtures("fully_optimized")
def test_posterior_is_calibrated_where_the_linearization_is_exact():
    found = run_sbc.run(jax.random.key(1), "exact", 24, progress=False)
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
    counts = np.full(run_sbc.DRAWS, 10)
    points = np.arange(1, run_sbc.DRAWS + 1) / (run_sbc.DRAWS + 1)
    tails = [
        2
        * min(
            sum(distribution.pmf(k) for k in range(11)),
            sum(distribution.pmf(k) for k in range(10, 21)),
        )
        for distribution in (scipy.stats.binom(20, point) for point in points)
    ]
    np.testing.assert_allclose(run_sbc.smallest_tail(counts, 20), min(tails), rtol=1e-9)
