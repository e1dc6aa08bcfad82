"""Draws of several mixtures with weights over all of them, against sums of their densities."""

import math

import numpy as np
from scipy.stats import multivariate_normal, norm

from nn_uq_dist.inference._archive import Archive
from nn_uq_dist.inference._mixture import Normal, NormalMixture

MIXTURES = [
    (NormalMixture.even(Normal.standard(2)), 2000),
    (NormalMixture.even(Normal.standard(2, 4.0), Normal.around(np.array([3.0, 0.0]))), 500),
    (NormalMixture.even(Normal.around(np.array([3.5, 0.5]))), 1500),
]


def filled():
    rng = np.random.default_rng(0)
    archive = Archive(2)
    for mixture, count in MIXTURES:
        archive.add(mixture, mixture.draw(rng, count))
    return archive


def test_density_is_the_mean_over_all_mixtures():
    archive = filled()
    z = archive.points
    densities = [
        multivariate_normal(np.zeros(2)).pdf(z),
        0.5 * multivariate_normal(np.zeros(2), 4 * np.eye(2)).pdf(z)
        + 0.5 * multivariate_normal([3.0, 0.0]).pdf(z),
        multivariate_normal([3.5, 0.5]).pdf(z),
    ]
    expected = np.array([2000, 500, 1500]) @ densities / 4000
    np.testing.assert_allclose(archive.log_density - math.log(2 * math.pi), np.log(expected))


def test_weights_give_a_probability():
    archive = filled()
    weights = np.exp(-np.sum(archive.points**2, axis=1) / 2 - archive.log_density)
    terms = weights * (archive.points[:, 0] > 3)
    error = terms.std() / math.sqrt(len(terms))
    assert abs(terms.mean() - norm.sf(3)) < 4 * error
    assert error < 0.06 * norm.sf(3)


def test_empty():
    assert Archive(3).log_density.shape == (0,)
