"""Many outputs of few inputs: the density and the gradients of a factorization for each point."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nn_uq_dist.box_gaussian import log_evidence
from tests.array_sizes import largest_array
from tests.compiling import jit


def problem(num_outputs=12, count=4, rank=4):
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((num_outputs, rank)) @ rng.standard_normal((rank, count))
    noise = rng.standard_normal((num_outputs, num_outputs)) / 5
    covariance = noise @ noise.T + 0.1 * np.eye(num_outputs)
    uniform = rng.uniform(-1, 1, (5, count))
    normal = rng.multivariate_normal(np.zeros(num_outputs), covariance, 5)
    return tuple(map(jnp.asarray, (uniform @ weights.T + normal, weights, covariance)))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("num_outputs", "rank"), [(12, 4), (12, 2), (3, 3)])
def test_values_and_gradients_are_those_of_each_point(num_outputs, rank):
    arguments = problem(num_outputs, rank=rank)

    def alone(r, w, c):
        points = len(r)
        own = (jnp.broadcast_to(part, (points, *part.shape)) for part in (w, c))
        return log_evidence(r, *own)

    def total(function):
        return lambda r, w, c: jnp.sum(jnp.sin(function(r, w, 0.5 * (c + c.T))))

    np.testing.assert_allclose(jit(log_evidence)(*arguments), jit(alone)(*arguments), rtol=1e-9)
    found = jit(jax.grad(total(log_evidence), (0, 1, 2)))(*arguments)
    expected = jit(jax.grad(total(alone), (0, 1, 2)))(*arguments)
    for name, a, b in zip(("deviation", "weights", "covariance"), found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7, err_msg=name)


def test_second_derivatives_are_refused():
    deviation, weights, covariance = problem()
    with pytest.raises(NotImplementedError, match="second derivatives of the joint density"):
        jax.hessian(lambda r: log_evidence(r, weights, covariance))(deviation[0])


def test_no_matrix_of_the_outputs_for_each_point():
    deviation, weights = jnp.zeros((100, 2000)), jnp.ones((2000, 50))
    largest = largest_array(log_evidence, deviation, weights, jnp.eye(2000))
    assert largest <= 2000 * 2000
