"""Joint laws as NumPyro distributions: declaration, shapes, pytree, validation, transform."""

import inspect
import pickle
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions import constraints
from numpyro.distributions.batch_util import promote_batch_shape, vmap_over
from numpyro.distributions.transforms import biject_to

from nn_uq_dist import GaussianCopulaJoint, LinearizedMarginal
from nn_uq_dist.distributions import GaussianCopulaConditional

pytestmark = pytest.mark.slow

KEY = jax.random.key(3)
WEIGHTS = np.array([[0.7, -0.4], [0.3, 0.5]])
LOC = np.array([0.2, -0.3])
MATRIX = np.array([[1.0, 0.6], [0.6, 1.0]])
MATRICES = np.stack([MATRIX, np.eye(2), [[1.0, -0.3], [-0.3, 1.0]]])
TRIL = np.array([[0.8, 0.0], [0.3, 0.5]])


def sums(*batch_shape, scale=None):
    loc = LOC + 0.1 * np.arange(np.prod(batch_shape, dtype=int)).reshape(*batch_shape, 1)
    return LinearizedMarginal(loc, WEIGHTS, scale)


def joint(marginals, matrix=MATRIX, **kwargs):
    return GaussianCopulaJoint(marginals, matrix, **kwargs)


def conditional(marginals, tril=TRIL, **kwargs):
    return GaussianCopulaConditional(marginals, LOC, tril, **kwargs)


# name: how to make it, the batch shape that it must have, and whether its support has bounds. Few
# weights and closed formulas: they compile fast.
CASES = {
    "sums": (lambda **kw: joint(sums(), **kw), (), True),
    "uniforms": (lambda **kw: joint(dist.Uniform(-1.0, np.ones((2, 1, 2))), **kw), (2, 1), True),
    "normals": (
        lambda **kw: joint(dist.Normal(np.ones((2, 1, 2)), 0.5), MATRICES, **kw),
        (2, 3),
        False,
    ),
    "paretos": (lambda **kw: joint(dist.Pareto(np.array([0.5, 1.0]), 6.0), **kw), (), True),
    "conditional": (lambda **kw: conditional(dist.Uniform(LOC - 1, LOC + 1), **kw), (), True),
}
# Where nothing but shapes and bookkeeping is asked, more of them.
SHAPES = {
    **CASES,
    "noise": (lambda **kw: joint(sums(scale=0.4), **kw), (), False),
    "marginals_batch": (lambda **kw: joint(sums(3), **kw), (3,), True),
    "matrix_batch": (lambda **kw: joint(sums(), MATRICES, **kw), (3,), True),
    "both": (lambda **kw: joint(sums(2, 1), MATRICES, **kw), (2, 3), True),
    "expanded": (lambda **kw: joint(dist.Laplace(0.0, 1.0).expand((2,)), **kw), (), False),
    "conditional_batch": (
        lambda **kw: conditional(sums(2, 1), np.stack([TRIL] * 3), **kw),
        (2, 3),
        True,
    ),
}
BOUNDED = [name for name, (_, _, bounded) in CASES.items() if bounded]


def make(name, **kwargs):
    return SHAPES[name][0](**kwargs)


@pytest.fixture(params=CASES)
def case(request):
    return make(request.param)


# One of each class, and a batch, where the family of the marginals does not matter.
few = pytest.mark.parametrize("case", ["sums", "normals", "conditional"], indirect=True)


@pytest.mark.parametrize("cls", [GaussianCopulaJoint, GaussianCopulaConditional])
def test_declaration(cls):
    parameters = set(inspect.signature(cls.__init__).parameters) - {"self", "validate_args"}
    assert set(cls.arg_constraints) == set(cls.reparametrized_params) == parameters - {"marginals"}
    for constraint in cls.arg_constraints.values():
        assert constraint.event_dim in {1, 2}
        assert not constraint.is_discrete
    assert cls.support.event_dim == 1
    assert not cls.support.is_discrete
    assert set(cls.gather_pytree_data_fields()) == parameters
    assert parameters <= set(inspect.signature(vmap_over.dispatch(cls)).parameters)


@few
def test_attributes_jit_and_intermediates(case):
    assert case.has_rsample
    assert not case.is_discrete
    assert case.support.event_dim == 1
    through = jax.jit(lambda d: d)(case)
    assert through.shape() == case.shape()
    for name in case.arg_constraints:
        assert getattr(case, name) is not None
        assert getattr(through, name) is not None
    x, intermediates = case.sample_with_intermediates(KEY)
    np.testing.assert_array_equal(x, case.sample(KEY))
    expected = case.log_prob(x)
    for log_prob in (through.log_prob(x), jax.jit(lambda d, x: d.log_prob(x))(case, x)):
        np.testing.assert_allclose(log_prob, expected, rtol=2e-5, atol=2e-5)
    # The scores of the draws save an inversion.
    np.testing.assert_allclose(case.log_prob(x, intermediates), expected, rtol=1e-4, atol=1e-4)


