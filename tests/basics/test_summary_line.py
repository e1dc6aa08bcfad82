"""What objects print: one line without numbers of arrays, and tables of numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

import nn_uq_dist as nuq
from nn_uq_dist.basics.summary_line import number_table, to_error
from nn_uq_dist.distributions import MonotoneSpline, NormalScoreTransform
from nn_uq_dist.inputs import as_input

BOX = nuq.Input.box(np.zeros((2, 3)), half_width=1.0)
LINEAR = nuq.Linearization(jnp.zeros(2000), jnp.ones((2000, 3)), nuq.Input.box(np.zeros(3), 0.3))
OBJECTS = {
    "Input(box, num_inputs=3, batch_shape=(2,)": BOX,
    "Input(transformed independent normal to LogNormal, num_inputs=3": as_input(
        dist.LogNormal(jnp.zeros(3), 1.0).to_event(1)
    ),
    "Linearization(loc=float32[2000], jacobian=float32[2000, 3], input=Input)": LINEAR,
    "LinearImage(": LINEAR.image(0.1),
    "LinearizedMarginal(batch_shape=(2000,)": LINEAR.marginals(),
    "LinearizedJoint(": LINEAR.joint(0.1),
    "MonotoneSpline(knots=float32[50]": MonotoneSpline(jnp.arange(50.0), jnp.arange(50.0)),
    "NormalScoreTransform(": NormalScoreTransform(dist.Normal(jnp.zeros(2), 1.0)),
}


def test_one_line_of_a_few_words_with_shapes_and_types():
    for start, instance in OBJECTS.items():
        line = repr(instance)
        assert line.startswith(start)
        assert len(line) <= 200
        assert not any(part in line for part in ("\n", "Array(", "array("))


def test_traced_and_rebuilt_objects_have_a_line():
    for instance, start in ((LINEAR, "Linearization(loc="), (BOX, "Input(")):
        found = []
        jax.make_jaxpr(lambda same, found=found: found.append(repr(same)) or same.mean)(instance)
        found.append(repr(jax.tree.map(lambda _: object(), instance)))
        assert all(line.startswith(start) for line in found)


def test_tables_of_numbers():
    text = number_table(("", "n"), ["x"] * 23, range(23))
    assert text.endswith("19\n... and 3 more")
    numbers = to_error([1e8, 1e8, 1234.5678, np.pi, np.pi], [0.18, 0.0, 20.0, 100.0, np.nan])
    assert numbers == ["100000000", "1e+08", "1.23e+03", "3.14", "3.14"]
