"""Posteriors of a network's inputs against quadrature and closed forms, and what is refused."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.stats import chi2, multivariate_normal, norm

import nn_uq_dist as nuq
from tests.counting import CountedNetwork

KEY = jax.random.key(0)
LINE = nuq.Input.normal(jnp.zeros(1), 1.0)
WEIGHTS = np.random.default_rng(3).standard_normal((3, 2))


def found(network, f, y, key=KEY, **kwargs):
    return nuq.input_posterior(network, f, y, key=key, **({"progress": False} | kwargs))


def bent(x):
    return jnp.tanh(1.5 * jnp.asarray(WEIGHTS, x.dtype) @ x)


def on_grid(network, y, covariance, edges, log_prior, points=400):
    """Mean, covariance, log evidence of two inputs, by a sum over the midpoints of a grid."""
    axes = [
        low + (np.arange(points) + 0.5) * (high - low) / points
        for low, high in zip(*edges, strict=True)
    ]
    x = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    outputs = np.asarray(jax.vmap(network)(jnp.asarray(x)), np.float64)
    logs = multivariate_normal(np.zeros(len(y)), covariance).logpdf(np.asarray(y) - outputs)
    weights = np.exp(logs + log_prior(x)) * np.prod((np.subtract(*edges[::-1])) / points)
    evidence = weights.sum()
    mean = weights @ x / evidence
    return mean, (x - mean).T @ ((x - mean) * weights[:, None]) / evidence, math.log(evidence)


def assert_right(result, mean, covariance, log_evidence):
    """Within 4.5 standard errors, with one per cent for the grid."""
    assert np.all(result.converged)
    sd = np.sqrt(np.diagonal(covariance, axis1=-2, axis2=-1))
    error = 4.5 / np.sqrt(result.effective_draws)[..., None]
    assert np.all(np.abs(result.mean - mean) < error * sd)
    scale = sd[..., None] * sd[..., None, :]
    difference = np.abs(result.covariance_matrix - covariance) / scale
    assert np.all(difference < 2 * error[..., None] + 0.01)
    assert np.all(np.abs(result.log_evidence - log_evidence) < error[..., 0])
    drawn = result.draws.mean(axis=0)
    assert np.all(np.abs(drawn - result.mean) < error * sd)


def test_linear_network_of_normal_inputs(bars):
    rng = np.random.default_rng(0)
    matrix, y = rng.standard_normal((4, 3)), rng.standard_normal((5, 4))
    noise = 0.2 * np.eye(4) + 0.1
    f = nuq.Input.normal(jnp.array([1.0, 0.0, -1.0]), jnp.array([1.0, 0.5, 2.0]))
    result = found(
        lambda x: jnp.asarray(matrix, x.dtype) @ x, f, y, noise_covariance=noise, progress=True
    )
    assert [(bar.n, bar.total) for bar in bars] == [(5, 5)]
    prior = np.diag([1.0, 0.25, 4.0])
    total = matrix @ prior @ matrix.T + noise
    gain = prior @ matrix.T @ np.linalg.inv(total)
    center = matrix @ [1.0, 0.0, -1.0]
    mean = [1.0, 0.0, -1.0] + (y - center) @ gain.T
    covariance = np.broadcast_to(prior - gain @ matrix @ prior, (5, 3, 3))
    assert_right(result, mean, covariance, multivariate_normal(center, total).logpdf(y))
    assert result.batch_shape == (5,)
    assert np.all(result.num_runs < 20_000)


def test_mixed_inputs_and_shared_noise_against_a_grid():
    f = nuq.Input.box(jnp.zeros(2), jnp.array([1.0, 0.0])) + nuq.Input.normal(
        jnp.zeros(2), jnp.array([0.0, 1.0])
    )
    noise = np.array([[0.04, 0.03, 0.0], [0.03, 0.04, 0.0], [0.0, 0.0, 0.09]])
    y = np.array([0.4, 0.1, -0.3])
    edges = np.array([[-1.0, -6.0], [1.0, 6.0]])

    def log_prior(x):
        return norm.logpdf(x[:, 1]) - math.log(2)

    expected = on_grid(bent, y, noise, edges, log_prior, points=800)
    assert_right(found(bent, f, y, noise_covariance=noise), *expected)


@pytest.mark.slow
@pytest.mark.parametrize("d", [4, 5])
def test_many_modes_are_found_or_told_of(d):
    """A cubic of each input, with three roots: 81 and 243 modes, products of sums over one input.

    With 128 starts, whatever they found, evidences were .03 to .25 too small.
    """

    def cubic(x):
        return x**3 - 2 * x

    x = np.linspace(-6, 6, 200_001)
    weights = np.exp(-0.5 * ((0.1 - cubic(x)) / 0.05) ** 2 - 0.5 * x**2) / (2 * math.pi * 0.05)
    log_evidence = d * math.log(weights.sum() * (x[1] - x[0]))
    f = nuq.Input.normal(jnp.zeros(d), 1.0)
    result = found(cubic, f, np.full(d, 0.1), noise_scale=0.05)
    off = abs(result.log_evidence - log_evidence) * math.sqrt(result.effective_draws)
    assert not result.converged or off < 4.5
    assert result.converged or d == 5


@pytest.mark.slow
def test_eight_peaks_and_their_spread():
    """Three pairs of inputs, each behind an output of its own: products of sums over one input.

    Mixtures fitted to their own draws are 20% short of the evidence and 5% of these standard
    deviations, with weights that look good; those fitted to the other half 3% and 2%.
    """

    def bend(x):
        pairs = x.reshape(3, 2)
        return pairs[:, 0] + pairs[:, 1] ** 2 / 2

    f = nuq.Input.normal(jnp.zeros(6), 1.0)
    keys = jax.random.split(jax.random.key(0))
    noise = 0.1 * jax.random.normal(keys[1], (12, 3))
    y = np.asarray(jax.vmap(bend)(f.sample(keys[0], (12,))) + noise, np.float64)
    second = np.linspace(-7, 7, 20_001)
    logs = -0.5 * (second**2 + (y[..., None] - second**2 / 2) ** 2 / 1.01)
    weights = np.exp(logs) / (2 * math.pi * math.sqrt(1.01))
    evidence = np.trapezoid(weights, second)
    sd = np.sqrt(np.trapezoid(weights * second**2, second) / evidence)
    result = found(bend, f, y, noise_scale=0.1)
    assert result.converged.sum() >= 11
    assert abs(np.mean(result.log_evidence - np.log(evidence).sum(axis=1))) < 0.08
    assert abs(np.mean(np.sqrt(result.variance[:, 1::2]) / sd) - 1) < 0.035


def test_structures_transforms_and_known_values():
    f = {"rate": dist.LogNormal(0.5, 0.4), "time": dist.Uniform(1.0, 2.0), "known": 3.0}
    y = np.array([[4.0], [9.0]])
    result = found(lambda x: {"all": x["rate"] * x["time"] * x["known"]}, f, y, noise_scale=0.5)
    assert result.draws["rate"].shape == (4000, 2)
    assert result.sample(KEY, (7, 3))["time"].shape == (7, 3, 2)
    for values in (result.draws, result.mean, result.sample(KEY)):
        assert np.all(values["known"] == 3.0)
    assert np.all(result.variance["known"] == 0)
    assert result.draws["time"].min() >= 1
    assert result.draws["time"].max() <= 2
    # The rate itself and the time, by the grid.
    for k in range(2):
        mean, covariance, log_evidence = on_grid(
            lambda x: 3 * x[:1] * x[1:],
            y[k],
            [[0.25]],
            np.array([[0.02, 1.0], [8.0, 2.0]]),
            lambda x: dist.LogNormal(0.5, 0.4).log_prob(jnp.asarray(x[:, 0])).__array__(),
        )
        error = 4.5 / math.sqrt(result.effective_draws[k])
        assert abs(result.log_evidence[k] - log_evidence) < error
        sd = np.sqrt(np.diagonal(covariance))
        scaled = (result.covariance_matrix[k] - covariance) / np.outer(sd, sd)
        np.testing.assert_allclose(scaled, np.zeros((2, 2)), atol=2 * error + 0.01)
        for j, name in enumerate(("rate", "time")):
            assert abs(result.mean[name][k] - mean[j]) < error * sd[j]
            assert abs(result.draws[name][:, k].mean() - mean[j]) < 2 * error * sd[j]
            assert result.variance[name][k] == result.covariance_matrix[k, j, j]
    tree = result.to_datatree()
    assert list(tree["posterior"]["input"].values) == result.names == ["rate", "time"]
    assert tree["posterior"]["x"].dims == ("chain", "draw", "point", "input")
    rates = tree["posterior"]["x"].sel(input="rate", chain=0)
    np.testing.assert_array_equal(rates, result.draws["rate"])
    np.testing.assert_array_equal(tree["convergence"]["converged"], result.converged)


def test_observations_and_noise_by_the_names_of_outputs():
    f = nuq.Input.normal(jnp.zeros(2), 1.0)
    y, scale = {"b": np.array([1.0, -1.0]), "a": np.zeros((2, 1))}, {"a": 0.1, "b": 0.3}
    given = {"num_runs": 20_000}

    def network(x):
        return {"b": x.sum(), "a": x[:1]}

    result = found(network, f, y, noise_scale=scale, **given)
    rows = found(network, f, [[0.0, 1.0], [0.0, -1.0]], noise_scale=np.array([0.1, 0.3]), **given)
    np.testing.assert_array_equal(result.draws, rows.draws)
    # Linear: the outputs are normal, and the squared distance from their mean is known.
    jacobian = np.array([[1.0, 0.0], [1.0, 1.0]])
    covariance = jacobian @ jacobian.T + np.diag([0.01, 0.09])
    square = np.array([0, 1]) @ np.linalg.solve(covariance, [0, 1])
    np.testing.assert_allclose(result.p_value, chi2(2).sf(square), rtol=0.15)
    lin = nuq.linearize(network, f)
    tangent, by_rows = (
        lin.input_posterior(seen, noise_scale=noise)
        for seen, noise in ((y, scale), ([[0.0, 1.0], [0.0, -1.0]], jnp.array([0.1, 0.3])))
    )
    np.testing.assert_allclose(tangent.mean, by_rows.mean, rtol=1e-5)
    with pytest.raises(TypeError, match="y must have the structure of the outputs, a, b, got b; "):
        found(network, f, {"b": 1.0}, noise_scale=0.1)


@pytest.mark.slow
def test_intervals_hold():
    # 60 data sets of two inputs: the share has the standard error .03 (one input's is .039).
    f = nuq.Input.box(jnp.zeros(2), half_width=2.0)
    keys = jax.random.split(KEY)
    x = f.sample(keys[0], (60,))
    y = jax.vmap(bent)(x) + 0.05 * jax.random.normal(keys[1], (60, 3))
    result = found(bent, f, y, noise_scale=0.05)
    assert result.converged.mean() > 0.9
    low, high = np.quantile(result.draws, [0.05, 0.95], axis=0)
    covered = ((low <= x) & (x <= high))[result.converged]
    assert abs(covered.mean() - 0.9) < 3 * 0.039


def test_what_is_too_hard_has_not_converged():
    matrix = jnp.asarray(np.random.default_rng(0).standard_normal((20, 20)))
    f = nuq.Input.box(jnp.zeros(20), half_width=1.0)

    def network(x):
        return jnp.sin(8 * matrix.astype(x.dtype) @ x)

    result = found(network, f, np.zeros(20), noise_scale=0.01, num_runs=20_000)
    assert not result.converged
    # 128 starts of at most 16 Jacobians, one round, and what is shared.
    assert result.num_runs <= 128 * 16 * 21 + 8000
    assert "not converged" in str(result)


def test_runs_are_what_the_network_computes():
    network = CountedNetwork(lambda x: jnp.array([1.0, 2.0]) @ x * jnp.ones(1))
    f = nuq.Input.normal(jnp.zeros(2), 1.0)
    result = found(network, f, [[0.5], [1.0], [2.0]], noise_scale=0.5, num_runs=20_000)
    # A Jacobian, which counts as two here, computes outputs once.
    assert 0.9 * result.num_runs.sum() < network.count <= result.num_runs.sum()


def test_network_without_finite_outputs():
    with pytest.warns(RuntimeWarning, match="NaN at 4000 of 4000 inputs drawn from f"):
        result = found(lambda x: x * jnp.nan, LINE, [0.0], noise_scale=1.0, num_runs=20_000)
    assert not result.converged
    assert np.isnan(result.mean).all()
    assert result.log_evidence == -math.inf


def test_slope_that_is_nan_where_the_value_is_finite(recwarn):
    result = found(lambda x: jnp.sqrt(jnp.maximum(x, 0)), LINE, [0.1], noise_scale=0.3)
    x = np.linspace(-8, 8, 160_001)
    logs = -0.5 * (x**2 + ((0.1 - np.sqrt(np.maximum(x, 0))) / 0.3) ** 2)
    weights = np.exp(logs) / (2 * math.pi * 0.3) * (x[1] - x[0])
    mean = weights @ x / weights.sum()
    variance = weights @ (x - mean) ** 2 / weights.sum()
    assert_right(result, np.array([mean]), np.array([[variance]]), math.log(weights.sum()))
    assert not recwarn.list


def test_sum_of_inputs_with_hardly_any_noise():
    # Rounding leaves nothing of the distribution before in the precision of a start.
    f = nuq.Input.normal(jnp.zeros(2), 1.0)
    result = found(lambda x: x.sum()[None], f, [1.0], noise_scale=1e-9, num_runs=20_000)
    np.testing.assert_allclose(result.mean, 0.5, atol=0.1)
    assert not result.converged


def test_bent_surface_with_hardly_any_noise():
    """The inverse of a precision whose eigenvalues differ so much is rounded to a negative one."""
    f = nuq.Input.normal(jnp.zeros(3), 1.0)
    with jax.enable_x64(True):
        result = found(
            lambda x: jnp.exp(x).sum()[None], f, [3.0], noise_scale=1e-5, num_runs=20_000
        )
    assert not result.converged
    assert np.all(np.isfinite(result.mean))


def test_observations_out_of_reach_leave_others_alone(recwarn):
    def between_zero_and_one(x):
        return jax.nn.relu(1 - jax.nn.relu(x))

    given = {"noise_scale": 1e-3, "num_runs": 20_000}
    y = np.array([0.5, 0.3, 1e300])[:, None, None]
    result = found(between_zero_and_one, LINE, y, **given)
    others = found(between_zero_and_one, LINE, y[:2], **given)
    assert result.converged.tolist() == [[True], [True], [False]]
    assert result.covariance_matrix.shape == (3, 1, 1, 1)
    assert result.sample(KEY, (7,)).shape == (7, 3, 1, 1)
    np.testing.assert_array_equal(result.draws[:, :2], others.draws)
    assert result.log_evidence[2] == -math.inf
    assert result.p_value[2] == 0
    assert np.isnan(result.mean[2]).all()
    assert not recwarn.list


def test_observation_a_thousand_standard_deviations_away():
    result = found(lambda x: x, LINE, [1e3], noise_scale=1.0)
    log_evidence = -0.25e6 - 0.5 * math.log(4 * math.pi)
    assert_right(result, np.array([500.0]), np.array([[0.5]]), log_evidence)
    assert result.p_value < 1e-300


def test_hardly_any_noise_in_double_precision(x64):
    noise = 1e-10
    # Squared distances from the origin have no digits after the point in units of the noise.
    f = nuq.Input.normal(jnp.zeros(2), 1.0)
    result = found(lambda x: x, f, [3.0, 0.5], noise_scale=noise)
    log_evidence = -0.5 * (9.25 + 2 * math.log(2 * math.pi))
    assert result.converged
    assert abs(result.log_evidence - log_evidence) < 4.5 / math.sqrt(result.effective_draws)
    np.testing.assert_allclose(np.sqrt(result.variance), noise, rtol=0.05)


def test_draws_have_the_type_of_the_input():
    f = nuq.Input.normal(jnp.zeros(2, jnp.bfloat16), jnp.ones(2, jnp.bfloat16))
    result = found(lambda x: x[:1], f, [1.0], noise_scale=0.3, num_runs=20_000)
    assert result.draws.dtype == result.sample(KEY).dtype == jnp.bfloat16


BOX = nuq.Input.box(jnp.zeros(2), half_width=1.0)
WRONG = [
    ({"network": lambda x: x.sum()[None], "y": 1.0}, r"y must have shape.*got shape \(\)"),
    ({"y": jnp.zeros(2)}, r"y must have shape \(\.\.\., N_y\) with N_y = 3, got"),
    ({"y": jnp.array([jnp.nan, 0.0, 0.0])}, "y must be finite"),
    ({"y": jnp.zeros((0, 3))}, "y must hold"),
    ({"noise_scale": None}, "noise .* got none"),
    ({"noise_scale": 0.0}, "noise .* standard deviation of zero"),
    ({"noise_scale": None, "noise_covariance": np.ones((3, 3))}, "noise .* singular"),
    ({"noise_scale": np.ones((5, 3))}, r"y must .* \(5,\) of the noise, \(\) of y"),
    ({"y": np.zeros((1, 3)), "noise_scale": np.ones((5, 3))}, r"y must .* \(1,\) of y"),
    ({"f": BOX.expand((4,))}, r"f must be one input, got batch shape \(4,\)"),
    ({"f": nuq.Input.box(jnp.zeros(2), half_width=0.0)}, "f must be random"),
    ({"num_runs": 10}, "num_runs"),
]


def test_wrong_arguments_are_named():
    given = {"network": bent, "f": BOX, "y": jnp.zeros(3), "noise_scale": 0.1}
    for wrong, words in WRONG:
        with pytest.raises(ValueError, match=words):
            found(**(given | wrong))
    for name, value in (("y", jnp.zeros(3)), ("key", KEY)):
        with pytest.raises(TypeError, match="traced values; call input_posterior outside of jit"):
            jax.jit(lambda traced, name=name: found(**(given | {name: traced})).mean)(value)
