"""The figure of joint laws: regions that hold their masses, layout, messages."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from nn_uq_dist import Input, Linearization
from nn_uq_dist.plots._plot_joint import plot_joint
from nn_uq_dist.plots.parts._regions import kernel_region

pytestmark = [pytest.mark.slow, pytest.mark.viz]

MASSES = (0.5, 0.9, 0.99)
NAMES = ["level", "slope", "bend", "twist"]
NUM_DRAWS = 20_000


@pytest.fixture(scope="module")
def boxed():
    jacobian = [[2.0, 0.5, 0.1, 1.0], [1.5, -0.5, 0.3, 0.0], [0.3, 0.3, 1.0, 1.0], [1.0, 1.0, 1, 1]]
    return Linearization([0.0, 100.0, -5.0, 1.0], jacobian, Input.box(jnp.zeros(4), 1.0))


@pytest.fixture(scope="module")
def draws(boxed):
    return np.asarray(boxed.sample(jax.random.key(0), (NUM_DRAWS,)))


def normal(correlation, sd=(1.0, 1.0, 1.0)):
    """Return a linearization whose outputs are normal with this correlation matrix."""
    size = len(correlation)
    factor = np.diag(sd[:size]) @ np.linalg.cholesky(correlation)
    law = Input.normal(jnp.zeros(size), scale_tril=jnp.eye(size))
    return Linearization(jnp.arange(size) * 10.0, factor, law)


def inside(points, lines):
    """Fraction of the points within closed lines, given as NaN-separated x and y."""
    from matplotlib.path import Path

    x, y = lines
    pieces = np.split(np.stack([x, y], axis=1), np.flatnonzero(np.isnan(x)))
    crossings = [Path(p[~np.isnan(p[:, 0])]).contains_points(points) for p in pieces]
    return np.mean(np.sum(crossings, axis=0) % 2)


def assert_holds(fraction, mass, count, slack=0.0):
    """Five standard deviations of a binomial count: one false alarm in two million."""
    assert abs(fraction - mass) < 5 * np.sqrt(mass * (1 - mass) / count) + slack


@pytest.mark.parametrize(
    ("r", "law"), [(0.0, "joint"), (0.7, "copula"), (-0.95, "joint"), (0.999, "copula")]
)
def test_levels_of_a_normal_law_are_those_of_chi_square(r, law):
    lin = normal([[1, r], [r, 1]], sd=(2.0, 0.1))
    if law == "copula":
        law = lin.gaussian_copula(min_eigenvalue=None)
    figure = plot_joint(lin, masses=MASSES, law=law, backend="none")
    levels = figure.viz["levels"]["analytic"].values[0]
    peak = 1 / (2 * np.pi * 0.2 * np.sqrt(1 - r**2))
    np.testing.assert_allclose(
        levels, peak * np.exp(-scipy.stats.chi2.ppf(MASSES, 2) / 2), rtol=0.03
    )
    assert "monte_carlo" not in figure.viz["levels"].data_vars


@pytest.mark.parametrize("law", ["copula", "joint"])
def test_lines_enclose_their_masses(boxed, draws, law):
    """A copula is checked against its own draws."""
    if law == "copula":
        draws = np.asarray(boxed.gaussian_copula().sample(jax.random.key(1), (NUM_DRAWS,)))
    figure = plot_joint(boxed, draws, outputs=[1, 0, 2], law=law, backend="none")
    order = [1, 0, 2]
    for a, b in ((0, 1), (0, 2), (1, 2)):
        points = draws[:, [order[a], order[b]]]
        lines = figure.viz["contour"].values[b, a]
        for mass, line in zip(MASSES, lines, strict=True):
            assert_holds(inside(points, (line["x"], line["y"])), mass, NUM_DRAWS, slack=2e-3)


@pytest.mark.parametrize("r", [0.3, 0.99999])
def test_density_of_draws_is_that_of_a_smoothed_normal_law(r):
    """Scott's kernel widens a normal law by the factor 1 + n^(-1/3) in its covariance."""
    count = 50_000
    covariance = np.array([[1, r], [r, 1]])
    points = np.random.default_rng(0).multivariate_normal([3, -2], covariance, count)
    region = kernel_region(points, MASSES, ("a", "b"))
    at = np.stack([region.x, region.y], axis=-1)
    wide = scipy.stats.multivariate_normal([3, -2], covariance * (1 + count ** (-1 / 3)))
    error = np.abs(region.density - wide.pdf(at))
    assert error.max() < 0.05 * wide.pdf([3, -2])


