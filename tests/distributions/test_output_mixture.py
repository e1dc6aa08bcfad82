"""`OutputMixture` against mixtures of normals, uniforms and triangles from SciPy and mpmath."""

import pickle

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats
from numpyro.distributions import constraints
from numpyro.distributions.batch_util import promote_batch_shape

import nn_uq_dist as nuq
from nn_uq_dist import LinearizedMarginal
from nn_uq_dist.distributions import OutputMixture
from nn_uq_dist.gaussian_copula import hermite_coefficients
from nn_uq_dist.laws._score_quadrature import score_quadrature
from tests.compiling import evaluate

KEY = jax.random.key(3)
LOC = np.array([-1.0, 0.4, 2.0])
WIDTH = np.array([0.5, 0.8, 1.2])
SHARES = np.array([0.2, 0.5, 0.3])
SCORES = np.array([-8.0, -5.0, -2.0, -0.4, 0.0, 0.7, 3.0, 5.0, 8.0])


def normals(**kwargs):
    return OutputMixture(LinearizedMarginal(LOC, np.zeros((3, 1)), WIDTH), SHARES, **kwargs)


def uniforms(**kwargs):
    return OutputMixture(LinearizedMarginal(LOC, WIDTH[:, None]), SHARES, **kwargs)


def triangles(**kwargs):
    weights = np.stack([WIDTH, WIDTH], axis=-1)
    return OutputMixture(LinearizedMarginal(LOC, weights), SHARES, **kwargs)


def several(**kwargs):
    """Two outputs; the components have five inputs and noise."""
    weights = np.random.default_rng(0).uniform(-1, 1, (2, 3, 5))
    shares = np.stack([SHARES, SHARES[::-1]])
    return OutputMixture(LinearizedMarginal(LOC, weights, 0.3), shares, **kwargs)


LAWS = {"normals": normals, "uniforms": uniforms, "triangles": triangles, "several": several}
REFERENCES = {
    "normals": [scipy.stats.norm(m, s) for m, s in zip(LOC, WIDTH, strict=True)],
    "uniforms": [scipy.stats.uniform(m - w, 2 * w) for m, w in zip(LOC, WIDTH, strict=True)],
    "triangles": [
        scipy.stats.triang(0.5, m - 2 * w, 4 * w) for m, w in zip(LOC, WIDTH, strict=True)
    ],
}


@pytest.fixture(params=["uniforms", "several"])
def law(request):
    return LAWS[request.param]()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["uniforms", "triangles"])
def test_functions_against_scipy(name, precision):
    law, parts = LAWS[name](validate_args=False), REFERENCES[name]
    at = np.linspace(-4.03, 6.01, 41, dtype=precision)
    density = SHARES @ [part.pdf(at.astype(float)) for part in parts]
    below = SHARES @ [part.cdf(at.astype(float)) for part in parts]
    rtol = 1e-5 if precision == "float32" else 1e-9
    np.testing.assert_allclose(np.exp(law.log_prob(at)), density, rtol=rtol, atol=rtol)
    np.testing.assert_allclose(law.cdf(at), below, rtol=rtol, atol=1e-300)
    np.testing.assert_allclose(np.exp(law.log_sf(at)), 1 - below, rtol=10 * rtol, atol=rtol)
    inside = (below > 1e-3) & (below < 1 - 1e-3)
    scores = scipy.stats.norm.ppf(below[inside])
    np.testing.assert_allclose(law.normal_score(at[inside]), scores, atol=100 * rtol)
    results = (law.log_prob(at), law.log_cdf(at), law.normal_score(at), law.icdf(at[:1] * 0 + 0.5))
    assert {result.dtype.name for result in results} == {precision}


def test_far_tails_against_mpmath(x64):
    law = normals()
    for value in (-9.0, 14.0):
        sign = -1 if value < 0 else 1
        with mpmath.workdps(40):
            tail = mpmath.fsum(
                mpmath.mpf(p) * mpmath.erfc(sign * (value - m) / (mpmath.sqrt(2) * s)) / 2
                for p, m, s in zip(SHARES, LOC, WIDTH, strict=True)
            )
            expected = float(mpmath.log(tail))
        found = law.log_cdf(value) if value < 0 else law.log_sf(value)
        np.testing.assert_allclose(found, expected, rtol=1e-13)
        np.testing.assert_allclose(
            scipy.stats.norm.logcdf(-abs(float(law.normal_score(value)))), expected, rtol=1e-12
        )


