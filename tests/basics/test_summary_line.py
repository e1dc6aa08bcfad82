"""What objects print: one line without numbers of arrays, and tables of numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import nn_uq_dist as nuq
from nn_uq_dist.basics.summary_line import number_table, to_error
from nn_uq_dist.distributions import MonotoneSpline, NormalScoreTransform
from nn_uq_dist.inputs import as_input

LAW = nuq.Input.box(jnp.zeros(3), half_width=0.3)
BOX = nuq.Input.box(np.zeros((2, 3)), half_width=1.0)


def net(x):
    return jnp.stack([jnp.tanh(x[0]) + x[1], x[1] * x[2] + x[0]])


INPUTS = {
    "Input(box, num_inputs=3, batch_shape=(2,), dtype=float32)": BOX,
    "Input(box and correlated normal, num_inputs=1, batch_shape=(), dtype=float32)": (
        nuq.Input.box([0.0], 1.0) + nuq.Input.normal([0.0], scale_tril=[[1.0]])
    ),
    "Input(known values, num_inputs=2, batch_shape=(), dtype=float32)": nuq.Input.known([1.0, 2.0]),
    "Input(transformed independent normal to LogNormal, num_inputs=3, batch_shape=(), "
    "dtype=float32)": as_input(dist.LogNormal(jnp.zeros(3), 1.0).to_event(1)),
}


def test_input_distributions_tell_kind_sizes_and_type():
    for text, distribution in INPUTS.items():
        assert repr(distribution) == text


@pytest.mark.slow
def test_one_line_of_a_few_words_with_shapes_and_types():
    linear = nuq.linearize(net, LAW)
    pairs = nuq.paired_draws(net, linear, jax.random.key(0), 64, progress=False)
    statistics = nuq.paired_statistics(pairs)
    spline = MonotoneSpline(jnp.arange(50.0), jnp.arange(50.0))
    objects = (
        nuq.Linearization(jnp.zeros(2000), jnp.ones((2000, 3)), LAW), linear.image(0.1), pairs,
        statistics.mean, linear.corrected(pairs), linear.copula_correlation(),
        linear.gaussian_copula(), linear.joint(), spline,
        NormalScoreTransform(dist.Normal(jnp.zeros(2), 1.0)),
    )  # fmt: skip
    for line in map(repr, objects):
        assert len(line) <= 200
        assert not any(part in line for part in ("\n", "Array(", "array("))
    text = "Linearization(loc=float32[2], jacobian=float32[2, 3], input=Input)"
    assert repr(linear) == text
    assert repr(statistics) == "PairedStatistics(num_outputs=2, num_pairs=64)"
    assert repr(spline).startswith("MonotoneSpline(knots=float32[50], images=float32[50]")
    # NumPyro's own line.
    assert repr(linear.marginals()).startswith(
        "LinearizedMarginal(batch_shape=(2,), event_shape=(), loc=float32[2], weights=float32[2, "
    )


def test_traced_and_rebuilt_objects_have_a_line():
    for instance, start in ((nuq.linearize(net, LAW), "Linearization(loc="), (BOX, "Input(")):
        found = []
        jax.make_jaxpr(lambda same, found=found: found.append(repr(same)) or same.mean)(instance)
        found.append(repr(jax.tree.map(lambda _: object(), instance)))
        found.append(repr(jax.tree.map(np.shape, instance)))
        assert found[0] == repr(instance)
        assert all(line.startswith(start) for line in found)


def test_tables_of_numbers():
    text = number_table(("input", "mean", "ok"), ["a", "b" * 50], [1.23456, -2e-7], ["yes", "no"])
    assert text.splitlines() == [
        f"input{' ' * 35}    mean   ok",
        f"a{' ' * 39}    1.23  yes",
        f"{'b' * 37}...  -2e-07   no",
    ]
    assert number_table(("", "n"), ["x"] * 23, range(23)).endswith("19\n... and 3 more")
    numbers = to_error([1e8, 1e8, 1234.5678, np.pi, np.pi], [0.18, 0.0, 20.0, 100.0, np.nan])
    assert numbers == ["100000000", "1e+08", "1.23e+03", "3.14", "3.14"]
