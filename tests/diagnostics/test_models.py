"""Tables of a batch of points have the rows of each of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nn_uq_dist as nuq
from nn_uq_dist.diagnostics import sensitivity, summary, to_datatree

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


@pytest.mark.slow
def test_summary_of_a_batch_has_the_rows_of_its_points(many):
    lin, pairs = many
    table = summary(lin, pairs, output_names=NAMES, progress=False)
    assert table.index.names == ["point", "output"]
    assert table.index.tolist() == [(i, name) for i in range(3) for name in NAMES]
    single = summary(lin[1], pairs[1], output_names=NAMES, progress=False)
    assert table.loc[1]["verdict"].equals(single["verdict"])
    numbers = (part.iloc[:, 2:].astype(float) for part in (table.loc[1], single))
    np.testing.assert_allclose(*numbers, rtol=1e-4, atol=1e-5)


def test_tree_of_a_batch_has_the_trees_of_its_points(many):
    lin, pairs = many
    tree = to_datatree(lin, pairs, num_analytic_draws=400, progress=False)
    single = to_datatree(lin[2], pairs[2], num_analytic_draws=400, progress=False)
    for group in ("monte_carlo", "pit"):
        found, expected = tree[group]["y"].sel(point=2), single[group]["y"]
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_sensitivity_of_a_batch_is_that_of_its_points(many):
    lin, pairs = many
    for batch in (lin, lin.corrected(pairs)):
        found = sensitivity(batch, output_names=NAMES)
        np.testing.assert_array_equal(found.sel(point=2), sensitivity(batch[2]))


def test_rows_with_bad_draws_name_their_point(many):
    lin, pairs = many
    broken = pairs.network.copy()
    broken[:7, 2, 1] = np.nan
    with pytest.warns(RuntimeWarning, match=r"b of point 2: 7\)"):
        table = summary(lin, broken, output_names=NAMES, progress=False)
    assert table["draws", "non_finite"].tolist() == [0, 0, 0, 0, 0, 7]
