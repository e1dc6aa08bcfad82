"""`monte_carlo` and `monte_carlo_statistics`: the draws, the devices, the statistics, errors."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

from nn_uq_dist import InputLaw, monte_carlo, monte_carlo_statistics

KEY = jax.random.key(0)
MATRIX = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
BOX = InputLaw(np.array([0.3, -0.2, 0.1], np.float32), 0.5)


def network(x):
    return jnp.tanh(MATRIX @ x)


def draw(num_samples, **options):
    options = {"progress": False, "f": BOX, "network": network, "key": KEY} | options
    return monte_carlo(num_samples=num_samples, **options)


def gather(num_samples, **options):
    options = {"progress": False, "f": BOX, "network": network, "key": KEY} | options
    return monte_carlo_statistics(num_samples=num_samples, **options)


@pytest.mark.parametrize("batch", [(), (2, 3)])
def test_shape_and_type(batch):
    law = InputLaw(np.zeros((*batch, 3), np.float32), 0.1)
    draws = draw(10, f=law)
    assert isinstance(draws, np.ndarray)
    assert draws.shape == (10, *batch, 4)
    assert draws.dtype == np.float32


def test_outputs_are_those_of_the_drawn_inputs():
    inputs = draw(500, network=lambda x: x)
    assert (np.abs(inputs - np.asarray(BOX.loc)) <= 0.5).all()
    np.testing.assert_allclose(draw(500), np.tanh(inputs @ MATRIX.T), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("batch_size", [4096, 10**9])
def test_outputs_do_not_depend_on_the_batch_size(batch_size):
    np.testing.assert_array_equal(draw(20_001, batch_size=batch_size), draw(20_001))


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [7, 1000])
def test_small_batches_have_the_same_inputs_and_outputs_to_rounding(batch_size):
    identity = {"network": lambda x: x}
    np.testing.assert_array_equal(
        draw(2000, batch_size=batch_size, **identity), draw(2000, **identity)
    )
    np.testing.assert_allclose(draw(2000, batch_size=batch_size), draw(2000), atol=1e-6)


def test_a_longer_run_starts_with_the_shorter_one():
    identity = {"network": lambda x: x}
    np.testing.assert_array_equal(draw(9000, **identity)[:100], draw(100, **identity))


def test_keys():
    legacy = jax.random.key_data(KEY)
    np.testing.assert_array_equal(draw(100, key=legacy), draw(100))
    assert not np.array_equal(draw(100, key=jax.random.key(1)), draw(100))
    rbg = jax.random.key(0, impl="rbg")
    identity = {"network": lambda x: x, "key": rbg}
    np.testing.assert_array_equal(draw(100, batch_size=7, **identity), draw(200, **identity)[:100])


def test_draws_are_independent_and_follow_the_law():
    law = InputLaw(np.zeros(2, np.float32), [1.0, 0.0], [[0.0, 0.0], [0.0, 2.0]])
    draws = draw(50_000, f=law, network=lambda x: x)
    # Fixed key; each test fails for 1 key in 1000.
    assert stats.kstest(draws[:, 0], stats.uniform(-1, 2).cdf).pvalue > 1e-3
    assert stats.kstest(draws[:, 1], stats.norm(0, 2).cdf).pvalue > 1e-3
    for pair in [(draws[:, 0], draws[:, 1]), (draws[:-1, 0], draws[1:, 0])]:
        assert stats.pearsonr(*pair).pvalue > 1e-3


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_x64():
    law = dist.Uniform(np.zeros(3), 1.0).to_event(1)
    assert draw(10, f=law).dtype == np.float64
    assert gather(100, f=law).mean.dtype == np.float64


def test_index_of_the_last_group_fits_32_bits():
    # 2**31 draws are too many for a test: the plan alone is made.
    from nn_uq_dist.sampling._passes import DrawPlan

    plan = DrawPlan.make(network, BOX, KEY, 2**31, None, None)
    last = (2**31 - 1) // plan.pass_size * plan.pass_size + plan.pass_size
    assert last < 2**32


SCRIPT = """
import sys
import jax, jax.numpy as jnp, numpy as np
from nn_uq_dist import InputLaw, monte_carlo, monte_carlo_statistics

