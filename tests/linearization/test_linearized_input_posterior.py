"""Inputs given the outputs of a linear model: against closed forms and weighted draws."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats

import nn_uq_dist as nuq
from tests.benchmarks._posterior_reference import Observed, by_weighted_draws

KEY, UNIT = jax.random.key(0), np.eye(3, dtype=np.float32)


def observed(lin, noise, seed=1):
    """Outputs of one input, with noise."""
    key = jax.random.key(seed)
    return lin.sample(key) + noise * jax.random.normal(key, (lin.num_outputs,))


def conditional(loc, tril, jacobian, noise, deviation):
    """Mean and covariance of normal inputs given outputs, in 40 digits."""
    with mpmath.workdps(40):
        precision = mpmath.matrix(tril @ tril.T) ** -1
        precision += mpmath.matrix(jacobian.T) * mpmath.matrix(jacobian) / noise**2
        covariance = precision**-1
        shift = covariance * mpmath.matrix(jacobian.T) * mpmath.matrix(deviation) / noise**2
        return loc + np.array(shift, float).ravel(), np.array(covariance.tolist(), float)


@pytest.mark.parametrize(("outputs", "inputs", "noise"), [(5, 3, 1e-4), (1, 12, 0.3)])
def test_gaussian_inputs_against_the_closed_form(outputs, inputs, noise, x64):
    rng = np.random.default_rng(outputs)
    jacobian, loc = rng.normal(size=(outputs, inputs)), rng.normal(size=inputs)
    tril = np.tril(rng.normal(size=(inputs, inputs)), -1) + 2 * np.eye(inputs)
    lin = nuq.Linearization(np.ones(outputs), jacobian, nuq.Input.normal(loc, scale_tril=tril))
    y = observed(lin, noise)
    found = lin.input_posterior(y, noise_scale=noise)
    mean, covariance = conditional(loc, tril, jacobian, noise, np.asarray(y) - 1)
    sd = np.sqrt(np.diag(covariance))
    np.testing.assert_allclose((found.mean - mean) / sd, np.zeros(inputs), atol=1e-6)
    np.testing.assert_allclose(found.variance, sd**2, rtol=1e-6)
    scaled = (found.covariance_matrix - covariance) / np.outer(sd, sd)
    np.testing.assert_allclose(scaled, np.zeros_like(scaled), atol=1e-6)
    spread = jacobian @ tril
    distribution = scipy.stats.multivariate_normal(
        np.ones(outputs), spread @ spread.T + noise**2 * np.eye(outputs)
    )
    np.testing.assert_allclose(found.log_evidence, distribution.logpdf(y), rtol=1e-6)
    assert f"{sd[-1]:.3g}" in str(found)
    draws = np.asarray(found.sample(KEY, (4000,)))
    np.testing.assert_allclose((draws.mean(axis=0) - mean) / sd, np.zeros(inputs), atol=0.07)
    np.testing.assert_allclose(draws.std(axis=0) / sd, np.ones(inputs), atol=0.06)


def test_small_noise_in_single_precision():
    lin = nuq.Linearization([0.0], [[1.0, 1.0]], nuq.Input.normal([0.0, 0.0], [1.0, 1.0]))
    found = lin.input_posterior([1.0], noise_scale=1e-5)
    jax.jit(lambda: found.mean)()  # nothing of a trace is kept
    # Along (1, 1) the variance is 1e-10 / 2 of the sum's; a difference of ones would have no digit.
    assert abs(jnp.ones(2) @ found.covariance_matrix @ jnp.ones(2)) < 1e-6
    np.testing.assert_allclose(found.mean, [0.5, 0.5], rtol=1e-5)
    np.testing.assert_allclose(found.variance, [0.5, 0.5], rtol=1e-5)


LAWS = {
    "box": nuq.Input.box(jnp.zeros(3), half_width=jnp.array([1.0, 2.0, 0.5])),
    "triangular": nuq.Input.join(
        nuq.Input.triangular([-1.0, 0.0], [1.0, 3.0]), nuq.Input.normal([0.0], [1.0])
    ),
    "correlated": nuq.Input.box(jnp.zeros(3), half_width=[1.0, 1.0, 0.5])
    + nuq.Input.normal(jnp.zeros(3), factor=[[0.5, 0.1], [0.5, 0.0], [0.0, 0.6]]),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "outputs", "precision"),
    [
        ("box", 5, "float32"),
        ("triangular", 3, "float32"),
        ("correlated", 5, "float64"),
    ],
    indirect=["precision"],
)
def test_other_inputs_against_weighted_draws(name, outputs, precision):
    distribution = LAWS[name]
    jacobian = np.random.default_rng(2).normal(size=(outputs, 3))
    lin = nuq.Linearization(jnp.ones(outputs), jacobian, distribution)
    noise = 0.25 * np.sqrt(np.asarray(lin.variance).mean())
    y = observed(lin, noise)
    columns = (
        part if part is not None else np.zeros((3, 0)) for part in distribution.columns(UNIT)
    )
    uniform, normal = (np.asarray(part, float) for part in columns)
    uniform = uniform[:, uniform.any(axis=0)]
    scale, deviation = np.full(outputs, noise), np.asarray(y - lin.loc, float)
    exact = by_weighted_draws(Observed(uniform, normal, jacobian, deviation, scale, False))
    mean, sd = exact.mean + np.asarray(distribution.mean), exact.sd
    found = lin.input_posterior(y, noise_scale=noise)
    draws = np.asarray(found.sample(KEY, (8_000,)), float)
    unit = np.where(sd > 1e-6, sd, 1.0)
    for of_mean, of_sd, error in (
        (found.mean, jnp.sqrt(found.variance), 0.045),
        (draws.mean(axis=0), draws.std(axis=0), 0.06),
    ):
        np.testing.assert_allclose((of_mean - mean) / unit, np.zeros(3), atol=error)
        np.testing.assert_allclose(of_sd / unit, sd / unit, atol=0.035)
    # Of expectation propagation, up to .06 here.
    np.testing.assert_allclose(found.log_evidence, exact.log_evidence, atol=0.08)
    np.testing.assert_allclose(lin.joint(noise).log_prob(y), found.log_evidence, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("distribution", "box", "outputs", "noise"),
    [
        # Two uniforms for each input.
        (nuq.Input.triangular([-1.0, -2.0, -0.5], [1.0, 2.0, 0.5]), [1.0, 2.0, 0.5], 3, 0.1),
        # Densities that end within a fiftieth of their standard deviations.
        (nuq.Input.box(jnp.zeros(2), half_width=[1.0, 0.7]), [1.0, 0.7], 1, 0.01),
    ],
    ids=["triangular", "sharp ends"],
)
def test_moments_are_those_of_the_densities_of_the_inputs(distribution, box, outputs, noise, x64):
    size = len(box)
    jacobian = np.random.default_rng(4).normal(size=(outputs, size))
    lin = nuq.Linearization(np.zeros(outputs), jacobian, distribution)
    y = observed(lin, noise)
    scale = np.full(outputs, noise)
    is_triangular = distribution.num_standard_variables[0] > size
    normal = np.zeros((size, 0))
    exact = by_weighted_draws(
        Observed(np.diag(box), normal, jacobian, np.asarray(y), scale, is_triangular)
    )
    found = lin.input_posterior(y, noise_scale=noise)
    # Of triangular inputs .044 and 1.1% at worst (108 observations).
    of_mean, of_sd = (0.045, 0.012) if is_triangular else (0.01, 0.01)
    np.testing.assert_allclose((found.mean - exact.mean) / exact.sd, np.zeros(size), atol=of_mean)
    np.testing.assert_allclose(jnp.sqrt(found.variance) / exact.sd, np.ones(size), atol=of_sd)


@pytest.mark.slow
def test_batches_of_outputs_and_of_inputs():
    means = jnp.arange(12.0).reshape(4, 3)
    distribution = nuq.Input.box(means, 1.0) + nuq.Input.normal(0 * means, 0.1)
    lin = nuq.Linearization(jnp.zeros((4, 2)), jnp.ones((4, 2, 3)) + jnp.eye(2, 3), distribution)
    y = lin.sample(KEY, (5,))
    found = lin.input_posterior(y, noise_scale=0.2)
    assert found.log_evidence.shape == (5, 4)
    assert found.sample(KEY, (6,)).shape == (6, 5, 4, 3)
    alone = lin[2].input_posterior(y[1, 2], noise_scale=0.2)
    np.testing.assert_allclose(found.mean[1, 2], alone.mean, atol=1e-3)
    np.testing.assert_allclose(found.covariance_matrix[1, 2], alone.covariance_matrix, atol=1e-3)


@pytest.mark.slow
def test_does_not_depend_on_units_of_inputs_and_outputs():
    size = 1e15

    def found(size):
        zeros = jnp.zeros(2)
        normal = nuq.Input.normal(zeros, [0.0, 0.3 * size])
        distribution = nuq.Input.box(zeros, [size, 0.5 * size]) + normal
        jacobian = jnp.array([[1.0, 0.5], [0.2, 1.0]]) / size
        lin = nuq.Linearization(jnp.zeros(2), jacobian, distribution)
        return lin.input_posterior([0.4, 0.3], noise_scale=0.2)

    np.testing.assert_allclose(found(size).mean / size, found(1.0).mean, rtol=1e-3)
    ratio = jnp.sqrt(found(size).variance) / size / jnp.sqrt(found(1.0).variance)
    np.testing.assert_allclose(ratio, [1.0, 1.0], rtol=1e-3)


def test_under_jit_and_with_correlated_noise(x64):
    lin = nuq.Linearization(np.zeros(2), np.eye(2), nuq.Input.normal(np.zeros(2), np.ones(2)))
    noise = np.array([[0.5, 0.3], [0.3, 0.4]])
    y = jnp.array([1.0, -1.0])
    mean = jax.jit(lambda y: lin.input_posterior(y, noise_covariance=noise).mean)(y)
    np.testing.assert_allclose(mean, np.linalg.solve(np.eye(2) + noise, y), rtol=1e-9)


@pytest.mark.slow
def test_structured_inputs_come_back_as_they_are():
    f = {"scale": dist.LogNormal(0.0, 0.3), "image": nuq.Input.box(jnp.zeros(4), half_width=1.0)}

    def network(x):
        return x["scale"] * x["image"][:2]

    found = nuq.linearize(network, f).input_posterior(jnp.array([0.5, 0.2]), noise_scale=0.1)
    draws = found.sample(KEY, (7,))
    assert draws["image"].shape == (7, 4)
    # No moments of the log-normal input; those of its normal score have a name of their own.
    for name in ("mean", "covariance_matrix"):
        with pytest.raises(TypeError, match="mapped linearly"):
            getattr(found, name)
    scores = found.base.sample(KEY, (7,))
    np.testing.assert_allclose(jnp.exp(0.3 * scores[:, -1]), draws["scale"], rtol=1e-5)


def test_linear_maps_give_moments_in_the_units_of_the_network():
    affine = dist.transforms.AffineTransform(3.0, 100.0)
    f = {
        "image": dist.Normal(jnp.arange(4.0).reshape(2, 2), 0.5).to_event(2),
        "known": jnp.arange(3),
        "large": dist.TransformedDistribution(dist.Normal(0.1, 1.0), affine),
    }

    def network(x):
        return x["image"].sum(axis=0) + 0.01 * x["large"] * jnp.array([1.0, x["known"][2]])

    scale = jnp.array([0.5, 0.5, 0.5, 0.5, 100.0])
    flat = nuq.Input.normal(jnp.array([0.0, 1.0, 2.0, 3.0, 13.0]), scale)
    alike = nuq.linearize(
        lambda x: network({"image": x[:4].reshape(2, 2), "known": jnp.arange(3), "large": x[4]}),
        flat,
    )
    y = jnp.array([[1.0, 2.0], [0.0, 5.0], [3.0, 3.0]])
    found = nuq.linearize(network, f).input_posterior(y, noise_scale=0.2)
    expected = alike.input_posterior(y, noise_scale=0.2)
    for name in ("mean", "variance", "standard_deviation"):
        values, numbers = getattr(found, name), getattr(expected, name)
        np.testing.assert_allclose(values["image"].reshape(3, 4), numbers[:, :4], rtol=1e-4)
        np.testing.assert_allclose(values["large"], numbers[:, 4], rtol=1e-4)
        known = jnp.arange(3) if name == "mean" else jnp.zeros(3)
        np.testing.assert_array_equal(values["known"], jnp.broadcast_to(known, (3, 3)))
    difference = found.covariance_matrix - expected.covariance_matrix
    assert np.abs(difference / jnp.outer(scale, scale)).max() <= 1e-5
    assert found.sample(KEY, (7,))["image"].shape == (7, 3, 2, 2)


def test_corrected_models_have_it_too():
    def network(x):
        return jnp.array([x[0] + 0.3 * x[1] ** 2, x[1]])

    lin = nuq.linearize(network, nuq.Input.box(jnp.zeros(2), half_width=1.0))
    corrected = lin.corrected(nuq.paired_draws(network, lin, KEY, 400, progress=False))
    found = corrected.input_posterior(jnp.array([0.1, 0.0]), noise_scale=0.05)
    # The mean of .3 x^2 is .1, and its standard deviation .09 is noise.
    assert abs(found.mean[0]) < 0.03
    assert 0.08 < jnp.sqrt(found.variance[0]) < 0.13


def on_the_line(jacobian, values, size):
    """Mean and variance of two uniform inputs and a normal one that two outputs leave a line of."""
    direction = np.linalg.svd(jacobian)[2][2]
    points = values + np.linspace(-60, 60, 1_200_001)[:, None] * direction
    mass = np.exp(-0.5 * points[:, 2] ** 2) * (np.abs(points[:, :2]) <= size).all(axis=1)
    mean = mass @ points / mass.sum()
    return mean, mass @ (points - mean) ** 2 / mass.sum()


def test_outputs_without_noise_that_leave_a_line(x64):
    f = nuq.Input.box(np.zeros(3), [1.0, 1.0, 0.0]) + nuq.Input.normal(np.zeros(3), [0.0, 0.0, 1.0])
    for seed in range(4):
        rng = np.random.default_rng(seed)
        jacobian, inputs = rng.normal(size=(2, 3)), rng.uniform(-0.5, 0.5, 3)
        found = nuq.Linearization(np.zeros(2), jacobian, f).input_posterior(jacobian @ inputs)
        draws = found.sample(KEY, (50,))
        np.testing.assert_allclose(draws @ jacobian.T, [jacobian @ inputs] * 50, atol=2e-2)
        mean, variance = on_the_line(jacobian, inputs, 1.0)
        # Expectation propagation is that far off in 60 such problems: .028 deviations, 4.3%.
        assert (np.abs(found.mean - mean) < 0.03 * variance**0.5).all()
        np.testing.assert_allclose(found.variance, variance, rtol=0.05)


def test_outputs_that_no_input_gives():
    lin = nuq.Linearization(
        np.zeros(2), np.array([[1.0, 1.0], [1.0, -1.0]]), nuq.Input.box(np.zeros(2), 1.0)
    )
    found = lin.input_posterior(np.array([[1.5, 1.5], [0.5, 0.5]]))
    with pytest.warns(RuntimeWarning, match="NaN for 1 of 2 observations: no input") as warned:
        mean = found.mean
    assert warned[0].filename == __file__
    np.testing.assert_allclose(mean, [[np.nan, np.nan], [0.5, 0.0]], atol=1e-6)


def test_labels_in_another_order_are_refused():
    pandas, xarray = pytest.importorskip("pandas"), pytest.importorskip("xarray")
    f = nuq.Input.box(np.zeros(2), 1.0)
    lin = nuq.linearize(lambda x: {"a": x[0], "b": 3 * x[1]}, f)
    y, given = {"a": 0.1, "b": 0.5}, {"noise_scale": 0.1}
    expected = lin.input_posterior(y, **given).mean
    right = [
        pandas.Series(y),
        pandas.DataFrame([y]),
        xarray.DataArray([0.1, 0.5], {"k": ["a", "b"]}, "k"),
    ]
    for labelled in right:
        found = np.reshape(lin.input_posterior(labelled, **given).mean, 2)
        np.testing.assert_allclose(found, expected)
    wrong = [part[["b", "a"]] for part in right[:2]] + [right[2][::-1]]
    for labelled in wrong:
        with pytest.raises(ValueError, match="the outputs in the order a, b"):
            lin.input_posterior(labelled, **given)
        with pytest.raises(ValueError, match="the outputs in the order a, b"):
            lin.marginals(noise_scale=labelled)
