"""Every figure takes every linear model; figures of one point say how to take it; the fan."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nn_uq_dist as nuq
from nn_uq_dist import plots

pytestmark = pytest.mark.viz

KEY = jax.random.key(0)
MEANS = np.array([[0.1, 0.2, 0.0], [1.0, -0.5, 0.2], [0.3, 0.0, 0.1]], np.float32)


def network(x):
    return jnp.stack([jnp.tanh(x[0]) + x[1] ** 2, x[0] * x[1] + x[1], x[0] + jnp.sin(x[1]) + x[2]])


@pytest.fixture(scope="module")
def many():
    lin = nuq.linearize(network, nuq.Input.box(MEANS, 0.3) + nuq.Input.normal(0 * MEANS, 0.2))
    return lin, nuq.paired_draws(network, lin, KEY, 2000, progress=False)


MODELS = {
    "tangent": lambda lin, pairs: lin,
    "corrected": lambda lin, pairs: lin.corrected(pairs),
}
FIGURES = {
    "marginals": plots.plot_marginals,
    "output_band": plots.plot_output_band,
    "pit": plots.plot_pit,
    "tails": plots.plot_tails,
    "sensitivity": lambda model, draws, **options: plots.plot_sensitivity(model, **options),
}
plot_pair = partial(plots.plot_joint, outputs=[0, 2])


@pytest.fixture(scope="module", params=MODELS)
def model(request, many):
    lin, pairs = many
    return MODELS[request.param](lin[1], pairs[1])


@pytest.mark.slow
def test_every_figure_takes_every_model(model, many):
    for name, plot in FIGURES.items():
        assert plot(model, many[1][1], backend="none").viz.children, name


def test_figures_of_one_point_say_how_to_take_it(many):
    lin, pairs = many
    for name, plot in (FIGURES | {"joint": plot_pair}).items():
        remedy = r"take one point: (model|linearization)\[i\]"
        if name == "output_band":
            remedy = r"outputs must name one output .* got 3; pass outputs=\[0\]"
        with pytest.raises(ValueError, match=remedy):
            plot(lin, pairs, backend="none")


# -- the fan over points ---------------------------------------------------------------------------


def test_fan_shows_one_output_over_the_points(many):
    lin, pairs = many
    figure = plots.plot_output_band(lin, pairs, outputs=[1], points=[0, 2], backend="none")
    sd = np.sqrt(np.asarray(lin.variance)[:, 1])
    band = figure.viz["band_2_sd"]["values"].item()
    np.testing.assert_allclose(band["y_top"], lin.mean[:, 1] + 2 * sd, rtol=1e-5)
    np.testing.assert_allclose(band["y_bottom"], lin.mean[:, 1] - 2 * sd, rtol=1e-5, atol=1e-6)
    shapes = figure.viz["density"]["values"].values
    assert [round(float(shape["x"][0])) for shape in shapes] == [0, 2]
    assert figure.viz["histogram"]["values"].shape == (2,)
    # The sideways density at the last point is that of its law.
    shape = shapes[1]
    width, y = shape["x"][1:-1] - 2, shape["y_bottom"][1:-1]
    at = np.zeros((len(y), 3, 3), np.float32) + y[:, None, None]
    density = np.exp(np.asarray(lin.marginals().log_prob(at.astype(np.float32))))[:, 2, 1]
    shown = width > 0
    np.testing.assert_allclose(width[shown] / width.max(), density[shown] / density.max(),
                               atol=0.02)  # fmt: skip


def test_fan_says_what_it_cannot_show(many):
    lin, pairs = many
    with pytest.raises(ValueError, match="points must be None without a batch, got"):
        plots.plot_output_band(lin[0], pairs[0], points=[0], backend="none")
    with pytest.raises(ValueError, match="two or more points, got 1"):
        plots.plot_output_band(lin[:1], outputs=[0], backend="none")
    with pytest.raises(ValueError, match=r"\(N_y,\) or \(P, N_y\), got \(2, 1, 3\)"):
        plots.plot_output_band(lin[np.array([[0], [1]])], outputs=[0], backend="none")
    with pytest.raises(ValueError, match="outputs must name outputs of 3, got unknown index 9"):
        plots.plot_output_band(lin, pairs, outputs=[0], points=[9], backend="none")
