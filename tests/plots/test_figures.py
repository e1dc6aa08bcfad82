"""What all figures share: axes, names, styles, models, batches, odd draws, messages."""

import warnings
from contextlib import nullcontext
from functools import partial

import jax
import jax.numpy as jnp
import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import numpyro.distributions as dist
import pytest
from matplotlib.figure import Figure

import nn_uq_dist as nuq
from nn_uq_dist import plots

pytestmark = pytest.mark.viz

KEY = jax.random.key(0)
NAMES = ["level", "slope", "bend"]
LONG_NAMES = ["volumetric flow of the borehole (m3/yr)", "pressure_difference_across_the_well_head",
              "temperature of the outer wall of the casing"]  # fmt: skip
JACOBIAN = np.array([[1.0, 0.5, 0.2, 0.0], [0.3, -0.7, 0.5, 0.1], [0.2, 0.4, 0.1, 0.9]])
LIN = nuq.Linearization(np.zeros(3), JACOBIAN, nuq.Input.box(np.zeros(4), 1.0))
# Cheap to evaluate.
NORMAL = nuq.GaussianCopulaJoint(dist.Normal(jnp.zeros(3), 1.0), 0.5 + 0.5 * jnp.eye(3))
OF_OUTPUTS = {
    "marginals": plots.plot_marginals,
    "calibration": partial(plots.plot_calibration, progress=False),
    "tails": plots.plot_tails,
    "band": plots.plot_band,
}
FIGURES = {
    **OF_OUTPUTS,
    "joint": plots.plot_joint,
    "sensitivity": lambda _model, _draws, **options: plots.plot_sensitivity(LIN, **options),
}
NUM_AXES = {"marginals": 3, "calibration": 3, "tails": 3, "joint": 9}


@pytest.fixture(scope="module")
def draws():
    return np.asarray(NORMAL.sample(KEY, (2000,)), np.float64)


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
def test_new_figures_fit_their_page_and_change_no_style(draws, name, tmp_path):
    before = dict(mpl.rcParams)
    figure = FIGURES[name](NORMAL, draws, output_names=LONG_NAMES)
    figure.savefig(tmp_path / "figure.png")
    assert dict(mpl.rcParams) == before
    assert plt.get_fignums() == [figure.number]
    boxes = [axis.get_tightbbox() for axis in figure.axes if axis.axison]
    boxes += [legend.get_window_extent() for legend in figure.legends]
    for j, box in enumerate(boxes):
        assert figure.bbox.x0 - 1 <= box.x0 < box.x1 <= figure.bbox.x1 + 1
        # A pixel is allowed: tick marks at the edge of two panels may touch.
        assert not any(box.padded(-1).overlaps(other.padded(-1)) for other in boxes[:j])


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
def test_given_axes_are_drawn_on_and_pyplot_is_left_alone(draws, name):
    count = NUM_AXES.get(name, 1)
    own = Figure()
    axes = own.subplots(3, 3) if name == "joint" else own.subplots(1, count)
    assert FIGURES[name](NORMAL, draws, output_names=NAMES, ax=axes) is own
    assert all(axis.has_data() or not axis.axison for axis in own.axes)
    assert plt.get_fignums() == []
    assert not own.legends
    for wrong in (np.ravel(own.axes + own.axes)[:2], "axes"):
        with pytest.raises(ValueError, match=f"ax must hold {count} Matplotlib axes"):
            FIGURES[name](NORMAL, draws, ax=wrong)


def network(x):
    return jnp.stack([jnp.tanh(x[0]) + x[1] ** 2, x[0] * x[1] + x[1], x[0] + jnp.sin(x[1]) + x[2]])


@pytest.fixture(scope="module")
def many():
    means = np.array([[0.1, 0.2, 0.0], [1.0, -0.5, 0.2], [0.3, 0.0, 0.1]], np.float32)
    lin = nuq.linearize(network, nuq.Input.box(means, 0.3) + nuq.Input.normal(0 * means, 0.2))
    return lin, nuq.paired_draws(network, lin, KEY, 400, progress=False)


@pytest.mark.slow
def test_every_figure_takes_a_corrected_model_and_pairs(many):
    lin, pairs = many
    model = lin[1].corrected(pairs[1])
    for plot in OF_OUTPUTS.values():
        assert isinstance(plot(model, pairs[1]), Figure)
    plots.plot_joint(model, pairs[1], outputs=[0, 2])
    assert "need not sum" in plots.plot_sensitivity(model).axes[0].get_title()


