"""`linearize` and `Linearization`: Jacobians, moments, marginals, transformations, errors."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import uncertainties
from hypothesis import given, settings
from hypothesis import strategies as st
from uncertainties import unumpy

from nn_uq_dist import Input, Linearization, linearize, paired_draws

MEAN = np.array([0.3, -0.7, 1.1])
MEANS = np.stack([MEAN, MEAN / 2]).astype(np.float32)
TRIL = np.array([[0.2, 0.0, 0.0], [0.1, 0.3, 0.0], [-0.1, 0.05, 0.1]])
LAWS = {
    "box": lambda: Input.box(MEAN, [0.1, 0.0, 0.4]),
    "mixed": lambda: Input.box(MEAN, [0.1, 0.2, 0.0]) + Input.normal(0 * MEAN, scale_tril=TRIL),
}


def smooth(xp, x):
    """Five outputs, in the functions of `xp`, which may be NumPy, JAX or unumpy."""
    a, b, c = x
    return [xp.sin(a) * b, a * b * c, xp.exp(c - a), b**2 + 3 * a, xp.log(c + 2) - b]


def wide_net(x):
    return jnp.stack(smooth(jnp, x))


def narrow_net(x):
    return wide_net(x)[:2]


class UNumpy:
    sin, exp, log = unumpy.sin, unumpy.exp, unumpy.log


def assert_same_distribution(actual, expected, rtol=1e-6):
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-7), actual, expected
    )


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(("distribution", "num_outputs"), [("box", 2), ("mixed", 5)])
def test_moments_match_uncertainties(distribution, num_outputs):
    distribution = LAWS[distribution]()
    lin = linearize(lambda x: wide_net(x)[:num_outputs], distribution)
    inputs = uncertainties.correlated_values(MEAN, np.asarray(distribution.covariance))
    outputs = [np.asarray(y).item() for y in smooth(UNumpy, inputs)[:num_outputs]]
    np.testing.assert_allclose(lin.mean, [y.nominal_value for y in outputs], rtol=1e-10)
    np.testing.assert_allclose(np.sqrt(lin.variance), [y.std_dev for y in outputs], rtol=1e-10)
    covariance = np.array(uncertainties.covariance_matrix(outputs))
    np.testing.assert_allclose(lin.covariance, covariance, rtol=1e-10, atol=1e-12)
    correlation = np.array(uncertainties.correlation_matrix(outputs))
    np.testing.assert_allclose(lin.correlation, correlation, rtol=1e-10, atol=1e-10)
    assert (np.diagonal(lin.correlation) == 1).all()


def test_batch_is_the_stack_of_single_distributions():
    means = np.random.default_rng(0).uniform(-1, 1, (2, 3, 3)).astype(np.float32)
    lin = linearize(wide_net, dist.Normal(means, 0.1).to_event(1))
    assert lin.covariance.shape == lin.correlation.shape == (2, 3, 5, 5)
    single = linearize(wide_net, dist.Normal(means[1, 2], 0.1).to_event(1))
    assert_same_distribution(jax.tree.map(lambda leaf: leaf[1, 2], lin), single)


@pytest.mark.slow
def test_tangents_at_points():
    box = Input.box(MEAN.astype(np.float32), 0.4)
    points = jnp.array([[0.7, -0.4, 0.1], [0.0, 1.0, -0.3]])
    lin = linearize(wide_net, box, points)
    assert lin.batch_shape == (2,)
    for k, at in enumerate(points):
        slopes = jax.jacobian(wide_net)(at)
        np.testing.assert_allclose(lin.jacobian[k], slopes, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(lin[k](at), wide_net(at), rtol=1e-5, atol=1e-6)
    slope = jax.grad(lambda a: linearize(wide_net, box, a).loc[1])(points[0])
    # The Hessian times the step from the mean, as the values at the point cancel.
    expected = jax.hessian(lambda x: wide_net(x)[1])(points[0]) @ (box.mean - points[0])
    np.testing.assert_allclose(slope, expected, rtol=1e-4)


def test_transformations_agree_with_eager():
    normal = Input.normal(0 * MEANS, scale_tril=TRIL.astype(np.float32))
    distributions = Input.box(MEANS, 0.1) + normal
    eager = linearize(narrow_net, distributions)
    for transformed in (jax.jit, jax.vmap):
        found = transformed(lambda f: linearize(narrow_net, f))(distributions)
        assert_same_distribution(found, eager)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("net", [narrow_net, wide_net])  # both modes of differentiation
def test_gradient_through_linearize_matches_finite_differences(net):
    def total(beta, shift):
        f = dist.Uniform(MEAN + shift - beta, MEAN + shift + beta).to_event(1)
        return jnp.sum(jnp.log(linearize(net, f).variance))

    gradient = [float(g) for g in jax.jit(jax.grad(total, argnums=(0, 1)))(0.2, 0.1)]
    # log beta^2 in every output.
    num_outputs = net(jnp.asarray(MEAN)).shape[0]
    assert gradient[0] == pytest.approx(2 * num_outputs / 0.2, rel=1e-10)
    h = 1e-5
    difference = float(total(0.2, 0.1 + h) - total(0.2, 0.1 - h)) / (2 * h)
    assert gradient[1] == pytest.approx(difference, rel=1e-7)


@given(seed=st.integers(0, 2**31), rank=st.integers(1, 5))
@settings(max_examples=20, deadline=None)
def test_correlation_is_one_for_dependent_outputs(seed, rank):
    rng = np.random.default_rng(seed)
    jacobian = rng.normal(size=(6, rank)) @ rng.normal(size=(rank, 5))
    jacobian[3] = -2 * jacobian[0]
    lin = Linearization(np.zeros(6), jacobian, Input.box(np.zeros(5), 1))
    correlation = np.asarray(lin.correlation)
    np.testing.assert_allclose(correlation[0, 3], -1, atol=1e-6)
    assert (np.abs(correlation) <= 1).all()
    np.testing.assert_array_equal(correlation, correlation.T)


def test_normal_scale_has_a_finite_gradient_at_zero():
    def scale(t):
        normal = Input.normal(jnp.zeros(2), scale_tril=t * jnp.eye(2))
        lin = Linearization(jnp.zeros(2), jnp.eye(2), Input.box(jnp.zeros(2), 1.0) + normal)
        return jnp.sum(lin.marginals().normal_scale)

    assert (jax.grad(scale)(0.0), jax.grad(scale)(0.5)) == (0, 2)


BOX = Input.box(np.zeros(3), 0.1)
LOC, LIN = np.zeros(2), Linearization(np.zeros(2), np.eye(2, 3), BOX)
SAME = Linearization(LOC, [[1.0, 2.0, 0.0], [2.0, 4.0, 0.0]], BOX)
FOUR = Linearization(np.zeros(4), np.ones((4, 3)), BOX)  # more outputs than inputs
MANY = Linearization(np.zeros((4, 2)), [[1.0, 0, 0], [0, 0, 0]], BOX)
ERRORS = (
    (lambda: linearize(jnp.sqrt, BOX), r"the Jacobian of network .*\(0, 0\) \(y\[0\], f\[0\]\)"),
    (lambda: LIN.marginals()["y[1]"], "output_names.index"),
    (lambda: linearize(wide_net, BOX, np.zeros(2)), "at must have shape .* = 3"),
    (lambda: linearize(wide_net, BOX, np.array([np.nan, 0, 0])), "at must be finite"),
    (lambda: linearize(jnp.sin, BOX, batch_size=0), "batch_size must be a positive integer, got 0"),
    (lambda: Linearization(LOC, np.eye(2, 3), np.zeros(3)), "input must be an nn_uq_dist.Input"),
    (lambda: Linearization(LOC, np.eye(3), BOX), r"\(N_y, N_x\) = \(2, 3\)"),
    (lambda: Linearization(LOC, np.full((2, 3), np.nan), BOX), "jacobian must be finite, got nan"),
    (lambda: LIN(np.zeros(2)), r"x must have shape .* N_x = 3, got shape \(2,\)"),
    (lambda: MANY(np.zeros((5, 3))), r"x \(5,\), batch_shape \(4,\)"),
    (lambda: LIN.marginals(np.nan), "noise_scale must be finite"),
    (MANY.marginals, r"output y\[1\] of batch entry \(0,\) and 3 more"),
    (lambda: BOX.sample(0), "key must be a JAX random key, got int 0"),
    (lambda: LIN.sample(jax.random.key(0), 3), "sample_shape must be a tuple, got int 3"),
    (lambda: LIN.marginals(noise_covariance=[[1.0, 0.5], [0.0, 1.0]]), "must be symmetric"),
    (lambda: LIN.joint(noise_covariance=[[1.0, 2.0], [2.0, 1.0]]), "must be .*semidefinite"),
    (lambda: LIN.gaussian_copula(noise_covariance=np.eye(3)), r"shape \(\.\.\., 2, 2\)"),
    (lambda: LIN.gaussian_copula(min_eigenvalue=1.0), "min_eigenvalue must be in"),
    (lambda: LIN.gaussian_copula(min_eigenvalue=[0.1, 0.2]), "min_eigenvalue must be a scalar"),
    (lambda: SAME.gaussian_copula(min_eigenvalue=None), "positive definite"),
    (lambda: LIN.input_posterior(np.zeros(3), 0.1), "N_y = 2"),
    (lambda: LIN.input_posterior([np.nan, 0.0], 0.1), "y must be finite"),
    (lambda: FOUR.input_posterior(np.zeros(4)), "no input reproduces them"),
)


def test_errors():
    for call, message in ERRORS:
        with pytest.raises((TypeError, ValueError), match=message):
            call()


def test_outputs_by_name():
    def network(x):
        return {"load": x.sum(), "level": x**2, "flow": x[0] * x[1]}

    f = Input.box([1.0, 2.0], half_width=0.1)
    lin = linearize(network, f)
    some = lin.select(["load", "flow"])
    assert some.output_names == ["load", "flow"]
    np.testing.assert_allclose(some.mean, [3.0, 2.0], rtol=1e-6)
    places = [lin.output_names.index(name) for name in some.output_names]
    np.testing.assert_allclose(some.covariance, lin.covariance[np.ix_(places, places)])
    assert lin.select("level[1]").mean == pytest.approx(4.0)
    pairs = paired_draws(network, lin, jax.random.key(0), 200, progress=False)
    corrected = lin.corrected(pairs)
    chosen = corrected.select(some.output_names)
    assert chosen.output_names == ["load", "flow"]
    np.testing.assert_allclose(chosen.variance, corrected.variance[jnp.array(places)], rtol=1e-6)
    with pytest.raises((TypeError, ValueError), match=r"outputs must .*'speed'"):
        lin.select("speed")
