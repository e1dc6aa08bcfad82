"""Figures accept any law: asymmetric outputs, and joint laws known only by their contract."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats
from jax.scipy.special import log_ndtr
from numpyro.distributions import constraints

import nn_uq_dist as nuq
from nn_uq_dist.basics._checks import as_indices
from nn_uq_dist.laws import JointLaw, OutputLaw, as_output_law
from nn_uq_dist.laws._batch_entries import batch_entries
from nn_uq_dist.plots.parts._drawn_law import DrawnJoint, output_table

pytestmark = pytest.mark.viz

KEY = jax.random.key(0)
NAMES = ["level", "slope", "bend"]
MASSES = (0.5, 0.9, 0.99)
SIZE = 4000


class Exponential(OutputLaw):
    """A toy law, as a user would add one: with a lower end, where its density jumps."""

    arg_constraints = {"low": constraints.real, "scale": constraints.positive}

    def __init__(self, low, scale, *, validate_args=None):
        self.low, self.scale = low, scale
        shape = jnp.broadcast_shapes(jnp.shape(low), jnp.shape(scale))
        super().__init__(shape, (), validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self):
        return constraints.greater_than(self.low)

    def sample(self, key, sample_shape=()):
        return self.low + self.scale * jax.random.exponential(key, sample_shape + self.batch_shape)

    def log_prob(self, value):
        t = (value - self.low) / self.scale
        return jnp.where(t < 0, -jnp.inf, -t - jnp.log(self.scale))

    def log_cdf(self, value):
        return jnp.log(-jnp.expm1(-jnp.maximum((value - self.low) / self.scale, 0)))

    def log_sf(self, value):
        return -jnp.maximum((value - self.low) / self.scale, 0)

    def from_normal_score(self, z):
        return self.low - self.scale * log_ndtr(-z)

    @property
    def mean(self):
        return jnp.broadcast_to(self.low + self.scale, self.batch_shape)

    @property
    def variance(self):
        return jnp.broadcast_to(self.scale**2, self.batch_shape)


class Independent(JointLaw):
    """A toy joint law: independent outputs."""

    kind = "independent"

    def __init__(self, marginals):
        self.marginals = marginals
        super().__init__((), marginals.batch_shape, validate_args=False)

    def sample(self, key, sample_shape=()):
        return self.marginals.sample(key, sample_shape)

    def log_prob(self, value):
        return jnp.sum(self.marginals.log_prob(value), axis=-1)

    @property
    def covariance_matrix(self):
        return jnp.diag(self.variance)

    def marginalize(self, indices):
        kept = as_indices(indices, self.event_shape[0])
        return Independent(batch_entries(self.marginals, (..., kept)))

    def rosenblatt(self, value):
        return as_output_law(self.marginals).normal_score(value)


class CorrelatedNormal(JointLaw):
    """A multivariate normal law that says nothing of being a Gaussian copula."""

    kind = "normal"

    def __init__(self, loc, covariance):
        self.loc, self.covariance_matrix = loc, covariance
        super().__init__((), loc.shape, validate_args=False)

    covariance_matrix = None

    @property
    def marginals(self):
        return dist.Normal(self.loc, jnp.sqrt(jnp.diag(self.covariance_matrix)))

    def sample(self, key, sample_shape=()):
        return self._base.sample(key, sample_shape)

    def log_prob(self, value):
        return self._base.log_prob(value)

    @property
    def _base(self):
        return dist.MultivariateNormal(self.loc, self.covariance_matrix)

    def marginalize(self, indices):
        kept = jnp.asarray(as_indices(indices, self.event_shape[0]))
        return CorrelatedNormal(self.loc[kept], self.covariance_matrix[jnp.ix_(kept, kept)])

    def rosenblatt(self, value):
        raise NotImplementedError


LOC, SCALE = np.array([0.0, 100.0, -5.0]), np.array([1.0, 3.0, 0.2])
LAWS = {
    "adapted": (dist.Gumbel(jnp.asarray(LOC), jnp.asarray(SCALE)), scipy.stats.gumbel_r),
    "toy": (Exponential(jnp.asarray(LOC), jnp.asarray(SCALE)), scipy.stats.expon),
}


@pytest.fixture(params=LAWS)
def known(request):
    return known_law(request.param)


def known_law(name):
    """A law of three outputs, and each of them in SciPy."""
    law, family = LAWS[name]
    return law, [family(a, b) for a, b in zip(LOC, SCALE, strict=True)]


def drawn(references, size=SIZE):
    rng = np.random.default_rng(5)
    return np.stack([law.rvs(size, random_state=rng) for law in references], axis=1)


def artist(figure, name, output=None):
    found = figure.viz[name]["values"]
    return (found if output is None else found.sel(output=output)).item()


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


def test_sideways_densities(known):
    law, references = known
    figure = nuq.plots.plot_output_band(law, drawn(references), backend="none")
    for j, reference in enumerate(references):
        shape = figure.viz["density"]["values"].values[j]
        width, y = shape["x"][1:-1] - j, shape["y_bottom"][1:-1]
        density = reference.pdf(y)
        shown = width > 0  # the shape ends where the density is below a hundredth of the tallest
        scale = width.sum() / density[shown].sum()
        atol = 1e-3 * width.max()
        np.testing.assert_allclose(width[shown], scale * density[shown], rtol=1e-3, atol=atol)
        low, high = y[shown].min(), y[shown].max()
        assert reference.cdf(high) - reference.cdf(low) > 0.96
        assert np.isin(y[~shown], [low, high]).all()


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
    law, references = known_law("toy")
    symmetric = dist.Laplace(jnp.asarray(LOC), jnp.asarray(SCALE))
    draws = drawn([scipy.stats.laplace(a, b) for a, b in zip(LOC, SCALE, strict=True)])
    figure = nuq.plots.plot_tails(symmetric, draws, backend="matplotlib")
    assert "analytic_lower" not in figure.viz.children
    assert legend_texts(figure)[0] == "analytic, both tails"
    figure = nuq.plots.plot_tails(law, drawn(references), backend="matplotlib")
    assert legend_texts(figure)[:2] == ["analytic, upper tail", "analytic, lower tail"]


def legend_texts(figure):
    return [text.get_text() for text in figure.get_viz("figure").legends[0].get_texts()]


def test_integral_transforms(known):
    law, references = known
    draws = drawn(references)
    figure = nuq.plots.plot_pit(law, draws, output_names=NAMES, backend="none")
    for j, (name, reference) in enumerate(zip(NAMES, references, strict=True)):
        test = scipy.stats.ks_1samp(draws[:, j], reference.cdf)
        peak = artist(figure, "largest", name)
        assert abs(peak["y"].item()) == pytest.approx(test.statistic, abs=1e-5)
        assert peak["x"].item() == pytest.approx(reference.cdf(test.statistic_location), abs=1e-5)


def test_draws_below_a_lower_end_are_counted():
    law, references = known_law("toy")
    draws = drawn(references)
    draws[:7, 1] = 99.9
    figure = nuq.plots.plot_pit(law, draws, output_names=NAMES, backend="none")
    assert artist(figure, "text", "slope")["string"].endswith("\noutside the support: 7")
    assert "outside" not in artist(figure, "text", "level")["string"]


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
    law = nuq.InputLaw(jnp.zeros(3), scale_tril=jnp.eye(3))
    return nuq.Linearization(jnp.asarray(LOC), jnp.eye(3) + 0.5, law)


def test_lines_of_pairs_have_the_density_of_the_joint_law(lin, known):
    law, references = known
    joint = Independent(law)
    figure = nuq.plots.plot_joint(lin, law=joint, masses=MASSES, backend="none")
    draws = np.asarray(joint.sample(KEY, (20_000,)), float)
    levels = figure.viz["levels"]["analytic"].values
    for k, (a, b) in enumerate(((0, 1), (0, 2), (1, 2))):
        lines = figure.viz["contour"].values[b, a]
        for mass, level, line in zip(MASSES, levels[k], lines, strict=True):
            x, y = np.asarray(line["x"]), np.asarray(line["y"])
            density = references[a].pdf(x) * references[b].pdf(y)
            # Along an end of the support the line follows the end, where the density jumps.
            inner = (x > references[a].ppf(1e-3)) & (y > references[b].ppf(1e-3))
            assert inner.sum() > 20
            np.testing.assert_allclose(density[inner], level, rtol=0.02)
            # Five standard deviations of a binomial count, and the grid.
            held = references[a].pdf(draws[:, a]) * references[b].pdf(draws[:, b]) > level
            allowed = 5 * np.sqrt(mass * (1 - mass) / len(draws)) + 2e-3
            assert abs(held.mean() - mass) < allowed
    line = figure.viz["density"].values[1, 1]
    expected = references[1].pdf(line["x"][1:-1])
    np.testing.assert_allclose(line["y"][1:-1], expected, rtol=1e-3, atol=1e-6)


def test_kind_stands_in_the_legend(lin):
    law, references = known_law("toy")
    joint, draws = Independent(law), drawn(references)
    figure = nuq.plots.plot_joint(lin, draws, law=joint, backend="matplotlib")
    assert legend_texts(figure)[0] == "independent 50, 90, 99%"
    black = {"density": {"color": "black"}}  # a line that the entry of the others does not explain
    figure = nuq.plots.plot_joint(lin, draws, law=joint, visuals=black, backend="matplotlib")
    assert legend_texts(figure)[:2] == ["analytic density", "independent 50, 90, 99%"]


@pytest.mark.slow
@pytest.mark.parametrize("r", [0.0, -0.95, 0.999])
def test_pairs_of_a_correlated_law(r):
    """Levels of a normal law are those of chi-square."""
    sd = np.array([2.0, 0.1, 1.0])
    correlation = np.array([[1, r, 0.3 * r], [r, 1, 0.3], [0.3 * r, 0.3, 1]])
    covariance = correlation * np.outer(sd, sd)
    law = CorrelatedNormal(jnp.asarray(LOC), jnp.asarray(covariance))
    law = DrawnJoint(law.marginalize, np.zeros(3))
    region = law.region((0, 1), MASSES)
    peak = 1 / (2 * np.pi * np.sqrt(np.linalg.det(covariance[:2, :2])))
    np.testing.assert_allclose(region.levels / peak, 1 - np.array(MASSES), atol=5e-3)


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
        (Independent(dist.Normal(jnp.zeros(2), 1.0)), ValueError, event_shape),
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
