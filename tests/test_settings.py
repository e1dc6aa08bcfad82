"""Every public call under what users set in JAX: NaN as errors, strict promotion, 64-bit types.

No NaN may arise on the way either, as JAX raises at the first operation or program that returns
one. Left out, as they are NaN by contract: results for arguments that are NaN, and of parameters
that have no distribution.
"""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro import infer
from numpyro.infer.autoguide import AutoNormal

import nn_uq_dist as nuq
from nn_uq_dist import diagnostics, distributions, error_analysis, inputs, plots
from tests.compiling import drop_many_programs

KEY = jax.random.key(0)
NO_BAR = {"progress": False}
WEIGHTS = np.random.default_rng(0).normal(size=(2, 5, 5))
POINTS = np.linspace(-0.1, 0.1, 3000)


@pytest.fixture(autouse=True)
def _settings(precision):
    with jax.debug_nans(True), jax.numpy_dtype_promotion("strict"):
        yield
    drop_many_programs()  # no two cases share programs


def numbers(*values):
    return np.asarray(values, jnp.result_type(float))


def check(results):
    """Look for NaN in what NumPy has computed."""
    for leaf in jax.tree.leaves(results):
        if isinstance(leaf, jax.Array | np.ndarray) and not jnp.issubdtype(
            leaf.dtype, jax.dtypes.prng_key
        ):
            assert not np.isnan(np.asarray(leaf)).any()


def network(x):
    first = jnp.tanh(x[0] + 0.5 * x[1]) + 0.3 * x[3]
    return jnp.stack([first, x[1] * x[2] - x[0] + 0.2 * x[4]])


@cache
def mixed_input(dtype):
    box = nuq.Input.box(np.array([0.1, 0.2, -0.3], dtype), half_width=0.4)
    return nuq.Input.join(box, nuq.Input.normal(np.zeros(2, dtype), 0.3))


@cache
def pairs(dtype):
    linear = nuq.linearize(network, mixed_input(dtype))
    return nuq.paired_draws(network, linear, KEY, 300, **NO_BAR)


@cache
def model(name, dtype):
    if name == "box":
        rows = WEIGHTS[0, :2, :3].astype(dtype)
        return nuq.linearize(lambda x: rows @ x, nuq.Input.box(np.zeros(3, dtype), half_width=0.4))
    linear = nuq.linearize(network, mixed_input(dtype))
    return linear if name == "linear" else linear.corrected(pairs(dtype))