@pytest.mark.slow
def test_moments_against_scipy(law):
    draws = np.asarray(law.sample(KEY, (200_000,)))
    error = 5 * np.sqrt(np.asarray(law.variance) / len(draws))
    assert (np.abs(draws.mean(0) - law.mean) < error).all()
    np.testing.assert_allclose(draws.var(0), law.variance, rtol=0.02)
    np.testing.assert_allclose(scipy.stats.skew(draws), law.skewness, atol=0.03)
    np.testing.assert_allclose(scipy.stats.kurtosis(draws), law.excess_kurtosis, atol=0.06)


@pytest.mark.parametrize("name", REFERENCES)
def test_variance_is_exact(name, x64):
    parts = REFERENCES[name]
    mean = SHARES @ [part.mean() for part in parts]
    second = SHARES @ [part.var() + part.mean() ** 2 for part in parts]
    np.testing.assert_allclose(LAWS[name]().mean, mean, rtol=1e-13)
    np.testing.assert_allclose(LAWS[name]().variance, second - mean**2, rtol=1e-13)


@pytest.mark.parametrize("name", ["uniforms"])
def test_draws_have_the_distribution_function(name):
    draws = np.asarray(LAWS[name]().sample(KEY, (20_000,)), float)

    def cdf(x):
        return SHARES @ [part.cdf(x) for part in REFERENCES[name]]

    assert scipy.stats.kstest(draws, cdf).pvalue > 1e-3


@pytest.mark.parametrize("name", ["uniforms", "several"])
def test_scores_go_round_in_both_tails(name, precision):
    law = LAWS[name]()
    # A uniform law ends within rounding of its quantile at a score of 8, or 5 in float32.
    furthest = {"float64": (8.0, 5.0), "float32": (5.0, 4.0)}[precision][name == "uniforms"]
    z = SCORES[np.abs(SCORES) <= furthest].astype(precision)
    z = z.reshape(-1, *(1,) * len(law.batch_shape))
    values = law.from_normal_score(z)
    back = law.normal_score(values)
    tolerance = 2e-7 if precision == "float64" else 2e-3
    np.testing.assert_allclose(back, np.broadcast_to(z, back.shape), atol=tolerance)
    lower = values[: len(z) // 2]
    rtol = 1e-6 if precision == "float64" else 1e-5
    np.testing.assert_allclose(law.icdf(law.cdf(lower)), lower, rtol=rtol, atol=rtol)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["triangles", "several"])
def test_functions_are_the_same_when_traced(name, x64):
    law = LAWS[name]()
    z = SCORES[1:-1].reshape(-1, *(1,) * len(law.batch_shape))
    np.testing.assert_allclose(
        evaluate(law, "from_normal_score", z), law.from_normal_score(z), rtol=1e-12, atol=1e-13
    )
    at = np.linspace(-1.9, 2, 5).reshape(-1, *(1,) * len(law.batch_shape))
    for method in ("log_prob", "log_cdf", "log_sf", "normal_score"):
        now = getattr(law, method)(at)
        np.testing.assert_allclose(evaluate(law, method, at), now, rtol=1e-12, atol=1e-13)


