"""First-order Sobol indices: against brute force over draws, and closed forms."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate

import nn_uq_dist as nuq
from nn_uq_dist import Input, Linearization
from nn_uq_dist.diagnostics import sensitivity
from nn_uq_dist.diagnostics._sensitivity import NUM_BINS, share_of_bins

pytestmark = pytest.mark.viz

JACOBIAN = np.array([[1.0, -2.0, 0.5], [0.0, 1.0, 3.0]])
TRIL = np.array([[0.5, 0.0, 0.0], [0.4, 0.3, 0.0], [-0.3, 0.2, 0.6]])
LAWS = {
    "independent": Input.box(np.zeros(3), [1.0, 0.0, 2.0])
    + Input.normal(np.zeros(3), scale_tril=np.diag([0.5, 0.3, 0.0])),
    "correlated": Input.normal(np.zeros(3), scale_tril=TRIL),
    "mixed": Input.box(np.zeros(3), [0.0, 0.0, 2.0])
    + Input.normal(np.zeros(3), scale_tril=np.diag([1.0, 1.0, 0.0]) @ TRIL),
}


def explained_share(x, y, num_bins):
    """Var(E[y | x]) / Var(y) from means in bins, less what the scatter within the bins adds."""
    order = np.argsort(x)
    groups = np.array(np.array_split(y[order], num_bins))
    within = groups.var(axis=1, ddof=1).mean() / groups.shape[1]
    return (groups.mean(axis=1).var(ddof=1) - within) / y.var()


@pytest.mark.parametrize("name", ["independent", "correlated", "mixed"])
def test_indices_agree_with_conditional_means_of_draws(name):
    # 2e5 draws: the standard error of a share is below 0.003, and 200 bins hide less than 0.001.
    distribution = LAWS[name]
    f = np.asarray(distribution.sample(jax.random.key(0), (200_000,)), np.float64)
    y = f @ JACOBIAN.T
    found = sensitivity(Linearization(np.zeros(2), JACOBIAN, distribution))
    expected = [[explained_share(x, column, 200) for x in f.T] for column in y.T]
    np.testing.assert_allclose(found, expected, atol=0.012)
    assert found.attrs["additive"] == (name == "independent")
    if name == "independent":
        np.testing.assert_allclose(found.sum("input"), 1, rtol=1e-6)


def test_constant_and_tiny_outputs():
    jacobian = [[0.0, 0.0], [1e-25, 2e-25], [3.0, 4.0]]
    lin = Linearization(np.zeros(3), jacobian, Input.box(np.zeros(2), [1.0, 0.0]))
    found = sensitivity(lin, output_names=list("abc"))
    assert found.sel(output="a").isnull().all()
    np.testing.assert_allclose(found.sel(output=["b", "c"]), [[1, 0], [1, 0]], rtol=1e-12)
    assert found["input"].values.tolist() == ["f[0]", "f[1]"]


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Exact(nuq.linearization.LinearModel):
    """A model that is known by its draws: the network itself."""

    input: nuq.Input
    network: Callable = dataclasses.field(metadata={"static": True})

    def sample_pairs(self, key, sample_shape=()):
        inputs = self.input.sample(key, sample_shape)
        return inputs, self.network(inputs)

    @property
    def mean(self):
        return self.network(self.input.mean)

    @property
    def covariance(self):
        return jnp.cov(self.sample(jax.random.key(0), (1000,)), rowvar=False)

    marginals = joint = None


def test_estimated_indices_agree_with_quadrature():
    """Of a model with the outputs ``x y + y`` and a function of ``x`` alone."""

    def curve(x):
        return jnp.stack([x[..., 0] * x[..., 1] + x[..., 1], jnp.exp(x[..., 0])], axis=-1)

    def moment(k):
        return scipy.integrate.dblquad(lambda y, x: (x * y + y) ** k / 2, 0.5, 1.5, -1.5, 0.5)[0]

    model = Exact(Input.box([1.0, -0.5], half_width=[0.5, 1.0]), curve)
    indices = sensitivity(model)
    # Given x the mean is -0.5 (x + 1); given y it is 2 y; the total is by quadrature over the box.
    total = moment(2) - moment(1) ** 2
    expected = [[0.25 / 12 / total, 4 / 3 / total], [1.0, 0.0]]
    np.testing.assert_allclose(indices, expected, atol=4 * indices.attrs["standard_error"] + 2e-3)


def test_standard_errors_of_estimated_indices_hold():
    # 300 repetitions: shares within 1.96 errors, 0.95 +- 0.05 is four standard deviations.
    rng = np.random.default_rng(0)
    scores = []
    for _ in range(300):
        x = rng.normal(size=64 * NUM_BINS)
        noise, skewed = rng.normal(size=(2, x.size))
        y = np.stack([x + 2 * noise, x**2 + noise, np.exp(skewed)], axis=1)
        y = y - y.mean(axis=0)
        value, error = share_of_bins(x, y)
        scores.append((value - [1 / 5, 2 / 3, 0]) / error)
    within = np.abs(scores) < 1.96
    assert (within.mean(axis=0) > 0.9).all()
    assert (np.std(scores, axis=0)[:2] > 0.85).all()  # the third is cut at zero
    assert share_of_bins(np.ones(256), y[:256])[0].tolist() == [0, 0, 0]
