"""What a network takes as a structure of the vector, names of both, and corrected transforms."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import nn_uq_dist as nuq
from nn_uq_dist.inputs import as_input


def test_moments_are_those_of_the_base():
    f = {"a": dist.Normal(jnp.ones(2), 0.5).to_event(1), "b": dist.Uniform(-1.0, 1.0)}
    distribution = as_input(f)
    base = distribution.base
    assert (base.is_vector, distribution.is_vector) == (True, False)
    for name in ("mean", "variance", "covariance", "half_width", "normal_scale"):
        np.testing.assert_array_equal(getattr(distribution, name), getattr(base, name))
    assert distribution.num_standard_variables == base.num_standard_variables == (1, 2)
    shares = nuq.diagnostics.sensitivity(nuq.Linearization([0.0], [[1.0, 1.0, 1.0]], distribution))
    np.testing.assert_allclose(shares.values[0], np.array([3, 3, 4]) / 10, rtol=1e-5)


@pytest.mark.slow
def test_pairs_correct_what_the_transform_bends():
    f = dist.Gamma(5.0 * jnp.ones(3), 5.0).to_event(1)

    def net(x):
        return jnp.stack([jnp.tanh(x[0] - 0.5 * x[1]) + 0.3 * x[2], x.sum()])

    lin = nuq.linearize(net, f)
    assert repr(lin.input).startswith("Input(transformed independent normal to Gamma,")
    # Drawn by NumPyro itself, without the scores.
    draws = np.asarray(jax.vmap(net)(f.sample(jax.random.key(1), (100_000,))))
    pairs = nuq.paired_draws(net, lin, jax.random.key(2), 1000, progress=False)
    distribution = lin.corrected(pairs).marginals()
    levels = np.linspace(0.01, 0.99, 99)
    values = jnp.asarray(np.quantile(draws, levels, axis=0))
    tangent, corrected = (
        np.abs(np.asarray(one.cdf(values)) - levels[:, None]).max(axis=0)
        for one in (lin.marginals(), distribution)
    )
    # The noise of a thousand plain draws is 0.04 at the 1% point; of pairs it is a part of that.
    assert (corrected < 0.02).all()
    assert (tangent > 5 * corrected).all()
    error = np.abs(np.asarray(distribution.mean) - draws.mean(axis=0)) / draws.std(axis=0)
    assert (error < 0.03).all()


def test_distributions_within_structures():
    inner = as_input({"b": dist.LogNormal(0.0, 1.0), "c": jnp.arange(2)})
    distribution = as_input({"a": inner, "d": dist.Normal(jnp.zeros(2), 1.0).to_event(1)})
    assert distribution.names == distribution.taken_names == ["a.b", "d[0]", "d[1]"]
    assert "1 transformed, 1 known" in repr(distribution)
    taken = distribution.network_input(jnp.array([1.0, 2.0, 3.0]))
    numbers = distribution.taken(jnp.array([1.0, 2.0, 3.0]))
    np.testing.assert_allclose(numbers, np.array([np.e, 2, 3]), rtol=1e-6)
    again = distribution.structured(numbers)
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), taken, again))
    # Three numbers of two: no name of an entry for each of the two.
    sums = dist.TransformedDistribution(
        dist.Normal(jnp.zeros(2), 1.0).to_event(1), dist.transforms.ZeroSumTransform(1)
    )
    distribution = as_input({"a": sums})
    assert distribution.names == ["a[0]", "a[1]"]
    assert distribution.taken_names == ["a[0]", "a[1]", "a[2]"]