def traced(function, d, *args):
    """What comes out of a function of a law, by its shape and dtype: nothing is compiled."""
    return jax.eval_shape(function, d, *args)


@pytest.mark.parametrize("name", SHAPES)
def test_shapes(name):
    _, batch_shape, _ = SHAPES[name]
    d = make(name)
    assert (d.batch_shape, d.event_shape) == (batch_shape, (2,))
    for sample_shape in [(), (5, 1)]:
        x = traced(lambda d, n=sample_shape: d.sample(KEY, n), d)
        assert x.shape == (*sample_shape, *batch_shape, 2)
        log_prob = traced(lambda d, x: d.log_prob(x), d, x)
        assert log_prob.shape == (*sample_shape, *batch_shape)
        assert traced(lambda d, x: d.marginal_cdf(x), d, x).shape == x.shape
    # A single vector broadcasts against every law of the batch.
    x = jnp.zeros(2)
    assert traced(lambda d, x: d.log_prob(x), d, x).shape == batch_shape
    for of in (
        lambda d: d.mean,
        lambda d: d.variance,
        lambda d: d.marginal_icdf(0.5 * jnp.ones(2)),
        lambda d: d.condition(1, d.mean[..., 1:]).expand((4, *batch_shape)).mean[0].repeat(2, -1),
    ):
        assert traced(of, d).shape == (*batch_shape, 2)
    assert traced(lambda d: d.covariance_matrix, d).shape == (*batch_shape, 2, 2)
    assert traced(lambda d: d.entropy(), d).shape == batch_shape
    parameters = [name for name in d.gather_pytree_data_fields() if name != "marginals"]
    shapes = {name: np.shape(getattr(d, name)) for name in parameters}
    inferred = type(d).infer_shapes(marginals=d.marginals.batch_shape, **shapes)
    assert inferred == (batch_shape, (2,))


