"""The backends: Matplotlib, and one that draws nothing; every figure refuses others."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nn_uq_dist as nuq

pytestmark = pytest.mark.viz

KEY = jax.random.key(0)
REFUSED = (
    "backend must be 'matplotlib' or 'none', got 'plotly'; for interactive figures export the "
    "draws with to_datatree"
)


def net(f):
    return jnp.array([f[0] + 0.2 * f[1], 10 + 1.5 * f[1] + f[2], 0.4 * f[2] - 5 + 0.1 * f[2] ** 2])


@pytest.fixture(scope="module")
def lin():
    return nuq.linearize(net, nuq.InputLaw(jnp.zeros(3), scale_tril=jnp.eye(3)))


@pytest.fixture(scope="module")
def draws(lin):
    return np.asarray(lin.sample(KEY, (1000,)))


FIGURES = {
    "marginals": nuq.plots.plot_marginals,
    "output_band": nuq.plots.plot_output_band,
    "pit": nuq.plots.plot_pit,
    "tails": nuq.plots.plot_tails,
    "sensitivity": lambda lin, _, **o: nuq.plots.plot_sensitivity(lin, **o),
    "joint": nuq.plots.plot_joint,
}


def test_other_backends_are_refused(lin, draws):
    for plot in FIGURES.values():
        with pytest.raises(ValueError, match=REFUSED):
            plot(lin, draws, backend="plotly")


def test_default_is_matplotlib_or_that_of_the_collection(lin):
    assert nuq.plots.plot_marginals(lin).backend == "matplotlib"
    first = nuq.plots.plot_marginals(lin, backend="none")
    assert nuq.plots.plot_marginals(lin, plot_collection=first).backend == "none"


def test_options_of_users_are_taken_as_they_are(lin, draws):
    options = {"density": {"color": "black", "width": 3}, "bands": False}
    figure = nuq.plots.plot_marginals(lin, draws, visuals=options)
    line = figure.viz["density"]["values"].values[0]
    assert (line.get_color(), line.get_linewidth()) == ("black", 3)
    assert "band_1_sd" not in figure.viz.children