def test_a_batch_is_shown_by_bands_alone(many):
    lin, pairs = many
    for name, plot in FIGURES.items():
        if name != "band":
            with pytest.raises(ValueError, match=r"take one point: (model|linearization)\[i\]"):
                plot(lin, pairs) if name != "sensitivity" else plots.plot_sensitivity(lin)
    (axis,) = plots.plot_band(lin, pairs, outputs=[1], x=[0.0, 1.0, 4.0]).axes
    np.testing.assert_allclose(axis.lines[0].get_ydata(), lin.mean[:, 1], atol=1e-5)
    of_draws = np.median(pairs.network[..., 1], axis=0)
    np.testing.assert_allclose(axis.lines[3].get_ydata(), of_draws, rtol=1e-5)
    options = {"units": {"y[1]": "mm"}, "point_names": ["a", "b", "c"], "limits": 0.5}
    (axis,) = plots.plot_band(lin, outputs=[1], **options).axes
    assert axis.get_ylabel() == "y[1] (mm)"
    assert [text.get_text() for text in axis.get_xticklabels()] == ["a", "b", "c"]
    table = nuq.diagnostics.table(lin, limits=0.5)["P(> 0.5)"].unstack()["y[1]"]
    place = "abc"[table.argmax()]
    assert axis.texts[0].get_text() == f"largest P(> 0.5) = {table.max():.2g}, at {place}"


FEW = r"at least 100 (rows that are finite|finite draws)"
LINE = "draws must have a density, got draws of outputs"
# What is done to an output, and the error of the figure of two outputs.
ODD = {
    "nan": (lambda x: np.full_like(x, np.nan), FEW),
    "huge": (lambda x: 1e300 * x, FEW),
    "tiny": (lambda x: 1e-200 * x, LINE),
    "equal": (lambda x: np.full_like(x, 0.1), LINE),
    "far": (lambda x: x + 1e6, None),
    "two values": (np.sign, None),
}


@pytest.mark.filterwarnings("ignore:some of [0-9]+ draws are NaN or infinite:RuntimeWarning")
@pytest.mark.parametrize("name", [*OF_OUTPUTS, "joint"])
def test_odd_draws_give_a_figure_or_say_what_is_wrong(draws, name):
    for change, message in ODD.values():
        changed = draws.copy()
        changed[:, 1] = change(draws[:, 1])
        options = {"outputs": [0, 1]} if name == "joint" else {}
        failing = {"joint", "calibration", "tails"} if message is FEW else {"joint"}
        fails = pytest.raises(ValueError, match=message) if message else nullcontext()
        with fails if name in failing else nullcontext():
            FIGURES[name](NORMAL, changed, **options).canvas.draw()
        plt.close("all")


@pytest.mark.parametrize("name", [*OF_OUTPUTS, "joint"])
def test_draws_that_are_left_out_are_told_once_and_counted(draws, name):
    draws = np.where(np.arange(len(draws))[:, None] < [5, 3, 0], np.nan, draws)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        figure = FIGURES[name](NORMAL, draws)
    (told,) = (str(warning.message) for warning in caught)
    assert told.startswith("some of 2000 draws are NaN or infinite")
    notes = "\n".join(text.get_text() for axis in figure.axes for text in axis.texts)
    assert "5 draws not finite" in notes


WIDE = nuq.Linearization(np.zeros(2), JACOBIAN[[0, 0]], LIN.input)
GRID = {"model": dist.Normal(jnp.zeros((2, 2, 3)), 1.0), "draws": None}
WRONG = [
    ("calibration", {"outputs": ["x"]}, TypeError, "outputs must be .* got 'x'"),
    ("tails", {"outputs": "level"}, TypeError, r"outputs must be .* 'level' .* out of y\[0\]"),
    ("marginals", {"units": {"a": "m"}}, ValueError, "units must be those of outputs .* 'a'"),
    ("marginals", {"model": "distribution"}, TypeError, "got str"),
    ("band", {"x": [0, 1]}, ValueError, "position per output"),
    ("band", {"x": [0, 2, 1]}, ValueError, "finite and ascending"),
    ("band", {"x": ["a", "b", "c"]}, TypeError, "x must be an array of real numbers"),
    ("band", {"point_names": ["a"]}, ValueError, "point_names must be None without a batch"),
    ("band", {"limits": 3.0, "deviation": True}, ValueError, "limits must be None"),
    ("band", GRID, ValueError, "outputs must name one output of one row of points"),
    ("joint", {"outputs": 0}, ValueError, r"2 to 6 outputs, got 1; use plot_marginals"),
    ("joint", {"outputs": [0, 1], "masses": (0.5, 1.0)}, ValueError, r"masses must be .* \(0, 1\)"),
    ("joint", {"model": WIDE, "draws": None}, ValueError, r"must vary .* y\[0\] and y\[1\]"),
]


def test_wrong_arguments_are_named(draws):
    for name, wrong, error, message in WRONG:
        with pytest.raises(error, match=message):
            FIGURES[name](**{"model": NORMAL, "draws": draws} | wrong)
