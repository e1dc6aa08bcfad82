"""Correlations of many outputs at once, against those of each two with weights of their own."""

import numpy as np

from nn_uq_dist.sampling._linear_control import correlations


def test_each_two_have_the_weights_of_their_own():
    """By a regression on the five columns of the pair, in so many words."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(3, 3)) @ rng.normal(size=(3, 400))
    z /= np.sqrt(np.diag(z @ z.T))[:, None] / 20
    known = np.array([[1.0, 0.3, -0.2], [0.3, 1.0, 0.5], [-0.2, 0.5, 1.0]])
    network = 1e3 + np.exp(z) + rng.normal(size=z.shape)
    used = rng.uniform(size=z.shape) > 0.1
    found = correlations(z, np.where(used, network, np.nan), used, known)
    for a, b in ((0, 1), (0, 2), (1, 2)):
        columns = np.stack([z[a], z[b], z[a] ** 2 - 1, z[b] ** 2 - 1, z[a] * z[b] - known[a, b]])
        both = (used[a] & used[b]).astype(float)

        def mean(response, columns=columns, both=both):
            slopes = np.linalg.lstsq(
                np.vstack([np.ones(400), columns]).T, np.where(both, response, 0.0)
            )[0]
            return slopes[0]  # where all columns have their known mean, zero

        x, y = (network[k] - network[k].mean() for k in (a, b))
        share = mean(both)
        x, y = x - mean(x) / share, y - mean(y) / share
        expected = mean(x * y) / np.sqrt(mean(x * x) * mean(y * y))
        np.testing.assert_allclose(found[[a, b], [b, a]], expected, rtol=1e-9)
    assert (np.diag(found) == 1).all()
