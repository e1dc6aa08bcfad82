"""What a network takes as a structure of the vector, names of both, and corrected transforms."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

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