@few
def test_draws_are_independent_and_those_of_the_key(case):
    x = np.asarray(case.sample(KEY, (50,)))
    np.testing.assert_array_equal(case.rsample(KEY, (50,)), x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        legacy = jax.random.PRNGKey(3)
    np.testing.assert_array_equal(case.sample(legacy, (50,)), x)
    assert np.unique(x).size == x.size
    assert not np.isclose(case.sample(jax.random.key(4), (50,)), x).any()


@pytest.mark.parametrize("name", ["noise", "normals", "conditional_batch"])
def test_dtype(name, precision):
    d = make(name)
    x = traced(lambda d: d.sample(KEY), d)
    outcomes = {
        "sample": x,
        "log_prob": traced(lambda d, x: d.log_prob(x), d, x),
        "mean": traced(lambda d: d.mean, d),
        "variance": traced(lambda d: d.variance, d),
        "covariance_matrix": traced(lambda d: d.covariance_matrix, d),
        "entropy": traced(lambda d: d.entropy(), d),
        "marginal_cdf": traced(lambda d, x: d.marginal_cdf(x), d, x),
        "marginal_icdf": traced(lambda d: d.marginal_icdf(np.array([0.3, 0.6])), d),
        "condition": traced(lambda d, x: d.condition(0, x[..., :1]).mean, d, x),
        "marginalize": traced(lambda d, x: d.marginalize([1]).log_prob(x[..., 1:]), d, x),
    }
    want = np.dtype(precision)
    assert {key: value.dtype for key, value in outcomes.items()} == dict.fromkeys(outcomes, want)


@pytest.mark.usefixtures("x64")
def test_dtype_follows_the_parameters_and_widens_to_the_value():
    marginals = LinearizedMarginal(LOC.astype(np.float32), WEIGHTS.astype(np.float32))
    single = GaussianCopulaJoint(marginals, MATRIX.astype(np.float32))
    x = single.sample(KEY)
    assert x.dtype == single.mean.dtype == single.log_prob(x).dtype == np.float32
    assert single.log_prob(np.asarray(x, np.float64)).dtype == np.float64
    double = GaussianCopulaJoint(marginals, MATRIX)
    assert double.sample(KEY).dtype == np.float64


@few
def test_pytree_round_trip(case):
    before = jax.tree.structure(case)
    x = case.sample(KEY, (3,))
    for used in (case.log_prob(x), case.mean, case.support, case.base_dist, case.transforms):
        assert used is not None
    leaves, structure = jax.tree.flatten(case)
    assert structure == before  # a carry of `scan` must keep its structure under use
    assert all(isinstance(leaf, jax.Array | np.ndarray | float | int) for leaf in leaves)
    for back in (jax.tree.unflatten(structure, leaves), pickle.loads(pickle.dumps(case))):  # noqa: S301
        assert type(back) is type(case)
        assert back.shape() == case.shape()
        assert jax.tree.structure(back) == before
        np.testing.assert_array_equal(back.sample(KEY, (3,)), x)
        np.testing.assert_array_equal(back.log_prob(x), case.log_prob(x))


def test_scan_carry():
    d = jax.tree.map(jnp.asarray, make("sums"))

    def step(d, _):
        marginals = LinearizedMarginal(d.marginals.loc + 1.0, d.marginals.weights)
        moved = GaussianCopulaJoint(marginals, d.correlation_matrix)
        return moved, moved.mean

    last, means = jax.lax.scan(step, d, length=3)
    np.testing.assert_allclose(means, LOC + np.arange(1.0, 4.0)[:, None], rtol=1e-6)
    assert jax.tree.structure(last) == jax.tree.structure(d)


@pytest.mark.parametrize("cls", [joint, conditional])
def test_new_parameter_values_do_not_retrace(cls):
    traces = []

    @jax.jit
    def log_prob(d):
        traces.append(d)
        return d.log_prob(LOC)

    for scale in (1.0, 1.1, 1.2):
        log_prob(cls(LinearizedMarginal(scale * LOC, scale * WEIGHTS)))
    assert len(traces) == 1


@pytest.mark.parametrize(
    ("mapped_marginals", "mapped_matrix"), [(True, True), (True, False), (False, True)]
)
def test_vmap(mapped_marginals, mapped_matrix):
    locs = np.stack([LOC, LOC + 0.1, LOC - 0.1]) if mapped_marginals else LOC
    matrices = MATRICES if mapped_matrix else MATRIX
    axes = (0 if mapped_marginals else None, 0 if mapped_matrix else None)
    x = LOC + 0.05

    def build(loc, matrix):
        return GaussianCopulaJoint(LinearizedMarginal(loc, WEIGHTS), matrix)

    expected = [
        build(locs[i] if mapped_marginals else LOC, MATRICES[i] if mapped_matrix else MATRIX)
        .log_prob(x)
        .item()
        for i in range(3)
    ]
    marginal_axes = vmap_over(sums(), loc=0) if mapped_marginals else None
    out_axes = vmap_over(build(LOC, MATRIX), marginals=marginal_axes, correlation_matrix=axes[1])
    partly = jax.vmap(build, in_axes=axes, out_axes=out_axes)(locs, matrices)
    assert partly.marginals.loc.shape == locs.shape
    assert partly.correlation_matrix.shape == matrices.shape
    through = jax.vmap(lambda d: d.log_prob(x), in_axes=(out_axes,))(partly)
    np.testing.assert_allclose(through, expected, rtol=1e-5)
    # The mapped axis becomes a batch axis, whatever has it.
    promoted = promote_batch_shape(jax.vmap(build, in_axes=axes)(locs, matrices))
    assert promoted.shape() == (3, 2)
    np.testing.assert_allclose(promoted.log_prob(x), expected, rtol=1e-5)
    assert promoted.sample(KEY).shape == (3, 2)


@pytest.mark.parametrize("cls", [joint, conditional])
def test_vmap_of_parameters_with_batches_of_different_rank(cls):
    """The axis that `vmap` adds must not meet a batch axis of the other parameter."""
    locs = LOC + np.arange(4.0).reshape(4, 1)
    seconds = MATRICES if cls is joint else np.stack([TRIL, 0.7 * TRIL, np.eye(2)])

    def build(loc):
        return cls(LinearizedMarginal(loc, WEIGHTS), seconds)

    x = jnp.asarray(LOC + 0.05 + np.arange(4.0).reshape(4, 1, 1))
    expected = [build(loc).log_prob(x[i]) for i, loc in enumerate(locs)]
    built = jax.vmap(build)(locs)
    np.testing.assert_allclose(jax.vmap(lambda d, x: d.log_prob(x))(built, x), expected, rtol=1e-5)
    promoted = promote_batch_shape(built)
    assert promoted.shape() == (4, 3, 2)
    np.testing.assert_allclose(promoted.log_prob(x), expected, rtol=1e-5)


@few
def test_expand_keeps_the_methods_of_a_joint_law(case):
    batch_shape = (4, *case.batch_shape)
    wide = case.expand(batch_shape)
    assert wide.shape() == (*batch_shape, 2)
    x = wide.sample(KEY)
    assert np.unique(x).size == x.size
    np.testing.assert_allclose(wide.log_prob(x), case.log_prob(x), rtol=1e-5, atol=1e-5)
    assert wide.marginalize([1]).shape() == (*batch_shape, 1)
    given = wide.condition(0, x[..., :1])
    assert given.shape() == (*batch_shape, 1)
    expected = wide.log_prob(x) - wide.marginalize(0).log_prob(x[..., :1])
    np.testing.assert_allclose(given.log_prob(x[..., 1:]), expected, rtol=1e-4, atol=1e-4)
    twice = case.expand((1, *case.batch_shape)).expand((4, *case.batch_shape))
    assert traced(lambda d: d.sample(KEY, (2,)), twice).shape == (2, 4, *case.shape())
    assert case.expand_by((5,)).batch_shape == (5, *case.batch_shape)


@pytest.mark.parametrize("shape", [(), (2, 4)])
def test_expand_to_a_wrong_shape(shape):
    with pytest.raises(ValueError, match=r"of shape \(3,\) to shape \(.*; add axes on the left"):
        make("matrix_batch").expand(shape)


@few
def test_plate_to_event_and_mask(case):
    with (
        numpyro.handlers.seed(rng_seed=0),
        numpyro.plate("points", 3, dim=-1 - len(case.batch_shape)),
    ):
        x = numpyro.sample("x", case)
    assert x.shape == (3, *case.shape())
    x = x[0]
    log_prob = np.asarray(case.log_prob(x))
    event = case.to_event()
    assert (event.batch_shape, event.event_shape) == ((), case.shape())
    np.testing.assert_allclose(event.log_prob(x), log_prob.sum(), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(case.mask(False).log_prob(x), np.zeros_like(log_prob))
    np.testing.assert_allclose(case.mask(np.ones(case.batch_shape, bool)).log_prob(x), log_prob)


def test_support_is_where_the_density_is(case):
    assert np.all(case.support(case.sample(KEY, (500,))))
    z = 2.0 * jax.random.normal(KEY, (100, *case.shape()))
    x = biject_to(case.support)(z)
    assert np.isfinite(case.log_prob(x)).all()
    outside = np.array([0.0, -99.0])
    assert np.isfinite(case.support.feasible_like(jnp.zeros(case.shape()))).all()
    assert not np.all(case.support(outside)) or case.support is constraints.real_vector


@pytest.mark.parametrize("name", BOUNDED)
def test_outside_the_support_without_validation(name):
    quiet = make(name, validate_args=False)
    inside = quiet.mean
    for outside in (inside.at[..., 0].add(-99.0), inside.at[..., 1].add(-99.0), inside - 99.0):
        assert (np.asarray(quiet.log_prob(outside)) == -np.inf).all()
    assert np.isnan(quiet.log_prob(inside.at[..., 0].set(jnp.nan))).all()
    leaves, structure = jax.tree.flatten(jax.tree.map(lambda leaf: jnp.asarray(leaf, float), quiet))

    def total(leaves, x):
        log_prob = jax.tree.unflatten(structure, leaves).log_prob(x)
        return jnp.sum(jnp.where(jnp.isfinite(log_prob), log_prob, 0))

    x = jnp.stack([inside, inside - 99.0, inside.at[..., 0].add(-99.0)])
    gradient = jax.jit(jax.grad(total, argnums=(0, 1)))
    gradients, alone = gradient(leaves, x), gradient(leaves, inside[None])
    assert (np.asarray(gradients[1][1:]) == 0).all()
    for got, expected in zip(gradients[0], alone[0], strict=True):
        assert np.isfinite(got).all()
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["sums", "conditional"])
def test_at_the_bounds(name):
    d = make(name)
    for edge in (d.support.lower_bound, d.support.upper_bound):
        x = jnp.broadcast_to(jnp.asarray(edge, float), d.shape())
        assert not np.isnan(d.log_prob(x)).any()
        assert not np.isnan(jax.grad(lambda x: d.log_prob(x).sum())(x)).any()


@pytest.mark.parametrize("name", ["paretos", "conditional"])
def test_warning_for_values_outside_the_support(name):
    with pytest.warns(UserWarning, match="Out-of-support values"):
        log_prob = make(name).log_prob(np.array([0.0, -99.0]))
    assert (np.asarray(log_prob) == -np.inf).all()
    with pytest.warns(UserWarning, match="Out-of-support values"):  # what is known while tracing
        jax.jit(lambda: make(name).log_prob(np.array([0.0, -99.0])))()
