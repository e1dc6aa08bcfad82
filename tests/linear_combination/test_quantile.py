"""Quantiles and normal scores: round trips, far tails, derivatives."""

from fractions import Fraction
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mpmath import mp
from scipy.special import log_ndtr

from nn_uq_dist import linear_combination as lc
from nn_uq_dist.linear_combination._quantile import iterate_quantile
from tests.bank.reference import log_values
from tests.linear_combination.stacks import jit

LAWS = {
    "3_weights": ((0.9, -0.5, 0.3), None),
    "1_weight_normal_part": ((1.0,), 0.3),
    "12_weights": (tuple(np.random.default_rng(12).standard_normal(12).tolist()), None),
}
FRACTIONS = np.array([1e-4, 0.05, 0.3, 0.5, 0.7, 0.9, 0.97, 0.99])


def _reach(weights, scale):
    """Half-width of the support; three standard deviations where it is unbounded."""
    if scale is None:
        return float(np.abs(weights).sum())
    return 3 * float(np.sqrt(np.square(weights).sum() / 3 + scale**2))


def _reference(x, weights, scale, digits=30):
    exact = [Fraction(w) for w in weights]
    return log_values(Fraction(x), exact, Fraction(scale or 0.0), digits)


def _quantile(log_survival, weights, scale, start):
    """Newton's method on the reference, from a start that is right to 12 digits."""
    with mp.workdps(40):
        x = mp.mpf(start)
        for _ in range(3):
            value = _reference(mp.nstr(x, 38), weights, scale)
            x += (value.log_survival - log_survival) * mp.exp(
                value.log_survival - value.log_density
            )
        return x


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_round_trips(law, precision):
    weights, scale = law
    reach = _reach(weights, scale)
    bar = {"float32": 1e-4, "float64": 1e-9}[precision] * reach
    # A distribution function holds its lower tail only, a normal score both.
    lower = -FRACTIONS[::-1] * reach
    both = np.concatenate([lower, [0.0], -lower[::-1]])
    if scale is not None:
        both *= 3.0  # nine standard deviations

    @jit
    def round_trips(lower, both):
        there = lc.ppf(lc.cdf(lower, weights, scale), weights, scale)
        score = lc.normal_score(both, weights, scale)
        return there, lc.from_normal_score(score, weights, scale)

    for returned, x in zip(round_trips(lower, both), (lower, both), strict=True):
        assert returned.dtype == precision
        np.testing.assert_allclose(returned, x, rtol=0, atol=bar)


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
def test_tiny_probabilities(law, x64):
    weights, scale = law
    probabilities = np.array([0.3, 1e-3, 1e-12, 1e-30, 1e-300])
    values = np.asarray(jit(lc.ppf)(probabilities, weights, scale))
    assert np.all(np.diff(values) <= 0)
    for q, x in zip(probabilities, values, strict=True):
        if scale is None and 1 + x / _reach(weights, scale) < 1e-14:
            # Nearer to the edge than doubles resolve: the answer must be the edge, which the
            # exact tail d^n / (n! prod 2 w) confirms.
            count = len(weights)
            log_volume = np.log(np.abs(weights) * 2).sum() + np.sum(np.log(np.arange(1, count + 1)))
            assert (np.log(q) + log_volume) / count < np.log(2e-14 * _reach(weights, scale))
            continue
        value = _reference(-x, weights, scale)
        with mp.workdps(30):
            slope = mp.exp(value.log_survival - value.log_density)
            error = float((value.log_survival - mp.log(mp.mpf(float(q)))) * slope)
        assert abs(error) <= 1e-13 * _reach(weights, scale), (q, x, error)


def test_ends_of_the_probabilities(precision):
    q = jnp.asarray([0.0, 1.0, 0.5, -0.1, 1.1, jnp.nan, jnp.inf])
    bounded = jit(partial(lc.ppf, weights=(1.0, -0.5)))(q)
    np.testing.assert_array_equal(bounded[:3], [-1.5, 1.5, 0.0])
    assert np.all(np.isnan(bounded[3:]))
    unbounded = jit(partial(lc.ppf, weights=(1.0,), normal_scale=0.1))(q)
    np.testing.assert_array_equal(unbounded[:2], [-np.inf, np.inf])
    assert abs(unbounded[2]) < 1e-6
    assert np.all(np.isnan(unbounded[3:]))


def test_scores_at_and_beyond_the_edge(precision):
    score = jit(partial(lc.normal_score, weights=(1.0, -0.5)))
    np.testing.assert_array_equal(
        score(jnp.asarray([-2.0, -1.5, 0.0, 1.5, 2.0])), [-np.inf, -np.inf, 0.0, np.inf, np.inf]
    )
    back = jit(partial(lc.from_normal_score, weights=(1.0, -0.5)))
    np.testing.assert_array_equal(back(jnp.asarray([-jnp.inf, 0.0, jnp.inf])), [-1.5, 0.0, 1.5])


