"""Figures accept any law: asymmetric outputs, and joint laws given as objects."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats

import nn_uq_dist as nuq
from nn_uq_dist.distributions._batch_entries import batch_entries
from nn_uq_dist.laws import as_output_law
from nn_uq_dist.plots.parts._drawn_law import output_table

pytestmark = pytest.mark.viz

NAMES = ["level", "slope", "bend"]
SIZE = 4000


LOC, SCALE = np.array([0.0, 100.0, -5.0]), np.array([1.0, 3.0, 0.2])
LAWS = {
    "two tails": (
        dist.Gumbel(LOC, SCALE),
        [scipy.stats.gumbel_r(a, b) for a, b in zip(LOC, SCALE, strict=True)],
    ),
    "one end": (dist.Exponential(1 / SCALE), [scipy.stats.expon(0, scale) for scale in SCALE]),
}


@pytest.fixture(params=LAWS)
def known(request):
    """A law of three outputs, and each of them in SciPy."""
    return LAWS[request.param]


def drawn(references, size=SIZE):
    rng = np.random.default_rng(5)
    return np.stack([law.rvs(size, random_state=rng) for law in references], axis=1)


def artist(figure, name, output):
    return figure.viz[name]["values"].sel(output=output).item()


# -- single outputs --------------------------------------------------------------------------------


def test_density_of_marginals(known):
    law, references = known
    figure = nuq.plots.plot_marginals(law, drawn(references), output_names=NAMES, backend="none")
    for name, reference in zip(NAMES, references, strict=True):
        line = artist(figure, "density", name)
        x, y = np.asarray(line["x"]), np.asarray(line["y"])
        np.testing.assert_allclose(y, reference.pdf(x), rtol=1e-4, atol=1e-5 / reference.std())
        assert np.ptp(x) > 5 * reference.std()
        band = artist(figure, "band_1_sd", name)
        # An end of the support may be nearer than one standard deviation.
        assert band["x"][1] == pytest.approx(reference.mean() + reference.std(), rel=1e-5)


def test_both_tails(known):
    law, references = known
    figure = nuq.plots.plot_tails(law, drawn(references), output_names=NAMES, backend="none")
    for name, reference in zip(NAMES, references, strict=True):
        for visual, sign, log_tail in (
            ("analytic", 1, reference.logsf),
            ("analytic_lower", -1, reference.logcdf),
        ):
            line = artist(figure, visual, name)
            distance, y = np.asarray(line["x"]), np.asarray(line["y"])
            with np.errstate(divide="ignore"):
                expected = log_tail(reference.mean() + sign * distance * reference.std())
            seen = expected > np.log(0.3 / SIZE)
            assert seen.sum() > 20
            np.testing.assert_allclose(y[seen], expected[seen] / np.log(10), atol=2e-3)
            assert np.all(y[~seen] < np.log10(0.31 / SIZE))


def test_tails_have_one_curve_where_the_law_is_symmetric():
    law, references = LAWS["one end"]
    symmetric = dist.Laplace(jnp.asarray(LOC), jnp.asarray(SCALE))
    draws = drawn([scipy.stats.laplace(a, b) for a, b in zip(LOC, SCALE, strict=True)])
    figure = nuq.plots.plot_tails(symmetric, draws, backend="matplotlib")
    assert "analytic_lower" not in figure.viz.children
    assert legend_texts(figure)[0] == "analytic, both tails"
    figure = nuq.plots.plot_tails(law, drawn(references), backend="matplotlib")
    assert legend_texts(figure)[:2] == ["analytic, upper tail", "analytic, lower tail"]


def legend_texts(figure):
    return [text.get_text() for text in figure.get_viz("figure").legends[0].get_texts()]


def test_table_reaches_all_scores_and_nothing_else(known):
    law, references = known
    for j, reference in enumerate(references):
        table = output_table(as_output_law(batch_entries(law, [j])), 0.0)
        assert np.all(np.diff(table.points) > 0)
        assert np.all(np.diff(table.scores) > 0)
        # A float32 tells 100 from the next number up to 4e-8 of it, a probability of 2.5e-6.
        assert table.scores[0] < -4.5
        assert table.scores[-1] > 5
        assert table.points[-1] < reference.isf(1e-16)
        middle = np.abs(table.scores) < 4.5
        expected = -scipy.stats.norm.isf(reference.cdf(table.points[middle]))
        np.testing.assert_allclose(table.scores[middle], expected, atol=2e-2)
        np.testing.assert_allclose(
            table.log_densities[middle], reference.logpdf(table.points[middle]), atol=2e-3
        )


# -- joint laws ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lin():
    law = nuq.Input.normal(jnp.zeros(3), scale_tril=jnp.eye(3))
    return nuq.Linearization(jnp.asarray(LOC), jnp.eye(3) + 0.5, law)


@pytest.mark.slow
def test_a_copula_given_as_an_object_is_the_one_that_is_named(lin):
    options = {"outputs": [2, 0], "backend": "none"}
    named = nuq.plots.plot_joint(lin, law="copula", **options)
    given = nuq.plots.plot_joint(lin, law=lin.gaussian_copula(), **options)
    levels = [figure.viz["levels"]["analytic"].values for figure in (given, named)]
    np.testing.assert_allclose(*levels, rtol=1e-3)


def test_laws_that_do_not_fit_are_named(lin):
    event_shape = (
        r"law must have event shape \(N_y,\) = \(3,\), got \(2,\); pass a joint law of all"
    )
    for law, error, message in (
        (3, TypeError, "law must be 'joint', 'copula' or a JointLaw, got int"),
        (lin.joint().marginalize((0, 1)), ValueError, event_shape),
        ("exact", ValueError, "law must be 'joint' or 'copula', got 'exact'"),
    ):
        with pytest.raises(error, match=message):
            nuq.plots.plot_joint(lin, law=law, backend="none")


def test_marginals_that_do_not_fit_are_named():
    for marginals, error, message in (
        (dist.Poisson(jnp.ones(3)), TypeError, "discrete Poisson"),
        (dist.Normal(jnp.zeros((2, 3)), 1.0), ValueError, r"got batch shape \(2, 3\)"),
        (dist.MultivariateNormal(jnp.zeros(3), jnp.eye(3)), ValueError, r"event shape \(3,\)"),
        ("law", TypeError, "got str"),
    ):
        for plot in (nuq.plots.plot_marginals, nuq.plots.plot_tails, nuq.plots.plot_pit):
            with pytest.raises(error, match=message):
                plot(marginals, np.zeros((200, 3)), backend="none")
