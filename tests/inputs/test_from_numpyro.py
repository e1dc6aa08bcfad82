"""Events of any shape, structures and transforms: shapes, batches, distributions and messages."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import nn_uq_dist as nuq
from nn_uq_dist import Input
from nn_uq_dist.basics.normal_scores import from_normal_score, normal_score
from nn_uq_dist.inputs import as_input

KEY = jax.random.key(0)
tf = dist.transforms
PAGE = Path(__file__).parents[2] / "docs" / "howto" / "input_mistakes.md"
ROWS = [line.strip("| ") for line in PAGE.read_text("utf-8").splitlines() if line[:2] == "| "]
# By mistake, what the message says.
WORDS = {mistake: words.strip("`") for mistake, words in (row.split(" | ", 1) for row in ROWS[1:])}
ZEROS = np.zeros(3, np.float32)

# Stands in for a package that is not installed for the tests.
Foreign = type("Normal", (), {"__module__": "openturns.dist"})


def test_images_are_vectors_last_axis_fastest():
    scale = jnp.arange(1.0, 7.0).reshape(2, 3)
    f = dist.Normal(10 * scale, scale).expand([4, 2, 3]).to_event(2)
    distribution = as_input(f)
    assert distribution.base.terms[0].factor.shape == (4, 6)  # a vector, no matrix
    means = distribution.network_input(distribution.mean)
    np.testing.assert_array_equal(means, np.tile(10 * scale, (4, 1, 1)))
    lin = nuq.linearize(lambda image: image[:, 0] + image[:, 1], f)
    np.testing.assert_allclose(lin.variance, np.tile([1 + 4, 16 + 25], (4, 1)), rtol=1e-6)
    draws = distribution.sample(KEY, (10,))
    np.testing.assert_array_equal(distribution.network_input(draws).reshape(10, 4, 6), draws)


PARTS = {
    "level": dist.Uniform(-1.0, 3.0),
    "field": [dist.Normal(jnp.zeros((2, 2)), 0.5).to_event(2), jnp.array([2, 3])],
    "known": dist.Delta(jnp.array([1.0, 2.0]), event_dim=1),
    "own": Input.box([1.0, 2.0], half_width=0.5),
}


def structured(x):
    first = x["level"] * x["known"] + x["field"][1]
    return {"sum": x["field"][0].sum() + x["own"][1], "pair": (first, x["field"][0][0])}


def test_nested_structures_are_called_with_their_parts():
    distribution = as_input(PARTS)
    assert distribution.num_inputs == 1 + 4 + 2
    found = distribution.network_input(distribution.mean)
    assert found["field"][1].dtype == jnp.int32
    lin = nuq.linearize(structured, PARTS)
    mean, variance = lin.unravel(lin.mean), lin.unravel(lin.variance)
    np.testing.assert_allclose(mean["pair"][0], [3.0, 5.0], rtol=1e-6)
    np.testing.assert_allclose(mean["sum"], 2.0, rtol=1e-6)
    # (3 - -1)^2 / 12 times the squared known values, and sums of four normals and a uniform.
    np.testing.assert_allclose(variance["pair"][0], 16 / 12 * np.array([1, 4]), rtol=1e-5)
    np.testing.assert_allclose(variance["sum"], 4 * 0.25 + 1 / 12, rtol=1e-5)
    assert lin.unravel(lin.sample(KEY, (7,)))["pair"][1].shape == (7, 2)


def test_batches_go_through_structures():
    loc = jnp.arange(8.0).reshape(4, 2)
    f = {
        "a": dist.Normal(loc, 0.1).to_event(1),
        "b": dist.LogNormal(jnp.zeros(()), 0.1),
        "gain": dist.Delta(jnp.arange(4.0)[:, None] + 1, event_dim=1),
    }
    lin = nuq.linearize(lambda x: x["gain"] * x["a"] + x["b"], f)
    gain, factor = np.arange(4.0)[:, None] + 1, stats.lognorm(0.1)
    np.testing.assert_allclose(lin.mean, gain * loc + factor.mean(), rtol=1e-5)
    variance = np.broadcast_to(gain**2 * 0.01 + factor.var(), (4, 2))
    np.testing.assert_allclose(lin.variance, variance, rtol=1e-5)
    at_one = lin.input.network_input(lin.input.sample(KEY, (3,)))
    np.testing.assert_array_equal(at_one["gain"], np.broadcast_to(gain, (3, 4, 1)))


def test_known_arrays_beside_a_batch():
    loc = jnp.arange(6.0).reshape(3, 2)
    gain = loc + 1

    def network(x):
        return x["gain"] * x["a"]

    def means(gain, loc=loc):
        f = {"a": dist.Normal(loc, 0.1).to_event(1), "gain": gain}
        return nuq.linearize(network, f).mean

    np.testing.assert_allclose(means(dist.Delta(gain, event_dim=1)), gain * loc)  # one each
    np.testing.assert_allclose(means(gain[0]), gain[0] * loc)  # the same for all
    same = means(dist.Delta(gain, event_dim=2), jnp.ones((3, 1)))
    np.testing.assert_allclose(same, np.tile(gain.reshape(-1), (3, 1)))
    discrete = dist.Poisson(gain).to_event(1)
    with pytest.raises(ValueError, match=r"f\['gain'\] must be a known array"):
        nuq.monte_carlo(network, {"a": discrete, "gain": jnp.ones(3)}, KEY, 4, progress=False)


@pytest.mark.slow
def test_one_point_for_each_of_a_batch_of_maps():
    f = dist.Gamma(jnp.array([[2.0], [5.0]]), 1.0).to_event(1)
    at = jnp.array([[0.5], [-0.5]])
    lin = nuq.linearize(lambda x: x, f, at)
    one = nuq.linearize(lambda x: x, dist.Gamma(jnp.array([5.0]), 1.0).to_event(1), at[1])
    np.testing.assert_allclose(lin.mean[1], one.mean, rtol=1e-5)
    np.testing.assert_allclose(lin.jacobian[1], one.jacobian, rtol=1e-5)


@pytest.mark.slow
def test_jit_grad_and_vmap_of_structures():
    def spread(scale, gain):
        f = {"a": dist.Normal(jnp.zeros(3), scale).to_event(1), "gain": gain}
        return nuq.linearize(lambda x: x["gain"] * x["a"].sum(), f).variance[0]

    found = jax.jit(jax.grad(spread, argnums=(0, 1)))(2.0, 5.0)
    np.testing.assert_allclose(found, [3 * 25 * 4, 3 * 4 * 10], rtol=1e-5)
    mapped = jax.vmap(spread)(jnp.array([1.0, 2.0]), jnp.array([3.0, 4.0]))
    np.testing.assert_allclose(mapped, [3 * 9, 3 * 4 * 16], rtol=1e-5)

    distribution = as_input({"a": dist.Gamma(jnp.ones((3, 2)), 1.0).to_event(1), "b": jnp.ones(4)})
    medians = jax.vmap(lambda one: one.network_input(one.mean)["a"])(distribution)
    np.testing.assert_allclose(medians, np.full((3, 2), np.log(2)), rtol=1e-5)


@pytest.mark.slow
def test_distributions_and_draws_of_a_structure():
    lin = nuq.linearize(structured, PARTS)
    draws = nuq.monte_carlo(structured, PARTS, KEY, 20_000, progress=False)
    cdf = np.asarray(lin.marginals().cdf(draws))  # a linear network: an exact distribution
    assert all(stats.kstest(column, "uniform").pvalue > 0.01 / 5 for column in cdf.T)
    pairs = nuq.paired_draws(structured, lin, KEY, 64, points="sobol", progress=False)
    np.testing.assert_allclose(pairs.network, pairs.linear, atol=1e-5)
    again = jax.vmap(structured)(pairs.inputs)["sum"]
    np.testing.assert_allclose(again, lin.unravel(pairs.network)["sum"], atol=1e-5)


TWOS, CORRELATION = 2.0 * jnp.ones(2), jnp.array([[1.0, 0.6], [0.6, 1.0]])
TRANSFORMED = {
    "log-normal image": (dist.LogNormal(jnp.zeros((2, 2)), 0.5).to_event(2), stats.lognorm(0.5)),
    "beta": (dist.Beta(2.0, 3.0).expand([3]).to_event(1), stats.beta(2, 3)),
    "two affine maps": (
        dist.TransformedDistribution(
            dist.Normal(jnp.zeros(2), 1.0).to_event(1),
            [tf.AffineTransform(1.0, TWOS), tf.AffineTransform(0.0, 3.0)],
        ),
        stats.norm(3, 6),
    ),
    "copula": (dist.GaussianCopula(dist.Gamma(TWOS, 1.0), CORRELATION), stats.gamma(2)),
    "truncated Student": (
        dist.TruncatedDistribution(dist.StudentT(3.0 * jnp.ones(2)), low=-1.0).to_event(1),
        stats.truncate(stats.make_distribution(stats.t)(df=3.0), lb=-1.0),
    ),
}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_draws_of_transformed_inputs_have_their_distribution(name):
    f, known = TRANSFORMED[name]
    distribution = as_input({"x": f, "y": dist.Normal(0.0, 1.0)})
    assert distribution.is_transformed == (name != "two affine maps")
    values = distribution.network_input(distribution.sample(jax.random.key(5), (4000,)))["x"]
    assert values.shape == (4000, *f.event_shape)
    columns = np.asarray(values).reshape(4000, -1).T
    for column in columns:
        assert stats.kstest(column, known.cdf).pvalue > 0.01 / len(columns)
    if "copula" in name:
        scores = stats.norm.ppf(known.cdf(columns))
        assert np.corrcoef(scores)[0, 1] == pytest.approx(0.6, abs=5 * 0.64 / np.sqrt(4000))


def test_batches_of_transforms_with_parameters():
    base = dist.Normal(jnp.zeros((4, 3)), 1.0).to_event(1)
    loc = jnp.arange(12.0).reshape(4, 3)
    f = dist.TransformedDistribution(base, [tf.AffineTransform(loc, 2.0), tf.ExpTransform()])
    found = as_input(f)
    np.testing.assert_allclose(found.network_input(found.mean), np.exp(loc), rtol=1e-5)
    root = jnp.array([[1.0, 0, 0], [1, 1, 0], [0, 0, 2]])
    f = dist.TransformedDistribution(base, tf.LowerCholeskyAffine(jnp.ones(3), root))
    lin = nuq.linearize(lambda x: x, f)
    np.testing.assert_allclose(lin.covariance, np.tile(root @ root.T, (4, 1, 1)), rtol=1e-6)
    # An affine map for each of a batch, which NumPyro's constructor may refuse.
    many = tf.LowerCholeskyAffine(jnp.ones(3), root)
    many.loc, many.scale_tril = jnp.ones((4, 3)), jnp.tile(root, (4, 1, 1))
    with pytest.raises(TypeError, match=r"one LowerCholeskyAffine for the whole batch.*jax.vmap"):
        as_input(dist.TransformedDistribution(base, many))


NORMAL, BATCH = dist.Normal(0.0, 1.0), dist.Normal(jnp.zeros((3, 2)), 1.0).to_event(1)
MISTAKES = {
    "a frozen distribution of SciPy": lambda: stats.norm(0, 1),
    "a distribution of another package, such as OpenTURNS": Foreign,
    "a class of distributions": lambda: dist.Normal,
    "an array of inputs": lambda: ZEROS,
    "several numbers without `.to_event(1)`": lambda: dist.Uniform(ZEROS, 1.0),
    "a discrete distribution": lambda: dist.Poisson(3.0),
    "a discrete distribution in a dict": lambda: {"a": NORMAL, "b": dist.Poisson(3.0)},
    "a transform with a kink": lambda: dist.TransformedDistribution(NORMAL, [tf.AbsTransform()]),
    "a dict of known values alone": lambda: {"a": ZEROS},
    "a known array for each of a batch": lambda: {"a": BATCH, "b": jnp.ones((3, 2))},
    "a word in a dict": lambda: {"a": NORMAL, "b": "one"},
    "a pair of bounds in a dict": lambda: {"a": NORMAL, "b": (0.0, 1.0)},
    "a list of bounds in a dict": lambda: {"a": NORMAL, "b": [0.0, 1.0]},
    "a negative half-width": lambda: Input.box(ZEROS, half_width=-1.0),
    "low above high": lambda: dist.Uniform(174.0, 8.7),
    "a covariance as `scale_tril`": lambda: Input.normal(ZEROS[:2], scale_tril=CORRELATION),
    "a negative variance": lambda: Input.normal(ZEROS[:2], covariance_matrix=np.diag([1.0, -1.0])),
    "a mean alone": lambda: Input.normal(ZEROS),
    "a mean that is NaN": lambda: Input.box([np.nan, 0.0], half_width=1.0),
    "a sum of vectors of two lengths": lambda: Input.box(ZEROS, 1.0) + Input.box(ZEROS[:2], 1.0),
    "one draw to estimate a distribution from": lambda: Input.from_samples(ZEROS[None]),
}


@pytest.mark.parametrize("mistake", WORDS)
def test_message_names_the_remedy(mistake):
    with pytest.raises((TypeError, ValueError)) as caught:
        nuq.linearize(lambda x: jnp.ravel(jax.tree.leaves(x)[0]), MISTAKES[mistake]())
    assert WORDS[mistake] in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("dtype", [np.int8, jnp.int32, np.float16])
def test_bounds_whose_sums_overflow_in_their_own_type(dtype):
    numbers = jnp if dtype is jnp.int32 else np
    top = np.iinfo(dtype).max if np.issubdtype(dtype, np.integer) else 60000
    low, high = (numbers.array([part], dtype) for part in (top - top // 4, top - top // 8))
    if np.dtype(dtype).kind == "i":
        low = numbers.array([-top], dtype)
    ends = float(low[0]), float(high[0])
    f = dist.Uniform(low, high).to_event(1)
    assert as_input(f).mean[0] == pytest.approx(sum(ends) / 2, rel=1e-3)
    assert as_input(f).standard_deviation[0] == pytest.approx(
        (ends[1] - ends[0]) / 12**0.5, rel=1e-3
    )
    scores = dist.Uniform(low, high)
    np.testing.assert_allclose(
        normal_score(scores, np.float32(low + (high / 2 - low / 2))), 0, atol=1e-2
    )
    np.testing.assert_allclose(from_normal_score(scores, 0.0), sum(ends) / 2, rtol=1e-3)


MIXED = {
    "one family": (
        lambda: dist.MixtureSameFamily(
            dist.Categorical(jnp.array([0.3, 0.7])), dist.Normal(jnp.array([0.0, 4.0]), 1.0)
        ),
        stats.norm(0, 1),
        stats.norm(4, 1),
    ),
    "several families": (
        lambda: dist.MixtureGeneral(
            dist.Categorical(jnp.array([0.3, 0.7])),
            [dist.Uniform(0.0, 1.0), dist.LogNormal(0.0, 1.0)],
            support=dist.constraints.positive,
        ),
        stats.uniform(0, 1),
        stats.lognorm(1),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MIXED)
def test_mixtures_by_their_normal_scores(name):
    make, *components = MIXED[name]
    mixture = make()
    f = mixture.expand((4, 2)).to_event(1)
    lin = nuq.linearize(lambda x: x, f)
    mean, square = (0.3 * components[0].moment(k) + 0.7 * components[1].moment(k) for k in (1, 2))
    np.testing.assert_allclose(lin.mean, np.full((4, 2), mean), rtol=1e-5)
    np.testing.assert_allclose(lin.variance, np.full((4, 2), square - mean**2), rtol=1e-5)
    found = as_input(f).network_input(jnp.full((4, 2), -1.0))
    np.testing.assert_allclose(mixture.cdf(found), stats.norm.cdf(-1), rtol=1e-4)
    draws = nuq.monte_carlo(lambda x: x, f, jax.random.key(0), 4000)[:, 0, 0]
    assert stats.kstest(draws, lambda x: np.asarray(mixture.cdf(jnp.asarray(x)))).pvalue > 1e-3
