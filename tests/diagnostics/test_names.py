"""Keys of dicts are the names in every table, figure and tree, in the order of the numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import nn_uq_dist as nuq
from nn_uq_dist import diagnostics, plots

pytestmark = pytest.mark.viz

KEY = jax.random.key(0)
# As JAX orders the keys; nobody writes them in that order.
INPUTS = ["angle[0]", "angle[1]", "wind"]
OUTPUTS = ["alpha[0]", "alpha[1]", "zeta"]
MEANS = dict(zip(OUTPUTS, [-5.0, 3.0, 10.0], strict=True))
f = {
    "wind": dist.Uniform(-0.3, 0.3),
    "gain": jnp.array(2.0),  # known, so it has no name
    "angle": dist.Normal(jnp.zeros(2), 0.1).to_event(1),
}
# Shares of the variance, 3% of wind and 1% of angle.
SHARES = {"alpha[0]": [1, 0, 0], "alpha[1]": [0, 0.25, 0.75], "zeta": [0, 0, 1]}


def network(x):
    wind, angle = x["wind"], x["angle"]
    alpha = jnp.array([angle[0] - 5, 3 + angle[1] + wind])
    return {"zeta": 10 + wind * x["gain"], "alpha": alpha}


@pytest.fixture(scope="module")
def lin():
    return nuq.linearize(network, f)


@pytest.fixture(scope="module")
def pairs(lin):
    return nuq.paired_draws(network, lin, KEY, 400, progress=False)


@pytest.mark.slow
def test_tables_and_trees(lin, pairs):
    table = diagnostics.summary(lin, pairs, progress=False)["mean"]
    short = diagnostics.table(lin, limits={"zeta": 10.3})
    tree = diagnostics.to_datatree(lin, pairs, progress=False)
    of_draws = tree["monte_carlo"]["y"].mean(["chain", "draw"]).to_series()
    corrected = diagnostics.table(lin.corrected(pairs))["mean"]
    columns = table["analytic"], table["monte_carlo"], short["mean"], of_draws, corrected
    for found in columns:
        assert found.to_dict() == pytest.approx(MEANS, abs=0.06)
    assert short.index[short["P(> 10.3)"].notna()].tolist() == ["zeta"]
    shares = diagnostics.sensitivity(lin).to_pandas()
    assert shares.columns.tolist() == INPUTS
    for name, row in SHARES.items():
        np.testing.assert_allclose(shares.loc[name], row, atol=1e-6)
    # Distributions alone have no names.
    assert diagnostics.table(lin.marginals()).index.tolist() == ["y[0]", "y[1]", "y[2]"]


def test_figures(lin, pairs):
    two = ["zeta", "alpha[1]"]
    figure = plots.plot_marginals(lin, pairs, outputs=two)
    assert [axis.get_xlabel() for axis in figure.axes] == two
    for axis in figure.axes:
        low, high = axis.get_xlim()
        assert low < MEANS[axis.get_xlabel()] < high
    axis = plots.plot_joint(lin, pairs, outputs=two).axes[2]
    assert [axis.get_xlabel(), axis.get_ylabel()] == two
    (axis,) = plots.plot_sensitivity(lin, outputs=two).axes
    assert [text.get_text() for text in axis.get_xticklabels()] == INPUTS
    assert [text.get_text() for text in axis.get_yticklabels()] == two
    (axis,) = plots.plot_band(lin, pairs).axes
    assert [text.get_text() for text in axis.get_xticklabels()] == OUTPUTS


def test_names_in_another_order_are_refused(lin, pairs):
    given = ["wind", "angle[0]", "angle[1]"]
    with pytest.raises(ValueError, match=r"input_names must be in the order .*leave input_na"):
        diagnostics.sensitivity(lin, input_names=given)
    with pytest.raises(ValueError, match=r"output_names must be in the order .*alpha\[0\]"):
        diagnostics.summary(lin, pairs, output_names=OUTPUTS[::-1])
    # Other names are those of the user.
    assert diagnostics.table(lin, output_names=["a", "b", "c"]).index.tolist() == ["a", "b", "c"]
