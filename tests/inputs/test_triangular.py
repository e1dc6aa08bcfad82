"""Triangular and trapezoidal inputs against their densities in mpmath."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import scipy.stats

import nn_uq_dist as nuq
from nn_uq_dist import Input

CASES = {
    "triangle": (Input.triangular, (-1.0, 3.0), (-1.0, 1.0, 1.0, 3.0)),
    "triangle far out": (Input.triangular, (1e3, 1e3 + 2.0), (1e3, 1e3 + 1, 1e3 + 1, 1e3 + 2)),
    "trapezium": (Input.trapezoidal, (0.0, 1.0, 4.0, 5.0), (0.0, 1.0, 4.0, 5.0)),
    "nearly a box": (Input.trapezoidal, (-1.0, -0.999, 0.999, 1.0), (-1.0, -0.999, 0.999, 1.0)),
}


def exact_log_density(ends, x):
    """Log density of the trapezium at `x`, in 40 digits."""
    with mpmath.workdps(40):
        low, start, stop, high = map(mpmath.mpf, ends)
        x = mpmath.mpf(float(x))
        top = 2 / (high + stop - start - low)
        if x < start:
            return float(mpmath.log(top * (x - low) / (start - low)))
        if x > stop:
            return float(mpmath.log(top * (high - x) / (high - stop)))
        return float(mpmath.log(top))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.usefixtures("x64")
def test_log_density_up_to_the_edge(case):
    make, arguments, ends = CASES[case]
    distribution = nuq.linearize(
        lambda x: x, make(*(jnp.array([end]) for end in arguments))
    ).marginals()
    low, start, stop, high = ends
    slope = start - low
    inside = np.concatenate(
        [
            low + slope * np.array([1e-6, 1e-4, 0.125, 0.5, 0.999]),
            np.linspace(start, stop, 5),
            high - slope * np.array([1e-6, 1e-3, 0.3, 0.9]),
        ]
    )
    found = distribution.log_prob(jnp.asarray(inside)[:, None])[:, 0]
    expected = [exact_log_density(ends, x) for x in inside]
    # The distance of a value to an edge is rounded as the value is, and as an end that is no short
    # binary fraction.
    roundings = 4 if case in {"triangle far out", "nearly a box"} else 1
    edge = np.minimum(inside - low, high - inside)
    atol = 1e-10 + roundings * np.finfo(float).eps * max(map(abs, ends)) / edge
    assert (np.abs(found - np.array(expected)) <= atol).all()
    outside = jnp.array([low - 1e-6, high + 1e-6])[:, None]
    with pytest.warns(UserWarning, match="Out-of-support"):
        assert (distribution.log_prob(outside) == -np.inf).all()


def test_draws_have_the_distribution():
    f = Input.trapezoidal(jnp.array([0.0]), 1.0, 4.0, 5.0)
    draws = np.asarray(f.sample(jax.random.key(0), (100_000,)))[:, 0]
    known = scipy.stats.trapezoid(0.2, 0.8, 0, 5)
    assert scipy.stats.kstest(draws, known.cdf).pvalue > 0.01
    assert f.variance[0] == pytest.approx(known.var(), rel=1e-5)
    assert f.half_width[0] == pytest.approx(2.5)


def test_traced_ends_have_gradients_or_nan():
    def variance(high):
        return Input.triangular(jnp.zeros(1), high * jnp.ones(1)).variance[0]

    assert jax.jit(jax.grad(variance))(3.0) == pytest.approx(2 * 3 / 24, rel=1e-5)
    assert np.isnan(jax.jit(variance)(-1.0))
    bent = jax.jit(lambda stop: Input.trapezoidal(jnp.zeros(1), 1.0, stop, 4.0).variance)
    assert np.isnan(bent(2.0)).all()
    assert np.isfinite(bent(3.0)).all()


def test_ends_broadcast():
    f = Input.triangular(
        jnp.zeros((4, 1)), jnp.array([1.0, 2.0, 3.0]), mode=jnp.array([0.5, 1.0, 1.5])
    )
    assert f.batch_shape == (4,)
    np.testing.assert_allclose(f.mean, np.tile([0.5, 1.0, 1.5], (4, 1)))
    np.testing.assert_allclose(f.variance[0], np.array([1, 4, 9]) / 24, rtol=1e-5)


ERRORS = {
    "mode": (
        lambda: Input.triangular(jnp.zeros(2), 1.0, mode=jnp.array([0.5, 0.4])),
        ValueError,
        r"must be symmetric, got \[0.0, 0.4.*\] at index \(1,\).* icdf of your own",
    ),
    "bent": (
        lambda: Input.trapezoidal(jnp.zeros(1), 1.0, 2.0, 4.0),
        ValueError,
        r"trapezoidal input must be symmetric, got \[0.0, 1.0, 2.0, 4.0\].* put start and stop in",
    ),
    "top": (
        lambda: Input.trapezoidal(jnp.zeros(1), 3.0, 1.0, 4.0),
        ValueError,
        "must have ends that do not decrease",
    ),
    "scalars": (lambda: Input.triangular(0.0, 1.0), ValueError, "got scalars; pass arrays"),
    "nan": (
        lambda: Input.triangular(jnp.zeros(1), np.nan),
        ValueError,
        "high must be finite, got nan",
    ),
    "shapes": (
        lambda: Input.triangular(np.zeros(2), np.ones(3)),
        ValueError,
        r"low \(2,\), high \(3,\)",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors(case):
    call, kind, message = ERRORS[case]
    with pytest.raises(kind, match=message):
        call()
