"""Every figure of odd draws: either it is right, or the error says what is wrong with them."""

import warnings
from functools import partial

import jax
import numpy as np
import pytest

import nn_uq_dist as nuq
from nn_uq_dist import plots

pytestmark = [
    pytest.mark.viz,
    pytest.mark.filterwarnings("ignore:some of [0-9]+ draws are NaN or infinite:RuntimeWarning"),
]

KEY = jax.random.key(0)
JACOBIAN = np.array([[1.0, 0.5, 0.2, 0.0], [0.3, -0.7, 0.5, 0.1], [0.2, 0.4, 0.1, 0.9]])
LIN = nuq.Linearization(np.zeros(3), JACOBIAN, nuq.Input.box(np.zeros(4), 1.0))

FIGURES = {
    "marginals": plots.plot_marginals,
    "output_band": plots.plot_output_band,
    "pit": plots.plot_pit,
    "tails": plots.plot_tails,
    "joint": partial(plots.plot_joint, outputs=[0, 1]),
}
# What is done to an output, or to all of them.
ODD = {
    "nan": lambda x: np.full_like(x, np.nan),
    "huge": lambda x: 1e300 * x,
    "tiny": lambda x: 1e-200 * x,
    "equal": lambda x: np.full_like(x, 0.1),
    "far": lambda x: x + 1e6,
    "two_values": np.sign,
    "few_infinite": lambda x: np.where(np.arange(len(x))[:, None] < 5, np.inf, x),
    "few_huge": lambda x: np.where(np.arange(len(x))[:, None] < 5, 1e300, x),
}
FEW = "must (hold|have) at least 100 (rows|finite)"
LINE = "draws must have a density, got draws of outputs"
# Errors of the figure with densities of two outputs, and of those that compare with draws.
ERRORS = {"nan": FEW, "huge": FEW, "tiny": LINE, "equal": LINE}
NEED_FINITE = {"pit", "tails"}


@pytest.fixture(scope="module")
def draws():
    return np.asarray(LIN.sample(KEY, (2000,)), np.float64)


@pytest.mark.parametrize("name", FIGURES)
def test_odd_draws_give_a_figure_or_say_what_is_wrong(draws, name):
    for odd, change in ODD.items():
        for outputs in ([1], [0, 1, 2]) if odd in {"nan", "far"} else ([1],):
            changed = draws.copy()
            changed[:, outputs] = change(draws[:, outputs])
            message = ERRORS.get(odd)
            if message and (name == "joint" or (name in NEED_FINITE and message == FEW)):
                with pytest.raises(ValueError, match=message):
                    FIGURES[name](LIN, changed, backend="none")
            else:
                assert FIGURES[name](LIN, changed, backend="none").viz.children, (odd, outputs)


def test_density_of_far_draws_is_not_drawn(draws):
    """Between law and draws there is nothing: the shapes collapse instead of failing."""
    figure = plots.plot_output_band(LIN, draws + np.array([0, 1e9, 0]), backend="none")
    width = [np.ptp(shape["x"]) for shape in figure.viz["histogram"]["values"].values]
    assert np.isfinite(width).all()


@pytest.mark.parametrize("name", FIGURES)
def test_draws_that_are_left_out_are_told_once(draws, name):
    draws = np.where(np.arange(len(draws))[:, None] < [5, 3, 0], np.nan, draws)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        FIGURES[name](LIN, draws, backend="none")
    told = [str(warning.message) for warning in caught]
    assert len(told) == 1
    assert told[0].startswith("some of 2000 draws are NaN or infinite")