def test_both_at_once(law):
    at = np.linspace(-1.4, 2, 5, dtype=np.float32).reshape(-1, *(1,) * len(law.batch_shape))
    score, log_prob = law.normal_score_and_log_prob(at)
    np.testing.assert_allclose(score, law.normal_score(at), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(log_prob, law.log_prob(at), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_ends_and_beyond(x64):
    law = uniforms()
    low, high = -1.5, 3.2
    np.testing.assert_allclose(law.bounds, (low, high), rtol=1e-15)
    assert isinstance(law.support, type(constraints.interval(0.0, 1.0)))
    at = np.array([low - 1, high + 1])
    quiet = uniforms(validate_args=False)
    np.testing.assert_array_equal(quiet.log_prob(at), [-np.inf, -np.inf])
    np.testing.assert_allclose(law.log_cdf(at), [-np.inf, 0], atol=1e-15)
    np.testing.assert_allclose(law.log_sf(at), [0, -np.inf], atol=1e-15)
    np.testing.assert_array_equal(law.normal_score(at), [-np.inf, np.inf])
    np.testing.assert_allclose(law.icdf(np.array([0.0, 1.0])), (low, high), rtol=1e-15)
    assert np.isnan(law.icdf(np.nan))
    assert np.isnan(law.log_cdf(np.nan))


@pytest.mark.slow
def test_gap(x64):
    """Between components without overlap the density is zero, and the median somewhere there."""
    law = OutputMixture(LinearizedMarginal(np.array([-2.0, 2.0]), np.ones((2, 1))), [0.5, 0.5])
    assert law.log_prob(0.0) == -np.inf
    assert law.cdf(0.0) == 0.5
    assert -1 <= law.icdf(0.5) <= 1
    levels = np.array([0.25, 0.5 - 1e-9, 0.5 + 1e-9, 0.75])
    np.testing.assert_allclose(law.icdf(levels), [-2, -1, 1, 2], atol=1e-7)
    assert np.isfinite(jax.grad(law.log_cdf)(0.0))


@pytest.mark.slow
def test_narrow_component(x64):
    """A tenth of the probability within a millionth of the width: a jump for the search."""
    loc, weights = np.array([0.0, 0.3]), np.array([[1.0], [1e-6]])
    law = OutputMixture(LinearizedMarginal(loc, weights), [0.9, 0.1])
    levels = np.array([0.5, 0.9 * 0.65, 0.9 * 0.65 + 0.05, 0.9 * 0.65 + 0.1, 0.9])
    values = law.icdf(levels)
    np.testing.assert_allclose(law.cdf(values), levels, rtol=1e-8)
    np.testing.assert_allclose(values[2], 0.3, atol=1e-6)


def test_scores_of_many_narrow_components(x64):
    """A score is steep at the edge of a support: steps of the search vanish far from the root."""
    rng = np.random.default_rng(0)
    z = np.array([-8.0, -5.0, -3.0, -0.5, 0.0, 2.0, 5.0, 8.0])
    for count, tolerance in ((1, 0.05), (4, 1e-9)):
        components = LinearizedMarginal(rng.normal(size=64), rng.normal(size=(64, count)) / 8)
        law = OutputMixture(components, np.full(64, 1 / 64))
        np.testing.assert_allclose(law.normal_score(law.from_normal_score(z)), z, atol=tolerance)


def test_component_without_probability(x64):
    law = OutputMixture(LinearizedMarginal(LOC, WIDTH[:, None]), [0.4, 0.6, 0.0])
    np.testing.assert_allclose(law.bounds, (-1.5, 1.2), rtol=1e-15)
    assert np.isfinite(law.from_normal_score(SCORES)).all()
    gradient = jax.grad(lambda p: OutputMixture(law.components, p).log_prob(0.0))(law.probabilities)
    assert np.isfinite(gradient).all()


def test_one_component_is_the_law_itself(x64):
    base = LinearizedMarginal(0.3, [1.0, 0.4, 0.2], 0.1)
    law = OutputMixture(base.expand((1,)), [1.0])
    at = np.linspace(-1, 2, 7)
    for name in ("log_prob", "log_cdf", "log_sf", "normal_score"):
        np.testing.assert_allclose(
            getattr(law, name)(at), getattr(base, name)(at), rtol=1e-12, atol=1e-13
        )
    np.testing.assert_allclose(
        law.from_normal_score(SCORES), base.from_normal_score(SCORES), rtol=1e-12
    )
    np.testing.assert_allclose(law.excess_kurtosis, base.excess_kurtosis, rtol=1e-12)


def test_order_of_components_does_not_matter(x64):
    order = np.array([2, 0, 1])
    other = OutputMixture(LinearizedMarginal(LOC[order], WIDTH[order, None]), SHARES[order])
    at = np.linspace(-1.4, 3.0, 9)
    np.testing.assert_allclose(other.log_prob(at), uniforms().log_prob(at), rtol=1e-13)
    np.testing.assert_allclose(
        other.from_normal_score(SCORES), uniforms().from_normal_score(SCORES), rtol=1e-12
    )


@pytest.mark.slow
def test_gradients_against_differences(x64):
    weights = np.stack([WIDTH, 0.5 * WIDTH, 0.3 * WIDTH], axis=-1)
    at, z = np.array([-1.8, 0.1, 2.7]), np.array([-3.0, 0.2, 2.5])

    @jax.jit
    def total(parameters):
        loc, weights, shares, at, z = parameters
        law = OutputMixture(LinearizedMarginal(loc, weights), shares)
        score, log_prob = law.normal_score_and_log_prob(at)
        values = [score, log_prob, law.log_cdf(at), law.from_normal_score(z)]
        return sum(jnp.sum(value * jnp.array([1.0, 0.7, 0.4])) for value in values)

    parameters = (LOC, weights, SHARES, at, z)
    found = jax.jit(jax.grad(total))(parameters)
    for i, part in enumerate(parameters):
        for place in np.ndindex(part.shape):
            ends = []
            for step in (1e-5, -1e-5):
                moved = part.copy()
                moved[place] += step
                ends.append(total((*parameters[:i], moved, *parameters[i + 1 :])))
            expected = (ends[0] - ends[1]) / 2e-5
            np.testing.assert_allclose(found[i][place], expected, rtol=2e-5, atol=1e-6)


@pytest.mark.slow
def test_gradients_are_finite_beyond_the_support_of_some(x64):
    def logs(loc, at):
        law = OutputMixture(LinearizedMarginal(loc, WIDTH[:, None]), SHARES)
        score, log_prob = law.normal_score_and_log_prob(at)
        return score + log_prob + law.log_cdf(at) + law.log_sf(at)

    for at in (-1.2, 0.0, 3.1):
        assert np.isfinite(jax.grad(logs)(LOC, at)).all()
        assert np.isfinite(jax.grad(logs, argnums=1)(LOC, at))


@pytest.mark.slow
def test_components_of_other_families(x64):
    """NumPyro's own normal law in the place of the components, also expanded."""
    law = OutputMixture(dist.Normal(LOC, WIDTH), SHARES)
    at = np.linspace(-2, 4, 7)
    for name in ("log_prob", "log_cdf", "log_sf", "normal_score"):
        np.testing.assert_allclose(getattr(law, name)(at), getattr(normals(), name)(at), rtol=1e-9)
    np.testing.assert_allclose(
        law.from_normal_score(SCORES), normals().from_normal_score(SCORES), rtol=1e-11
    )
    assert law.support is constraints.real
    half = OutputMixture(dist.Exponential(WIDTH).expand((2, 3)), SHARES)
    assert half.sample(KEY, (5,)).shape == (5, 2)
    assert half[..., [1]].batch_shape == (1,)
    assert half.support(jnp.array([1.0, -1.0])).tolist() == [True, False]


def test_components_of_other_families_have_bounds_of_their_own(x64):
    base = dist.Uniform(LOC - WIDTH, LOC + WIDTH)
    found, known = OutputMixture(base, SHARES, validate_args=False), uniforms(validate_args=False)
    at = np.linspace(-3.1, 5.9, 7)
    for name in ("log_prob", "cdf", "normal_score"):
        np.testing.assert_allclose(getattr(found, name)(at), getattr(known, name)(at), rtol=1e-9)
    # A single value for all laws of a batch.
    law = nuq.laws.as_output_law(base)
    np.testing.assert_allclose(law.cdf(0.2), base.cdf(0.2), atol=1e-12)
    np.testing.assert_array_equal(law.log_prob(0.2) == -np.inf, ~base.support(0.2))


def test_numpyro_agrees(x64):
    mixing = dist.CategoricalProbs(SHARES)
    same = dist.MixtureSameFamily(mixing, dist.Normal(LOC, WIDTH))
    at = np.linspace(-3, 5, 9)
    np.testing.assert_allclose(normals().log_prob(at), same.log_prob(at), rtol=1e-10)
    np.testing.assert_allclose(normals().variance, same.variance, rtol=1e-12)


@pytest.mark.slow
def test_take_expand_and_batches():
    law = several()
    at = np.array([0.1, 0.7], np.float32)
    np.testing.assert_allclose(law[[1, 0]].log_prob(at[::-1]), law.log_prob(at)[::-1])
    shared = OutputMixture(law.components, SHARES)[[1]]
    assert shared.batch_shape == (1,)
    wide = law.expand((4, 2))
    assert wide.log_prob(at).shape == wide.sample(KEY).shape == wide.mean.shape == (4, 2)
    np.testing.assert_allclose(wide.icdf(0.3)[2], law.icdf(0.3), rtol=1e-6)
    assert OutputMixture.infer_shapes((2, 3), (3,)) == ((2,), ())


def test_portions_of_components(x64, monkeypatch):
    law = several()
    at = np.linspace(-2, 2, 6)[:, None]
    whole = law.normal_score_and_log_prob(at)
    numerics = "nn_uq_dist.distributions._mixture_numerics."
    monkeypatch.setattr(numerics + "MOST_NUMBERS", 24)
    for part, expected in zip(law.normal_score_and_log_prob(at), whole, strict=True):
        np.testing.assert_allclose(part, expected, rtol=1e-12)


@pytest.mark.parametrize("name", ["several"])
def test_pytree_pickle_and_vmap(name):
    law = LAWS[name]()
    value = law.sample(KEY)
    want = law.log_prob(value)
    for back in (
        jax.tree.unflatten(*reversed(jax.tree.flatten(law))),
        pickle.loads(pickle.dumps(law)),  # noqa: S301 (our own)
        promote_batch_shape(law),
        jax.jit(lambda d: d)(law),
    ):
        assert (back.batch_shape, back.event_shape) == (law.batch_shape, ())
        np.testing.assert_allclose(back.log_prob(value), want, rtol=1e-5)


@pytest.mark.slow
def test_vmap_over_parameters():
    losses = np.stack([LOC, 2 * LOC]).astype(np.float32)

    def median(loc):
        return OutputMixture(LinearizedMarginal(loc, WIDTH[:, None]), SHARES).icdf(0.5)

    each = [median(loc) for loc in losses]
    np.testing.assert_allclose(jax.vmap(median)(losses), each, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["uniforms", "several"])
def test_hermite_series_against_quantiles(name, x64):
    """Two rules for the same coefficients, one over the values and one over the scores."""
    law = LAWS[name]().expand((1,)) if name != "several" else several()
    found = hermite_coefficients(law.hermite_rule())[:6]
    np.testing.assert_allclose(found, hermite_coefficients(score_quadrature(law))[:6], atol=3e-5)


@pytest.mark.slow
def test_in_copula_and_tables():
    law = several()
    joint = nuq.GaussianCopulaJoint(law, np.array([[1.0, 0.4], [0.4, 1.0]]))
    draws = joint.sample(KEY, (500,))
    assert np.isfinite(joint.log_prob(draws)).all()
    assert nuq.diagnostics.summary(law, draws).shape[0] == 2


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((dist.Normal(0.0, 1.0), [1.0]), ValueError, "same last batch axis"),
        ((LinearizedMarginal(LOC, WIDTH[:, None]), [0.5, 0.5]), ValueError, "same last batch axis"),
        ((LinearizedMarginal(LOC, WIDTH[:, None]), [0.5, 0.6, 0.5]), ValueError, "probabilities"),
        ((LinearizedMarginal(LOC, WIDTH[:, None]), ["a"] * 3), TypeError, "probabilities"),
        ((dist.Poisson(LOC**2), SHARES), TypeError, "continuous"),
        ((0.5, SHARES), TypeError, "NumPyro distribution"),
    ],
)
def test_mistakes(arguments, error, message):
    with pytest.raises(error, match=message):
        OutputMixture(*arguments, validate_args=True)


def test_wrong_value():
    with pytest.raises(ValueError, match="value must broadcast"):
        several().log_prob(np.zeros(3))
