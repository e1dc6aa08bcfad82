"""The repr of the objects of the library: one line, without the numbers of their arrays."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import nn_uq_dist as nuq
from nn_uq_dist.distributions import MonotoneSpline, NormalScoreTransform

KEY = jax.random.key(0)
LAW = nuq.InputLaw(jnp.zeros(3), half_width=0.3)


def net(x):
    return jnp.stack([jnp.tanh(x[0]) + x[1], x[1] * x[2] + x[0]])


def objects():
    linear = nuq.linearize(net, LAW)
    pairs = nuq.paired_draws(net, linear, KEY, 64, progress=False)
    statistics = nuq.paired_statistics(pairs)
    wide = nuq.Linearization(jnp.zeros(2000), jnp.ones((2000, 3)), LAW)
    return {
        "linearization": linear,
        "batch": nuq.linearize(net, nuq.InputLaw(jnp.zeros((5, 3)), 0.1)),
        "many outputs": wide,
        "image": linear.image(0.1),
        "pairs": pairs,
        "paired statistics": statistics,
        "paired estimate": statistics.mean,
        "corrected": linear.corrected(pairs, num_surface_draws=0),
        "correlation": linear.copula_correlation(),
        "marginals": linear.marginals(),
        "joint": linear.gaussian_copula(),
        "linear joint": linear.joint(),
        "spline": MonotoneSpline(jnp.arange(50.0), jnp.arange(50.0)),
        "transform": NormalScoreTransform(dist.Normal(jnp.zeros(2), 1.0)),
    }


@pytest.fixture(scope="module")
def lines():
    return {name: repr(instance) for name, instance in objects().items()}


@pytest.mark.slow
def test_one_line_of_a_few_words(lines):
    for name, line in lines.items():
        assert len(line) <= 200, name
        assert "\n" not in line, name
        assert "Array(" not in line, name
        assert "array(" not in line, name


def test_shapes_and_types_are_told(lines):
    assert lines["linearization"] == (
        "Linearization(loc=float32[2], jacobian=float32[2, 3], input=InputLaw)"
    )
    assert "jacobian=float32[5, 2, 3]" in lines["batch"]
    assert lines["paired statistics"] == "PairedStatistics(num_outputs=2, num_pairs=64)"
    assert lines["spline"].startswith("MonotoneSpline(knots=float32[50], images=float32[50]")
    # NumPyro's own line.
    assert lines["marginals"].startswith(
        "LinearizedMarginal(batch_shape=(2,), event_shape=(), loc=float32[2], weights=float32[2, "
    )


def test_traced_and_rebuilt_objects_have_a_line():
    linear = nuq.linearize(net, LAW)
    found = []
    jax.make_jaxpr(lambda lin: found.append(repr(lin)) or lin.loc)(linear)
    found.append(repr(jax.tree.map(lambda _: object(), linear)))
    found.append(repr(jax.tree.map(np.shape, linear)))
    assert found[0] == repr(linear)
    assert all(line.startswith("Linearization(loc=") for line in found)