def test_quantiles_are_monotone_and_symmetric(precision):
    weights = (0.9, -0.5, 0.3)
    q = np.concatenate([np.geomspace(1e-25, 1e-3, 40), np.linspace(2e-3, 0.5, 60)])
    lower = np.asarray(jit(partial(lc.ppf, weights=weights))(q))
    eps = np.finfo(precision).eps
    assert np.all(np.diff(lower) >= -4 * eps)
    upper = np.asarray(jit(partial(lc.ppf, weights=weights))(1 - q[40:]))
    # One minus a probability rounds, at a slope of at most one over the density.
    np.testing.assert_allclose(upper, -lower[40:], atol=300 * eps)


def test_large_scores_in_single_precision():
    # A normal law with a little uniform noise: its scores are near to its standard units.
    weights, scale = (0.25,), 1.0
    x = np.array([6.0, -12.0, 30.0], np.float32)
    scores = jit(lc.normal_score)(x, weights, scale)
    returned = jit(lc.from_normal_score)(scores, weights, scale)
    assert scores.dtype == returned.dtype == np.float32
    np.testing.assert_allclose(returned, x, rtol=2e-6)
    for point, score in zip(x.tolist(), scores.tolist(), strict=True):
        log_survival = _reference(abs(point), weights, scale).log_survival
        with mp.workdps(30):
            expected = mp.findroot(lambda z, s=log_survival: mp.log(mp.ncdf(-z)) - s, abs(point))
        assert abs(score - np.sign(point) * float(expected)) <= 1e-6 * abs(point)


@pytest.mark.parametrize(
    ("weights", "scale"), [((0.9, -0.5, 0.3), None), ((0.9,), 0.3)], ids=["bounded", "normal_part"]
)
def test_derivatives_of_quantiles(weights, scale, x64):
    q, count = 0.07, len(weights)
    arguments = (q, np.array(weights)) if scale is None else (q, np.array(weights), scale)
    gradient = jit(jax.grad(lc.ppf, argnums=tuple(range(len(arguments)))))(*arguments)
    flat = np.concatenate([np.ravel(part) for part in gradient])

    step = Fraction(1, 2**40)
    center = [Fraction(q), *map(Fraction, weights), *([] if scale is None else [Fraction(scale)])]
    start = -float(lc.ppf(*arguments))

    def quantile(moved):
        with mp.workdps(40):
            log_q = mp.log(mp.mpf(moved[0].numerator) / moved[0].denominator)
        return -_quantile(log_q, moved[1 : count + 1], None if scale is None else moved[-1], start)

    expected = []
    for i in range(len(center)):
        ends = [[c + sign * step * (j == i) for j, c in enumerate(center)] for sign in (1, -1)]
        with mp.workdps(40):
            difference = quantile(ends[0]) - quantile(ends[1])
            expected.append(float(difference / (2 * mp.mpf(2) ** -40)))
    np.testing.assert_allclose(flat, expected, rtol=1e-8)


def test_derivatives_at_the_ends_are_finite(precision):
    slope = jit(jax.vmap(jax.grad(partial(lc.ppf, weights=jnp.asarray([1.0, -0.5])))))
    assert np.all(np.isfinite(slope(jnp.asarray([0.0, 1e-30, 0.5, 1.0]))))


def test_derivative_of_scores_is_that_of_the_inverse(x64):
    weights = (0.9, -0.5, 0.3)
    x = jnp.asarray([-1.6, -0.4, 0.0, 0.2, 1.69])
    there = jit(jax.vmap(jax.grad(partial(lc.normal_score, weights=weights))))(x)
    log_ratio = lc.logpdf(x, weights) + 0.5 * lc.normal_score(x, weights) ** 2
    np.testing.assert_allclose(there, np.sqrt(2 * np.pi) * np.exp(log_ratio), rtol=1e-9)


@pytest.mark.parametrize("num_weights", [1, 200])
@pytest.mark.parametrize("normal_scale", [None, 0.1], ids=["bounded", "normal_part"])
def test_number_of_steps(num_weights, normal_scale, precision):
    # Not the limit of 100: rounding at the center and at the edge must not keep a point waiting.
    weights = np.random.default_rng(num_weights).normal(size=num_weights).astype(precision)
    tail = jnp.asarray(log_ndtr(-np.linspace(0, 10, 101)), precision)
    scale = None if normal_scale is None else jnp.asarray(normal_scale, precision)
    assert int(jit(iterate_quantile)(tail, jnp.asarray(weights), scale)[1]) <= 15