INPUTS = {
    "box": lambda: nuq.Input.box(numbers(0, 1), half_width=1),
    "normal": lambda: nuq.Input.normal(numbers(0, 1), scale=0.5),
    "covariance": lambda: nuq.Input.normal(numbers(0, 1), covariance_matrix=[[2, 1], [1, 2]]),
    "precision": lambda: nuq.Input.normal(numbers(0, 1), precision_matrix=numbers([2, 1], [1, 2])),
    "factor": lambda: nuq.Input.normal(numbers(0, 1), factor=numbers([2], [1])),
    "known": lambda: nuq.Input.join(INPUTS["box"](), nuq.Input.known(numbers(2))),
    "triangular": lambda: nuq.Input.triangular(numbers(0, 0), numbers(1, 2)),
    "samples": lambda: nuq.Input.from_samples(WEIGHTS[0].astype(jnp.result_type(float))),
    "sum": lambda: INPUTS["box"]() + INPUTS["covariance"](),
    "structure": lambda: inputs.as_input(
        {"a": dist.Normal(*numbers(0, 1)), "b": dist.Uniform(*numbers(0, 1))}
    ),
    "beta": lambda: inputs.as_input(dist.Beta(numbers(2, 3), numbers(1, 1)).to_event(1)),
    "student": lambda: inputs.as_input(dist.StudentT(numbers(3, 5), 0.0, 1.0).to_event(1)),
    "log_normal": lambda: inputs.as_input(dist.LogNormal(numbers(0, 1), 0.3).to_event(1)),
    "truncated": lambda: inputs.as_input(
        dist.TruncatedNormal(numbers(0, 1), 1.0, low=-1.0, high=2.0).to_event(1)
    ),
    "low_rank": lambda: inputs.as_input(
        dist.LowRankMultivariateNormal(numbers(0, 1), numbers([2], [1]), numbers(1, 1))
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float64"], indirect=True)
def test_inputs():
    for make in INPUTS.values():
        f = make()
        draws = nuq.monte_carlo(lambda x: x, f, KEY, 5, **NO_BAR)
        check((f.mean, f.standard_deviation, f.covariance, f.half_width, f.normal_scale))
        check((f.sample(KEY, (3,)), f.sample_deviation(KEY), f.network_input(f.mean), draws))


OUTPUT_METHODS = {
    "densities": lambda d, y: (d.log_prob(y), d.normal_score_and_log_prob(y), d.log_prob(0)),
    "distribution_functions": lambda d, y: (d.cdf(y), d.log_cdf(y), d.log_sf(y)),
    "normal_scores": lambda d, y: (d.normal_score(y), d.from_normal_score(numbers(-1, 2))),
    "quantiles": lambda d, y: (d.icdf(numbers(0.1, 0.9)), d.icdf(numbers(0, 1))),
    "moments": lambda d, y: (d.mean, d.variance, d.standard_deviation, d.moments(), d.skewness),
    "bounds": lambda d, y: (d.bounds, d.support(y), d.kinks()),
    "sample": lambda d, y: d.sample(KEY, (3,)),
    "far_out": lambda d, y: (d.cdf(y - 9), d.cdf(y + 9), d.log_cdf(y - 9), d.log_sf(y + 9)),
    "entries": lambda d, y: distributions.batch_entries(d, 0).log_prob(y[0]),
    "batches": lambda d, y: (d.to_event(1).log_prob(y), d.expand((3, 2)).cdf(y)),
    "many_points": lambda d, y: distributions.batch_entries(d, 0).log_prob(
        y[0] + POINTS.astype(y.dtype)
    ),
    "gradient": jax.grad(lambda d, y: d.log_prob(y).sum(), (0, 1)),
    "gradient_of_quantiles": jax.grad(lambda d, y: d.icdf(numbers(0.1, 0.9)).sum()),
    "gradient_of_draws": jax.grad(lambda d, y: d.sample(KEY, (3,)).sum()),
}


def point(model):
    return jnp.asarray(np.asarray(model.mean) + numbers(0.05, -0.1))


# A corrected output with noise takes the longest to compile.
FEW = "densities", "moments"


def cases(names, *pairs):
    """Values of these parameters, each with a type: every kind in one, most not in both."""
    parameters = (*names.split(), "precision")
    return pytest.mark.parametrize(parameters, pairs, indirect=["precision"])


@cases(
    "name noise_scale", ("linear", 0.1, "float32"), ("box", None, "float32"),
    ("box", 0.1, "float64"), ("corrected", None, "float32"), ("corrected", 0.1, "float64"),
)  # fmt: skip
def test_marginals(name, noise_scale):
    own = model(name, numbers().dtype.name)
    is_long = name == "corrected" and noise_scale is not None
    for method in FEW if is_long else OUTPUT_METHODS:
        check(OUTPUT_METHODS[method](own.marginals(noise_scale), point(own)))


JOINT_METHODS = {
    "densities": lambda d, y: (d.log_prob(y), d.log_prob(d.sample(KEY, (3,)))),
    "moments": lambda d, y: (d.mean, d.variance, d.covariance_matrix),
    "marginalize": lambda d, y: d.marginalize([1]).log_prob(y[1:]),
    "condition": lambda d, y: of_conditional(d.condition([0], y[:1]), y[1:]),
    "rosenblatt": lambda d, y: d.rosenblatt(y),
    "batches": lambda d, y: d.expand((3,)).log_prob(y),
    "gradient": jax.grad(lambda d, y: d.log_prob(y).sum(), (0, 1)),
    "gradient_of_draws": jax.grad(lambda d, y: d.sample(KEY, (3,)).sum()),
}


def of_conditional(d, y):
    return d.log_prob(y), d.sample(KEY, (3,)), d.mean, d.covariance_matrix


@pytest.mark.slow
@cases(
    "name kind", ("linear", "joint", "float32"), ("box", "joint", "float64"),
    ("linear", "gaussian_copula", "float64"), ("corrected", "gaussian_copula", "float32"),
)  # fmt: skip
def test_joints(name, kind):
    own = model(name, numbers().dtype.name)
    is_copula = kind == "gaussian_copula"
    joint = getattr(own, kind)(0.1 if name == "linear" else None)
    is_long = name == "corrected" and is_copula
    for method in ("densities", "rosenblatt") if is_long else JOINT_METHODS:
        check(JOINT_METHODS[method](joint, point(own)))
    if is_copula:
        check((joint.marginal_cdf(point(own)), joint.marginal_icdf(numbers(0.1, 0.9))))
    else:
        posterior = own.input_posterior(point(own), 0.1)
        check((joint.log_prob_correction(point(own)), posterior.sample(KEY), posterior.mean))
    if is_copula and not is_long:
        check(joint.entropy())


@cases("name", ("linear", "float32"), ("corrected", "float64"))
def test_models(name):
    own = model(name, numbers().dtype.name)
    check((own.mean, own.correlation, own.variance, own.sample_pairs(KEY, (3,)), own.remarks))
    check((own.copula_correlation(), repr(own)))
    check(own.unravel(own.mean))


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32"], indirect=True)
def test_copulas_of_other_distributions():
    families = dist.Gamma(numbers(2, 3), 1.0), dist.TruncatedNormal(numbers(0, 1), 1.0, low=-1.0)
    for family in families:
        copula = nuq.GaussianCopulaJoint(family, numbers([1, 0.5], [0.5, 1]))
        y = jnp.asarray(numbers(0.4, 0.6))
        check([JOINT_METHODS[method](copula, y) for method in ("densities", "condition")])
        check(jax.grad(copula.log_prob)(y))


def statistics(dtype):
    s = nuq.paired_statistics(pairs(dtype))
    moments = s.mean, s.sd, s.skewness, s.excess_kurtosis, s.covariance, s.correlation
    wins = nuq.win_probabilities(pairs(dtype))
    return moments, s.quantile([0.1, 0.9]), s.exceedance(numbers(0.1)), wins


def leaky_relu_errors(dtype):
    hidden, output = WEIGHTS.astype(dtype)
    net = nuq.LeakyReLUNetwork([hidden], [np.zeros(5, dtype)], output)
    bounds = nuq.certified(net, mixed_input(dtype), output=0).refine(10, **NO_BAR)
    return (
        error_analysis.flip_probabilities(net, mixed_input(dtype)),
        error_analysis.is_exact_on_support(net, mixed_input(dtype)),
        bounds.quantile_bounds(0.1),
        bounds.probability_bounds(0, 1),
        bounds.mean_bounds,
        nuq.LeakyReLUNetwork.from_network(lambda x: output @ jax.nn.relu(hidden @ x), 5),
    )


def answers(function, *args, **options):
    found = function(network, *args, **options, **NO_BAR)
    return vars(found), repr(found)


ANSWERS = {
    "statistics": statistics,
    "leaky_relu_errors": leaky_relu_errors,
    "sobol_points": lambda dtype: (
        nuq.paired_draws(network, model("linear", dtype), KEY, 64, points="sobol", **NO_BAR).network
    ),
    "failure_probability": lambda dtype: answers(
        nuq.failure_probability, mixed_input(dtype), KEY, 1.5, output=0, num_runs=2000
    ),
    "input_posterior": lambda dtype: answers(
        nuq.input_posterior,
        mixed_input(dtype),
        numbers(0.3, 0.1),
        noise_scale=0.1,
        key=KEY,
        num_runs=20_000,
    ),
    "sobol_indices": lambda dtype: answers(
        nuq.sobol_indices, mixed_input(dtype), KEY, num_runs=1000
    ),
}


@cases(
    "name", ("statistics", "float32"), ("leaky_relu_errors", "float64"),
    ("sobol_points", "float32"), ("failure_probability", "float32"),
    ("input_posterior", "float64"), ("sobol_indices", "float64"),
)  # fmt: skip
def test_answers_with_runs_of_the_network(name):
    check(ANSWERS[name](numbers().dtype.name))


@pytest.mark.viz
@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float64"], indirect=True)
def test_tables_and_figures():
    own, draws = model("corrected", "float64"), pairs("float64")
    for joint in (own.joint(), own.gaussian_copula()):
        diagnostics.joint_summary(own, draws, KEY, joint, **NO_BAR)
    diagnostics.summary(own, draws, quantiles=[0.1], tails=[0.1], **NO_BAR)
    diagnostics.table(own, limits=0.5)
    diagnostics.sensitivity(own)
    diagnostics.to_datatree(own, draws, key=KEY, num_analytic_draws=100, **NO_BAR)
    plots.plot_calibration(own, draws, **NO_BAR)
    for plot in (plots.plot_band, plots.plot_joint, plots.plot_marginals, plots.plot_tails):
        plot(own, draws)
    plots.plot_sensitivity(own)


@pytest.mark.slow
@pytest.mark.viz
@pytest.mark.parametrize("precision", ["float64"], indirect=True)
def test_float32_where_float64_is_the_default():
    """Python's numbers, alone and in lists, do not widen what has a type."""
    lin, y = model("linear", "float32"), [0.5, 0.1]
    corrected = lin.corrected(nuq.paired_draws(network, lin, KEY, 300, **NO_BAR))
    copula = lin.gaussian_copula([0.1, 0.1])
    found = [copula.log_prob(y), copula.sample(KEY), copula.condition([0], [0.2]).log_prob([0.1])]
    for own in (lin, corrected):
        marginals, joint = own.marginals(), own.joint([0.1, 0.1])
        found += [marginals.log_prob(y), marginals.icdf([[0.1], [0.9]]), own.covariance]
        found += [joint.log_prob(y), joint.condition([0], [0.2]).log_prob([0.1])]
        found += [own.input_posterior(y, 0.1).mean, own.sample(KEY)]
        diagnostics.summary(own, corrected.pairs, quantiles=[0.1], **NO_BAR)
    check(found)
    assert {part.dtype.name for part in found} == {"float32"}
    diagnostics.to_datatree(lin, corrected.pairs, key=KEY, num_analytic_draws=100, **NO_BAR)
    wide = nuq.LinearizedJoint(lin.loc, jnp.eye(2, dtype="float32"), [[0.1, 0.0], [0.0, 0.1]])
    check(wide.log_prob(lin.loc))


def own(y):
    shift = numpyro.sample("shift", dist.Normal(0.0, 1.0))
    linear = nuq.linearize(lambda x: network(x) + shift, mixed_input("float64"))
    numpyro.sample("y", linear.joint(0.1), obs=y)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float64"], indirect=True)
def test_inference():
    y = numbers(0.5, 0.1)
    chain = infer.MCMC(infer.NUTS(own), num_warmup=3, num_samples=3, progress_bar=False)
    with jax.numpy_dtype_promotion("standard"):  # NumPyro's kernel divides by an integer
        chain.run(KEY, y)
    guide = AutoNormal(own)
    search = infer.SVI(own, guide, numpyro.optim.SGD(0.01), infer.Trace_ELBO())
    check((chain.get_samples(), search.run(KEY, 3, y, progress_bar=False).losses))
    check(infer.Predictive(own, num_samples=3)(KEY, None))
