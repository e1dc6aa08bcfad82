"""Every table takes every linear model, at one point and for a batch of points."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nn_uq_dist as nuq
from nn_uq_dist.diagnostics import joint_summary, sensitivity, summary, to_datatree

pytestmark = pytest.mark.viz

KEY = jax.random.key(0)
MEANS = np.array([[0.1, 0.2], [1.0, -0.5], [0.3, 0.0]], np.float32)
NAMES = ["a", "b"]


def network(x):
    return jnp.stack([jnp.tanh(x[0]) + x[1] ** 2, x[0] * x[1] + x[1]])


@pytest.fixture(scope="module")
def many():
    """A linearization of three points, and its pairs."""
    lin = nuq.linearize(network, nuq.Input.box(MEANS, half_width=0.5))
    return lin, nuq.paired_draws(network, lin, KEY, 400, progress=False)


@pytest.fixture(scope="module", params=["tangent", "corrected"])
def model(request, many):
    """A model of the second point, and draws of the network."""
    lin, pairs = many
    found = lin[1] if request.param == "tangent" else lin[1].corrected(pairs[1])
    return found, pairs.network[:, 1]


def test_summary_and_tree_take_every_model(model):
    found, draws = model
    table = summary(found, draws, output_names=NAMES, progress=False)
    np.testing.assert_allclose(table["mean", "analytic"], found.mean, rtol=1e-3)
    np.testing.assert_allclose(table["sd", "analytic"], np.sqrt(found.variance), rtol=2e-3)
    tree = to_datatree(found, draws, num_analytic_draws=20_000, progress=False)
    drawn = tree["analytic"]["y"].values.reshape(-1, 2)
    error = np.sqrt(np.asarray(found.variance) / 20_000)
    assert (np.abs(drawn.mean(axis=0) - np.asarray(found.marginals().mean)) < 5 * error).all()


@pytest.mark.slow
def test_joint_summary_takes_every_model(model):
    found, draws = model
    is_linear = isinstance(found, nuq.Linearization)
    joint = found.joint(noise_scale=0.02) if is_linear else found.gaussian_copula()
    table = joint_summary(found, draws, KEY, joint=joint, progress=False)
    assert np.isfinite(table.calibration["ks"]).all()
    np.testing.assert_allclose(table.correlation["linear"], found.correlation, rtol=1e-5)


@pytest.mark.slow
def test_summary_of_a_batch_has_the_rows_of_its_points(many):
    lin, pairs = many
    table = summary(lin, pairs, output_names=NAMES, progress=False)
    assert table.index.names == ["point", "output"]
    assert table.index.tolist() == [(i, name) for i in range(3) for name in NAMES]
    for i in range(3):
        single = summary(lin[i], pairs[i], output_names=NAMES, progress=False)
        assert table.loc[i]["verdict"].equals(single["verdict"])
        numbers = (part.iloc[:, 2:].astype(float) for part in (table.loc[i], single))
        np.testing.assert_allclose(*numbers, rtol=1e-4, atol=1e-5)


def test_tree_of_a_batch_has_the_trees_of_its_points(many):
    lin, pairs = many
    tree = to_datatree(lin, pairs, output_names=NAMES, num_analytic_draws=400, progress=False)
    assert tree["monte_carlo"]["y"].dims == ("chain", "draw", "point", "output")
    single = to_datatree(lin[2], pairs[2], num_analytic_draws=400, progress=False)
    for group in ("monte_carlo", "pit"):
        found, expected = tree[group]["y"].sel(point=2), single[group]["y"]
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_sensitivity_of_a_batch_is_that_of_its_points(many):
    lin, pairs = many
    for batch in (lin, lin.corrected(pairs)):
        found = sensitivity(batch, output_names=NAMES)
        assert found.dims == ("point", "output", "input")
        for i in range(3):
            np.testing.assert_array_equal(found.sel(point=i), sensitivity(batch[i]))


def test_rows_with_bad_draws_name_their_point(many):
    lin, pairs = many
    broken = pairs.network.copy()
    broken[:7, 2, 1] = np.nan
    with pytest.warns(RuntimeWarning, match=r"b of point 2: 7\)"):
        table = summary(lin, broken, output_names=NAMES, progress=False)
    assert table["draws", "non_finite"].tolist() == [0, 0, 0, 0, 0, 7]
