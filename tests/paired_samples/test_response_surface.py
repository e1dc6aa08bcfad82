"""Polynomials that predict differences, and ridge regressions against normal equations."""

import numpy as np

from nn_uq_dist.paired_samples import Ridge, fit_surface


def sample(count, num_inputs, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, (count, num_inputs))


def test_polynomials_are_found():
    x, degree = sample(600, 3), 3
    y = np.stack([x[:, 0] ** degree - x[:, 1] * x[:, 2], np.zeros(600)], axis=1)
    surface = fit_surface(x, y, np.array([3.0, 2.0, 1.0]), is_bounded=True)
    assert surface.unexplained[0] < 1e-4
    assert surface.unexplained[1] == 1
    fresh = sample(100, 3, seed=5)
    expected = fresh[:, 0] ** degree - fresh[:, 1] * fresh[:, 2]
    np.testing.assert_allclose(surface.predict(fresh)[:, 0], expected, atol=0.02)
    np.testing.assert_array_equal(surface.predict(fresh)[:, 1], 0)


def test_more_inputs_than_draws():
    x = sample(300, 1000)
    y = 3 * x[:, :1] + x[:, 1:2] ** 2
    importance = np.zeros(1000)
    importance[:2] = 1, 0.5
    surface = fit_surface(x, y, importance, is_bounded=True)
    assert surface.unexplained[0] < 0.2
    assert np.isfinite(surface.predict(x)).all()


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
