"""The example of an inverse problem runs, at a small size, and its parts are correct."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytestmark = pytest.mark.viz


def test_input_function_is_the_nominal_curve_and_a_line(example):
    found, x = example.input_function(jnp.array([0.5, 2.0])), np.asarray(example.NODES)
    np.testing.assert_allclose(found, np.exp(np.sin(5 * x)) + 0.5 + 2 * x, rtol=0, atol=2e-6)


def test_mean_jacobian_is_that_of_the_box(example):
    """One kinked output: its slope is 1 above the kink and 0.1 below, which is 30% of the box."""
    kink = example.input_function(jnp.array([0.1, -0.2]))[7] - 0.4 * 0.3

    def net(f):
        above = f[7] - kink
        return jnp.where(above > 0, above, 0.1 * above) * jnp.ones(31)

    theta, y = jnp.array([0.1, -0.2]), jnp.zeros((1, len(example.MEASURED)))
    experiment = example.Experiment(net, 0.3, 0.1, theta, y)
    found = example.mean_jacobian(jax.random.key(0), experiment, theta, 1000)
    expected = 0.7 + 0.3 * 0.1
    # Standard error 0.9 sqrt(0.3 0.7 / 1000) = 0.013: fails once in 10^6 keys.
    np.testing.assert_allclose(found[:, 7], expected, rtol=0, atol=0.065)
    assert float(jnp.abs(jnp.delete(found, 7, axis=1)).max()) == 0.0


@pytest.mark.slow
@pytest.mark.usefixtures("fully_optimized")
def test_inverse_runs(run):
    arguments = "--network nonlinear_1 --num-runs 3 --num-warmup 100 --num-draws 50 --num-chains 2"
    figures = ("posterior.png", "condition.png", "predictive.png")
    lines = run(arguments, *figures, longest=140)
    table = np.array([line.split()[-9:] for line in lines[1:5]], dtype=float)
    truth, mean, sd = table[:, 0], table[:, 1], table[:, 2]
    assert (sd[:2] > sd[2:]).all()  # the model that ignores the input error is surer of itself
    assert (np.abs(truth - mean)[:2] < 5 * sd[:2]).all()
    assert (table[:, 7] == 0).all()  # divergences
    words = next(line for line in lines if line.startswith("condition:")).split()
    assert float(words[words.index("most") + 1]) < 0.3  # sd between copula and network