num_devices, path = int(sys.argv[1]), sys.argv[2]
assert len(jax.devices()) == num_devices
key = jax.random.split(jax.random.key(0))
first = jax.random.normal(key[0], (31, 64)) / 6
# Weights that were put on one device must not hinder the others.
last = jax.device_put(jax.random.normal(key[1], (64, 5)) / 8, jax.devices()[-1])
network = lambda x: jax.nn.leaky_relu(x @ first, 0.01) @ last
law = InputLaw(jnp.zeros(31), 0.5, 0.1 * jnp.eye(31))
options = {"batch_size": 4096, "progress": False}
draws = monte_carlo(network, law, jax.random.key(1), 50_001, **options)
statistics = monte_carlo_statistics(network, law, jax.random.key(1), 50_001, **options)
options["devices"] = jax.devices()[:1]
some = monte_carlo(network, law, jax.random.key(1), 50_001, **options)
np.savez(path, draws=draws, some=some, mean=statistics.mean, counts=statistics.bin_counts)
"""


def run_on(num_devices, path):
    environment = os.environ | {
        "XLA_FLAGS": f"--xla_force_host_platform_device_count={num_devices}",
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    command = [sys.executable, "-W", "error", "-c", SCRIPT, str(num_devices), str(path)]
    subprocess.run(command, env=environment, check=True, timeout=300)  # noqa: S603
    return np.load(path)


@pytest.mark.slow
def test_eight_devices_give_the_draws_of_one(tmp_path):
    one, eight = run_on(1, tmp_path / "one.npz"), run_on(8, tmp_path / "eight.npz")
    for name in ("draws", "some", "mean", "counts"):
        np.testing.assert_array_equal(one[name], eight[name])
    np.testing.assert_array_equal(eight["some"], eight["draws"])


@pytest.mark.parametrize(("batch", "batch_size"), [((), 1000), ((2,), None)])
def test_statistics_are_those_of_the_draws(batch, batch_size):
    law = InputLaw(np.full((*batch, 3), 0.2, np.float32), 0.5)
    draws = np.asarray(draw(30_000, f=law, batch_size=batch_size), np.float64)
    statistics = gather(30_000, f=law, batch_size=batch_size)
    assert (statistics.count == 30_000).all()
    assert (statistics.num_nonfinite == 0).all()
    assert (statistics.bin_counts.sum(axis=0) == 30_000).all()
    np.testing.assert_allclose(statistics.mean, draws.mean(axis=0), atol=1e-7)
    np.testing.assert_allclose(statistics.variance, draws.var(axis=0, ddof=1), rtol=2e-6)
    np.testing.assert_allclose(statistics.skewness, stats.skew(draws), atol=3e-6)
    np.testing.assert_allclose(statistics.excess_kurtosis, stats.kurtosis(draws), atol=1e-5)
    np.testing.assert_array_equal(statistics.minimum, draws.min(axis=0))
    np.testing.assert_array_equal(statistics.maximum, draws.max(axis=0))


def test_quantiles_are_within_their_bins():
    draws = draw(30_000)
    statistics = gather(30_000)
    q = np.array([[0.0, 1e-4, 0.01], [0.5, 0.9, 1.0]])
    expected = np.quantile(draws, q, axis=0, method="inverted_cdf")
    lower, upper = statistics.quantile_bounds(q)
    assert lower.shape == upper.shape == (2, 3, 4)
    # A draw may be rounded over an edge.
    assert (lower <= expected + 1e-6).all()
    assert (expected <= upper + 1e-6).all()
    sd = np.sqrt(statistics.variance)
    assert ((upper - lower)[1, 0] < 2e-4 * sd).all()
    quantile = statistics.quantile(q)
    assert ((lower <= quantile) & (quantile <= upper)).all()
    np.testing.assert_array_equal(quantile[0, 0], statistics.minimum)
    np.testing.assert_array_equal(quantile[1, 2], statistics.maximum)
    assert statistics.quantile(0.5).shape == (4,)


def normal_cdf(y):
    return stats.norm(0.1, 2).cdf(y)


@pytest.mark.slow
def test_ks_distance_is_that_of_the_draws_to_the_stated_resolution():
    law = InputLaw(np.zeros(2, np.float32), scale_tril=2 * np.eye(2, dtype=np.float32))
    identity = {"f": law, "network": lambda x: x}
    draws = draw(30_000, **identity)
    for num_bins in (16, 1000, 16384):
        statistics = gather(30_000, num_bins=num_bins, **identity)
        distance = statistics.ks_distance(normal_cdf)
        exact = [stats.kstest(column, normal_cdf).statistic for column in draws.T]
        assert (distance <= np.array(exact) + 1e-6).all()
        assert (exact <= distance + statistics.max_bin_mass + 1e-6).all()
    assert statistics.max_bin_mass.max() < 1e-3


@pytest.mark.slow
def test_statistics_of_far_outliers():
    # One draw in a thousand or so is 1e6 scales away; nothing is lost.
    def outlier(x):
        return jnp.where(x > 0.999, 1e6 * x, x)

    law = InputLaw(np.zeros(1, np.float32), 1.0)
    draws = np.asarray(draw(50_000, f=law, network=outlier), np.float64)
    statistics = gather(50_000, f=law, network=outlier)
    assert statistics.bin_counts.sum() == 50_000
    assert statistics.maximum[0] == draws.max() > 9e5
    np.testing.assert_allclose(statistics.mean, draws.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(statistics.variance, draws.var(axis=0, ddof=1), rtol=1e-5)


def test_mean_far_from_zero_costs_no_accuracy():
    law = InputLaw(np.zeros(1, np.float32), 1.0)
    far = {"f": law, "network": lambda x: x * 2.0**-6 + 1024}
    draws = np.asarray(draw(50_000, **far), np.float64)
    statistics = gather(50_000, **far)
    np.testing.assert_allclose(statistics.variance, draws.var(axis=0, ddof=1), rtol=1e-5)
    np.testing.assert_allclose(statistics.mean, draws.mean(axis=0), rtol=1e-9)


def test_constant_output():
    statistics = gather(5000, network=lambda x: 0 * x + 3.0)
    np.testing.assert_array_equal(statistics.mean, 3.0)
    np.testing.assert_array_equal(statistics.variance, 0.0)
    assert np.isnan(statistics.skewness).all()
    np.testing.assert_array_equal(statistics.quantile([0.0, 0.5, 1.0]), 3.0)


def test_nonfinite_outputs_are_counted_and_reported():
    def partial(x):
        return jnp.stack([jnp.sqrt(x[0]), x[0], x[0] * jnp.nan, 1 / jnp.maximum(x[0], 0)])

    law = InputLaw(np.zeros(1, np.float32), 1.0)
    with pytest.warns(RuntimeWarning, match="of 20000 network outputs drawn are NaN or infinite"):
        draws = draw(5000, f=law, network=partial)
    with pytest.warns(RuntimeWarning, match="check the network over the range of its input"):
        statistics = gather(5000, f=law, network=partial)
    finite = np.isfinite(draws)
    np.testing.assert_array_equal(statistics.count, finite.sum(axis=0))
    np.testing.assert_array_equal(statistics.num_nonfinite, 5000 - finite.sum(axis=0))
    assert statistics.num_nonfinite[1] == 0
    for output in (0, 3):
        kept = draws[finite[:, output], output].astype(np.float64)
        np.testing.assert_allclose(statistics.mean[output], kept.mean(), rtol=1e-5)
        assert statistics.maximum[output] == kept.max()
    empty = [statistics.mean, statistics.minimum, statistics.quantile(0.5), statistics.max_bin_mass]
    assert all(np.isnan(values[2]) for values in empty)


def test_progress_bar_appears_on_long_work_only(capfd, monkeypatch):
    def shown(delay, *, progress):
        import tqdm

        class Bar(tqdm.tqdm):
            def __init__(self, *args, **options):
                super().__init__(*args, **(options | {"delay": delay, "mininterval": 0}))

        monkeypatch.setattr("tqdm.tqdm", Bar)
        draw(20_000, batch_size=4096, progress=progress)
        monkeypatch.undo()
        return "draw/s" in capfd.readouterr().err

    assert shown(0, progress=True)
    assert not shown(0, progress=False)
    assert not shown(1000, progress=True)


ERRORS = {
    "no samples": (lambda: draw(0), ValueError, "num_samples must be a positive integer, got 0"),
    "fraction": (
        lambda: draw(1e3),
        TypeError,
        "num_samples must be a positive integer, got float 1000.0; pass an int",
    ),
    "too many": (lambda: draw(2**31 + 1), ValueError, "at most 2147483648, .*several keys"),
    "batch size": (lambda: draw(10, batch_size=0), ValueError, "batch_size must be a positive"),
    "batch type": (lambda: draw(10, batch_size="a"), TypeError, "batch_size .* got str 'a'"),
    "seed": (lambda: draw(10, key=0), TypeError, "key must be a JAX random key, got int; pass"),
    "floats": (
        lambda: draw(10, key=np.zeros(2)),
        TypeError,
        r"got an array of shape \(2,\) and dtype float64",
    ),
    "keys": (
        lambda: draw(10, key=jax.random.split(KEY)),
        ValueError,
        r"must be one random key, got an array of keys of shape \(2,\)",
    ),
    "family": (
        lambda: draw(10, f="normal"),
        TypeError,
        "got str; pass a Uniform",
    ),
    "output": (lambda: draw(10, network=lambda _: ()), ValueError, "at least one number, got"),
    "batch of scalars": (
        lambda: draw(10, f=dist.Gamma(np.ones(3), 1.0)),
        ValueError,
        r"got batch_shape \(3,\) and event_shape \(\); call .to_event\(1\)",
    ),
    "devices": (lambda: draw(10, devices=["cpu"]), TypeError, "sequence of JAX devices"),
    "no devices": (lambda: draw(10, devices=[]), TypeError, r"got \[\]; pass jax.devices\(\)"),
    "one device": (lambda: draw(10, devices=3), TypeError, "got 3; pass jax.devices"),
    "traced": (
        lambda: jax.jit(lambda key: draw(10, key=key))(KEY),
        TypeError,
        "got traced values; call Monte Carlo functions outside of jit",
    ),
    "bins": (lambda: gather(10, num_bins=8), ValueError, "num_bins must be at least 16, got 8"),
    "q": (
        lambda: gather(10).quantile(50),
        ValueError,
        r"q must be in \[0, 1\], got 50.0; pass probabilities, not percentages",
    ),
    "cdf": (
        lambda: gather(10).ks_distance(lambda y: y[0]),
        ValueError,
        r"cdf must return the shape \(16383, 4\) .* got \(4,\); .* batch_shape \(4,\)",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors(case):
    call, kind, message = ERRORS[case]
    with pytest.raises(kind, match=message):
        call()
