"""Tables from pairs: correct where the truth is known, sharper than plain draws, else unchanged."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats

from nn_uq_dist import Input, linearize, paired_draws
from nn_uq_dist.diagnostics import summary
from nn_uq_dist.sampling import PairedDraws, paired_statistics

pytestmark = pytest.mark.viz

KEY = jax.random.key(0)
STATISTICS = ("mean", "sd", "skewness", "q0.05", "q0.5", "q0.95", "lower_tail_0.05",
              "upper_tail_0.05")  # fmt: skip
ASKED = {"quantiles": [0.05, 0.5, 0.95], "tails": [0.05]}


def exponential(f):
    """Log-uniform, 0.7 times the input in the exponent; and twice that."""
    return jnp.exp(jnp.array([0.7, 1.4]) * f[0])


LIN = linearize(exponential, Input.box([0.0], half_width=0.5))


@pytest.mark.slow
def test_the_table_has_the_statistics_of_the_pairs():
    pairs = paired_draws(exponential, LIN, KEY, 1000, progress=False)
    table, plain = (summary(LIN, draws, **ASKED) for draws in (pairs, pairs.network))
    found = paired_statistics(pairs)
    ends = [found.exceedance(table[name, "analytic"].to_numpy()) for name in ("q0.05", "q0.95")]
    quantiles = [found.quantile(level) for level in ASKED["quantiles"]]
    estimates = [found.mean, found.sd, found.skewness, *quantiles, *ends]
    for name, (value, error, _) in zip(STATISTICS, estimates, strict=True):
        share = 1 - value if name == "lower_tail_0.05" else value
        np.testing.assert_allclose(table[name, "monte_carlo"], share, rtol=1e-6)
        np.testing.assert_allclose(table[name, "standard_error"], error, rtol=1e-6)
        if "tail" not in name:
            np.testing.assert_array_equal(table[name, "analytic"], plain[name, "analytic"])
            difference = table[name, "analytic"] - table[name, "monte_carlo"]
            np.testing.assert_array_equal(table[name, "error"], difference)
            assert (error < 0.8 * plain[name, "standard_error"]).all()
    # Nothing else than the sharper distance has changed.
    same = [c for c in plain.columns if c[0] not in {*STATISTICS, "kolmogorov_smirnov", "verdict"}]
    assert table[same].equals(plain[same])


@pytest.mark.slow
def test_pairs_see_what_as_many_plain_draws_do_not():
    lin = linearize(exponential, Input.normal([0.0], 0.05))
    pairs = paired_draws(exponential, lin, KEY, 200, progress=False)
    assert (summary(lin, pairs.network)["verdict", "dominates"] == "noise").all()
    table = summary(lin, pairs)
    assert (table["verdict", "dominates"] == "linearization").all()
    assert table["verdict", "words"].str.contains("shifted").all()
    # The mean of a lognormal, which the tangent takes for 1.
    exact = np.exp(np.array([0.035, 0.07]) ** 2 / 2)
    np.testing.assert_allclose(table["mean", "error"], 1 - exact, rtol=0.1)
    floor = table["kolmogorov_smirnov", "noise_floor"]
    assert (floor < 0.5 * scipy.stats.kstwobign.mean() / np.sqrt(200)).all()


def test_the_distribution_need_not_be_the_linear_one():
    # The network's own distribution, lognormal; from pairs with a tangent that is far off.
    lin = linearize(exponential, Input.normal([0.0], 0.25))
    pairs = paired_draws(exponential, lin, KEY, 1000, progress=False)
    table = summary(dist.LogNormal(0.0, jnp.array([0.175, 0.35])), pairs, **ASKED)
    assert (table["verdict", "dominates"] == "noise").all(), table["verdict", "words"].tolist()
    for name in ("mean", "sd", "q0.05", "q0.5", "q0.95", "lower_tail_0.05", "upper_tail_0.05"):
        part = table[name]
        off = part["monte_carlo"] - 0.05 if "tail" in name else part["error"]
        assert (off.abs() < 4 * part["standard_error"]).all()
    tangent = summary(lin, pairs, **ASKED)
    assert (tangent["verdict", "dominates"] == "linearization").all()


def test_outputs_with_few_finite_pairs_are_unknown():
    pairs = paired_draws(exponential, LIN, KEY, 200, progress=False)
    network = pairs.network.copy()
    network[150:, 0], network[50:, 1] = np.nan, np.inf
    with pytest.warns(RuntimeWarning, match=r"y\[0\]: 50, y\[1\]: 150"):
        table = summary(LIN, PairedDraws(pairs.inputs, network, pairs.linear, LIN, KEY))
    assert np.isfinite(table.loc["y[0]", ("mean", "standard_error")])
    values = table.loc["y[1]"][["mean", "sd"]]
    assert values.loc[:, ["monte_carlo", "standard_error"]].isna().all()
    assert table.loc["y[1]", ("verdict", "dominates")] == "unknown"