def test_corner_in_matplotlib_is_labelled_and_changes_no_style(boxed, draws, tmp_path):
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    figure = plot_joint(
        boxed, draws, outputs=["bend", 0, 1], output_names=NAMES, law="copula", unit="m",
        backend="matplotlib",
    )  # fmt: skip
    figure.savefig(tmp_path / "joint.png")
    assert dict(mpl.rcParams) == before
    assert type(figure).__name__ == "PlotMatrix"
    fig = figure.get_viz("figure")
    axes = np.array(fig.axes).reshape(3, 3)
    assert [a.get_xlabel() for a in axes[2]] == ["bend (m)", "level (m)", "slope (m)"]
    assert [a.get_ylabel() for a in axes[:, 0]] == ["", "level (m)", "slope (m)"]
    for row in range(3):
        for column in range(row + 1, 3):
            assert not axes[row, column].has_data()
        assert len({tuple(axes[k, row].get_xlim()) for k in range(row, 3)}) == 1
    filled = axes[2, 0].collections[0]
    stored = figure.viz["levels"]["monte_carlo"].sel(pair="bend, slope").values
    np.testing.assert_allclose(filled.levels[:-1], stored[::-1])
    texts = [text.get_text() for text in fig.legends[0].get_texts()]
    names = ["Monte Carlo 50%", "Monte Carlo 90%", "Monte Carlo 99%"]
    assert texts == ["copula 50, 90, 99%", *names]


OF_JOINT = [
    ({"outputs": [0]}, ValueError, r"outputs must name 2 to 6 outputs, got 1; pass"),
    ({"outputs": range(7)}, ValueError, r"outputs must name 2 to 6 outputs, got 7; pass"),
    ({}, ValueError, r"outputs must name 2 to 6 outputs, got 8; pass"),
    ({"outputs": ["a", 0]}, TypeError, "outputs must be .* got 'a'"),
    ({"outputs": [0, 9]}, ValueError, "outputs must name outputs of 8, got unknown index 9"),
    ({"outputs": [0, 1], "masses": (0.5, 1.0)}, ValueError, "masses must lie between 0 and 1"),
    ({"outputs": [0, 1], "masses": (0.5, 0.5)}, ValueError, "and differ, got"),
    ({"outputs": [0, 1], "masses": 0.5}, TypeError, "masses must be a sequence of numbers"),
    (
        {"outputs": [0, 1], "law": "exact"},
        ValueError,
        "law must be 'joint' or 'copula'",
    ),
    ({"outputs": [0, 1], "visuals": {"bands": True}}, ValueError, "visuals must have keys"),
    ({"outputs": [0, 1], "draws": np.zeros((200, 3))}, ValueError, "draws must have shape"),
    ({"outputs": [0, 1], "draws": np.zeros((8, 200))}, ValueError, "pass its transpose"),
    ({"outputs": [0, 1], "draws": np.zeros((200, 8))}, ValueError, "y.0. and y.1. that lie on"),
    (
        {"outputs": [0, 7], "law": "joint"},
        ValueError,
        r"outputs must vary and be linearly independent .* got y\[0\], y\[7\]; pass law='copula'",
    ),
]


def test_messages_of_joint():
    jacobian = jax.random.normal(jax.random.key(0), (8, 9))
    jacobian = jacobian.at[7].set(-2 * jacobian[0])
    lin = Linearization(jnp.zeros(8), jacobian, Input.box(jnp.zeros(9), 1.0))
    for arguments, error, message in OF_JOINT:
        with pytest.raises(error, match=message):
            plot_joint(lin, **{"backend": "none", **arguments})


def test_dependent_outputs_have_a_copula_figure():
    """The floor under the eigenvalues leaves a narrow density, which the skewed grid resolves."""
    law = Input.box(jnp.zeros(2), 1.0)
    lin = Linearization(jnp.zeros(2), [[1.0, 2.0], [2.0, 4.0]], law)
    figure = plot_joint(lin, law="copula", backend="none")
    points = np.asarray(lin.gaussian_copula().sample(jax.random.key(0), (NUM_DRAWS,)), float)
    for mass, line in zip(MASSES, figure.viz["contour"].values[1, 0], strict=True):
        assert_holds(inside(points, (line["x"], line["y"])), mass, NUM_DRAWS, slack=5e-3)


def test_constant_output_is_named_or_left_out():
    jacobian = np.array([[1.0, 0.0, 0.5], [0.0, 0.0, 0.0], [0.3, 1.0, 1.0]])
    lin = Linearization(jnp.zeros(3), jacobian, Input.box(jnp.zeros(3), 1.0))
    with pytest.raises(ValueError, match=r"outputs must vary .* got y\[0\], y\[1\]; pass law="):
        plot_joint(lin, backend="none")
    assert plot_joint(lin, outputs=(0, 2), backend="none").viz.children
    one = Linearization(jnp.zeros(1), jacobian[:1], Input.box(jnp.zeros(3), 1.0))
    with pytest.raises(ValueError, match="got 1; use plot_marginals"):
        plot_joint(one, backend="none")
