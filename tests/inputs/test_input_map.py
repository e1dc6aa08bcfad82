"""What a network takes as a structure of the vector, names of both, and corrected transforms."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from nn_uq_dist.inputs import as_input


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
