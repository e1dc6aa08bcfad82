"""The order of the leaves of distributions and results, in processes with other hash seeds."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import nn_uq_dist as nuq


def test_vmap_over_a_result_that_holds_a_numpyro_distribution():
    f = dist.Gamma(jnp.array([2.0, 3.0, 4.0]), 2.0).to_event(1)
    linear = nuq.linearize(jnp.cumsum, f)
    means = jax.vmap(lambda distribution: distribution.loc)(
        jax.tree.map(lambda leaf: jnp.stack([leaf] * 2), linear)
    )
    np.testing.assert_allclose(means, jnp.stack([linear.loc] * 2))


SCRIPT = """
import sys
import jax, jax.numpy as jnp, numpy as np, numpyro.distributions as dist
import nn_uq_dist as nuq

f = {"r": dist.LogNormal(0.0, 0.1), "k": dist.Gamma(3.0, 2.0),
     "t": dist.TransformedDistribution(dist.Normal(0.0, 1.0), [
         dist.transforms.AffineTransform(1.0, 2.0), dist.transforms.ExpTransform()])}
mapped = nuq.linearize(lambda d: jnp.stack([d["r"] * d["k"], d["t"] + d["r"]]), f)
gammas = dist.Gamma(jnp.array([2.0, 3.0]), jnp.array([1.0, 2.0]))
copula = nuq.GaussianCopulaJoint(gammas, jnp.array([[1.0, 0.3], [0.3, 1.0]]))
truncated = dist.TruncatedNormal(jnp.array([1.0, 2.0]), 0.2, low=0.5)
results = [mapped, copula, copula.condition(0, 1.5),
           nuq.distributions.as_output_distribution(truncated)]
leaves = [np.asarray(leaf) for result in results for leaf in jax.tree.leaves(result)]
if sys.argv[1] == "save":
    np.savez(sys.argv[2], *leaves)
else:
    with np.load(sys.argv[2]) as file:
        saved = [file[name] for name in file.files]
    assert [leaf.shape for leaf in leaves] == [leaf.shape for leaf in saved]
    for leaf, other in zip(leaves, saved, strict=True):
        np.testing.assert_array_equal(leaf, other)
"""


@pytest.mark.slow
def test_leaves_saved_in_one_process_are_those_of_another(tmp_path):
    for seed in range(2):
        environment = os.environ | {"PYTHONHASHSEED": str(seed)}
        job = "load" if seed else "save"
        command = [sys.executable, "-c", SCRIPT, job, str(tmp_path / "leaves.npz")]
        subprocess.run(command, env=environment, check=True, timeout=300)  # noqa: S603
