"""Ridge regressions against normal equations, one penalty and one left-out draw at a time."""

import jax
import jax.numpy as jnp
import numpy as np

from nn_uq_dist.paired_samples.ridge import Ridge


def test_draws_left_out_are_predicted_by_fits_without_them():
    rng = np.random.default_rng(2)
    terms, y = rng.normal(size=(5, 40)), rng.normal(size=(40, 3))
    penalty = 7.0
    ridge = Ridge(terms, y)
    # The mean of the terms is that of all draws, as in the fit.
    a = np.concatenate([np.ones((40, 1)), (terms - terms.mean(axis=1, keepdims=True)).T], axis=1)

    def predicted(rest, i):
        gram = a[rest].T @ a[rest] + penalty * np.diag([0, *np.ones(5)])
        return a[i] @ np.linalg.solve(gram, a[rest].T @ y[rest])

    whole = np.arange(40)
    np.testing.assert_allclose(ridge.residuals(penalty), y - predicted(whole, whole), rtol=1e-9)
    found = a[:, 1:] @ ridge.coefficients(penalty) + ridge.mean
    np.testing.assert_allclose(found, predicted(whole, whole), rtol=1e-9)
    for i in (0, 7, 39):
        error = y[i] - predicted(np.delete(whole, i), i)
        np.testing.assert_allclose(ridge.errors(penalty)[i], error, rtol=1e-9)


def test_several_penalties_and_constant_terms_have_derivatives(x64):
    rng = np.random.default_rng(3)
    terms, y = rng.normal(size=(2, 4, 20)), rng.normal(size=(2, 20, 3))
    terms[:, 1:3] = 0.5
    penalties = np.array([0.5, 5.0]).reshape(2, 1, 1)

    def one(terms, penalty):
        x = terms - terms.mean(axis=-1, keepdims=True)
        gram = x @ x.mT + penalty * jnp.eye(4)
        return jnp.linalg.solve(gram, x @ (y - y.mean(axis=-2, keepdims=True)))

    expected = np.stack([one(terms, penalty) for penalty in (0.5, 5.0)])
    np.testing.assert_allclose(Ridge(terms, y).coefficients(penalties), expected, atol=1e-12)

    def power(of_terms):
        return jax.grad(lambda scale: jnp.sum(of_terms(scale * jnp.asarray(terms)) ** 2))(1.1)

    found = power(lambda scaled: Ridge(scaled, jnp.asarray(y)).coefficients(0.5))
    np.testing.assert_allclose(found, power(lambda scaled: one(scaled, 0.5)), rtol=1e-9)
