"""The example of errors-in-variables regression runs, at a small size."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.infer.util import log_density

from nn_uq_dist import Input, linearize

pytestmark = pytest.mark.viz


@pytest.mark.slow
def test_errors_in_variables_runs(example, run):
    arguments = "--only narrow --num-observations 4 --num-warmup 25 --num-draws 25 --num-chains 1"
    arguments += " --num-outputs 1 --num-hidden 8 --models marginalized latent"
    lines = run(arguments, "posteriors.png")
    start = next(i for i, line in enumerate(lines) if line.startswith("marginalized "))
    rows = [line.split() for line in lines[start : start + 4]]
    assert [row[-9] for row in rows] == ["beta", "sigma"] * 2
    numbers = np.array([row[-8:] for row in rows], dtype=float)
    assert np.isfinite(numbers).all()
    assert (numbers[:, 0] > 0).all()


UNIT = dist.Uniform(-1.0, 1.0)
ROWS = jnp.array([[1.0, 2.0], [1.0, -1.0], [0.5, 1.5]])


def likelihoods(latent, data, values, deviations):
    """Those of the latent model at deviations of the inputs."""

    def likelihood(deviation):
        whole, _ = log_density(latent, data, {}, {**values, "deviation": deviation})
        return jnp.exp(whole - UNIT.log_prob(deviation).sum())

    return jax.vmap(likelihood)(deviations)


def test_marginalized_likelihood_is_that_of_the_latent_model(example):
    """A linear network of two inputs: integrate the latent model's likelihood by Monte Carlo."""
    x, y = jnp.array([[0.5, -0.2]]), jnp.array([[0.4, 0.1, 0.5]])
    medians, values = jnp.array([0.3, 0.2]), {"beta": jnp.array(0.4), "sigma": jnp.array(0.25)}
    data = (medians, x, y, x @ ROWS.T, ROWS[None])
    density, _ = log_density(example.marginalized_model(), data, {}, values)

    latent = example.latent_model(lambda f: f @ ROWS.T)
    deviations = UNIT.sample(jax.random.key(0), (20_000, 1, 2))
    terms = np.asarray(likelihoods(latent, (medians, x, y), values, deviations), float)
    # Fails once in 10^6 keys.
    assert abs(np.exp(density) - terms.mean()) < 5 * terms.std() / len(terms) ** 0.5


@pytest.mark.slow
def test_relinearized_likelihood_where_the_network_bends(example):
    """Two inputs, three outputs: quadrature of the latent model's likelihood is the reference."""

    def net(f):
        return jnp.exp(f @ ROWS.T / 2)

    x, y = jnp.array([[0.2, -0.3]]), net(jnp.array([[0.8, 0.4]]))
    medians, values = jnp.array([0.7, 0.2]), {"beta": jnp.array(1.0), "sigma": jnp.array(0.1)}
    nodes = UNIT.icdf((jnp.arange(400) + 0.5) / 400)
    deviations = jnp.stack(jnp.meshgrid(nodes, nodes), axis=-1).reshape(-1, 1, 2)
    terms = likelihoods(example.latent_model(net), (medians, x, y), values, deviations)
    reference = float(jnp.log(terms.mean()))
    linear = linearize(net, Input.box(x, half_width=1.0))
    fixed = (medians, x, y, linear.loc, linear.jacobian)
    tangent, _ = log_density(example.marginalized_model(), fixed, {}, values)
    assert tangent < reference - 0.5

    model = example.relinearized_model(net)
    data = (*fixed, example.standard_normal(128, 2))
    with_gradient = jax.jit(jax.value_and_grad(lambda at: log_density(model, data, {}, at)[0]))
    density, gradient = with_gradient(values)
    assert density == pytest.approx(reference, abs=0.02)
    # The fit moves with both, and the gradient knows.
    for name, value in values.items():
        moved = ({**values, name: value + move} for move in (0.01, -0.01))
        above, below = (with_gradient(at)[0] for at in moved)
        assert gradient[name] == pytest.approx(float(above - below) / 0.02, rel=0.05)
