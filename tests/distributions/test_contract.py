"""All distributions as NumPyro's: declaration, shapes, pytree, `vmap`, handlers, support."""

import inspect
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.distributions import constraints
from numpyro.distributions.batch_util import promote_batch_shape, vmap_over
from numpyro.distributions.transforms import biject_to

from nn_uq_dist import GaussianCopulaJoint, LinearizedJoint, LinearizedMarginal
from nn_uq_dist.distributions import (
    CorrectedMarginal,
    LinearizedConditional,
    NoisyMarginal,
)

KEY = jax.random.key(3)
LOC = np.array([0.2, -0.3])
WEIGHTS = np.array([[0.7, -0.4], [0.3, 0.5]])
NORMAL = np.array([[0.2, 0.0], [0.05, 0.3]])
MATRIX = np.array([[1.0, 0.6], [0.6, 1.0]])
MATRICES = np.stack([MATRIX, np.eye(2), [[1.0, -0.3], [-0.3, 1.0]]])
TRIL = np.array([[0.8, 0.0], [0.3, 0.5]])
KNOTS = np.array([-1.0, 0.0, 1.0])
MANY = np.array([[0.7, -0.4, 0.2, 0.1], [0.3, 0.5, 0.1, 0.2], [0.2, 0.2, 0.6, 0.4]])


def sums(*batch_shape, scale=None):
    loc = LOC + 0.1 * np.arange(np.prod(batch_shape, dtype=int)).reshape(*batch_shape, 1)
    return LinearizedMarginal(loc, WEIGHTS, scale)


# name: class, arguments, and the batch shape that they must give. Few weights and closed formulas:
# they compile fast.
LAWS = {
    "marginals": (
        LinearizedMarginal,
        (np.array([[0.0], [0.2], [-0.3]]), np.array([[0.7, 0.2, 0.0], [0.4, 0.9, 0.1]])),
        (3, 2),
    ),
    "marginal with noise": (LinearizedMarginal, (0.2, np.array([0.7, 0.5]), 0.4), ()),
    "corrected": (CorrectedMarginal, (sums(), KNOTS, KNOTS + 0.1 * KNOTS**2), (2,)),
    "joint with noise": (
        LinearizedJoint,
        (np.zeros((2, 1, 2)), np.stack([WEIGHTS, 2 * WEIGHTS, -WEIGHTS]), NORMAL),
        (2, 3),
    ),
    "copula": (GaussianCopulaJoint, (sums(), MATRIX), ()),
    "copula conditional": (
        GaussianCopulaJoint,
        (dist.Uniform(LOC - 1, LOC + 1), None, LOC, TRIL),
        (),
    ),
}
# Where nothing but shapes and bookkeeping is asked, more of them.
SHAPES = LAWS | {
    "noise batch": (
        LinearizedMarginal,
        (np.zeros(3), np.ones((2, 1, 6)), np.array([0.0, 0.4, 1.0])),
        (2, 3),
    ),
    "noisy": (NoisyMarginal, (sums(), 0.3), (2,)),
    "one mean": (LinearizedJoint, (0.5, WEIGHTS[:, :1], np.stack([NORMAL] * 3)), (3,)),
    "conditional": (LinearizedConditional, ([0.5], np.zeros(3), MANY), ()),
    "values batch": (
        LinearizedConditional,
        (np.zeros((3, 1, 1)), np.zeros(3), np.stack([MANY] * 2)),
        (3, 2),
    ),
    "copula of normals": (
        GaussianCopulaJoint,
        (dist.Normal(np.ones((2, 1, 2)), 0.5), MATRICES),
        (2, 3),
    ),
    "both batches": (GaussianCopulaJoint, (sums(2, 1), MATRICES), (2, 3)),
    "conditional batch": (
        GaussianCopulaJoint,
        (sums(2, 1), None, LOC, np.stack([TRIL] * 3)),
        (2, 3),
    ),
}


def make(name, **kwargs):
    cls, arguments, _ = SHAPES[name]
    return cls(*arguments, **kwargs)


@pytest.fixture(params=LAWS)
def case(request):
    return make(request.param)


def traced(function, *args):
    """Shape and dtype of what comes out of a function of a distribution; nothing is compiled."""
    return jax.eval_shape(function, *args)


@pytest.mark.parametrize("cls", dict.fromkeys(kind for kind, *_ in SHAPES.values()))
def test_declaration(cls):
    parameters = set(inspect.signature(cls.__init__).parameters) - {"self", "validate_args"}
    assert set(cls.arg_constraints) == parameters - {"base_marginals", "base"}
    assert set(cls.reparametrized_params) in ({*cls.arg_constraints}, set())
    assert not any(constraint.is_discrete for constraint in cls.arg_constraints.values())
    assert not cls.support.is_discrete
    assert set(cls.gather_pytree_data_fields()) == parameters
    # NumPyro's own tests ask the signature, and check nothing without names.
    assert parameters <= set(inspect.signature(vmap_over.dispatch(cls)).parameters)


@pytest.mark.parametrize("name", SHAPES)
def test_shapes(name):
    cls, _, batch_shape = SHAPES[name]
    d = make(name)
    shape = (*batch_shape, *d.event_shape)
    assert d.batch_shape == batch_shape
    x = traced(lambda d: d.sample(KEY, (5, 1)), d)
    assert x.shape == (5, 1, *shape)
    assert traced(lambda d, x: d.log_prob(x), d, x).shape == (5, 1, *batch_shape)
    assert traced(d.log_prob, jnp.zeros((0, *shape))).shape == (0, *batch_shape)
    # A single event broadcasts against every distribution of the batch.
    one = jnp.full(d.event_shape, 0.25)
    assert traced(lambda d: d.log_prob(one), d).shape == batch_shape
    assert traced(lambda d: d.mean, d).shape == traced(lambda d: d.variance, d).shape == shape
    if d.event_shape:
        assert traced(lambda d: d.covariance_matrix, d).shape == (*shape, *d.event_shape)
        wide = traced(lambda d: d.expand((4, *batch_shape)).log_prob(one), d)
        assert wide.shape == (4, *batch_shape)
    if cls in {LinearizedMarginal, GaussianCopulaJoint}:
        method = "marginal_cdf" if d.event_shape else "icdf"
        assert traced(lambda d: getattr(d, method)(one), d).shape == shape
        assert traced(lambda d: d.entropy(), d).shape == batch_shape
    if batch_shape:
        none = d[:0]
        assert traced(none.log_prob, jnp.zeros(none.shape())).shape == none.batch_shape


def test_draws_are_independent_and_those_of_the_key(case):
    x = np.asarray(case.sample(KEY, (50,)))
    assert case.has_rsample == bool(case.reparametrized_params)
    assert np.unique(x).size == x.size
    assert not np.isclose(case.sample(jax.random.key(4), (50,)), x).any()


@pytest.mark.parametrize("name", ["marginal with noise", "joint with noise", "conditional batch"])
def test_dtype(name, precision):
    d = make(name)
    x = traced(lambda d: d.sample(KEY), d)
    outcomes = {
        "sample": lambda d, x: x,
        "log_prob": lambda d, x: d.log_prob(x),
        "mean": lambda d, x: d.mean,
        "covariance_matrix": lambda d, x: d.covariance_matrix,
        "excess_kurtosis": lambda d, x: d.excess_kurtosis,
        "marginal_icdf": lambda d, x: d.marginal_icdf(np.array([0.3, 0.6])),
        "condition": lambda d, x: d.condition(0, x[..., :1]).mean,
        "marginalize": lambda d, x: d.marginalize([1]).log_prob(x[..., 1:]),
    }
    if not d.event_shape:
        outcomes["icdf"] = lambda d, x: d.icdf(0.3)
    for key, outcome in outcomes.items():
        if hasattr(type(d), key):
            assert traced(outcome, d, x).dtype == precision, key


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_dtype_follows_the_parameters_and_widens_to_the_value():
    marginals = LinearizedMarginal(LOC.astype(np.float32), WEIGHTS.astype(np.float32))
    for single in (marginals, GaussianCopulaJoint(marginals, MATRIX.astype(np.float32))):
        x = single.sample(KEY)
        assert x.dtype == single.mean.dtype == single.variance.dtype == np.float32
        assert single.log_prob(x).dtype == np.float32
        assert single.log_prob(np.asarray(x, np.float64)).dtype == np.float64
    assert GaussianCopulaJoint(marginals, MATRIX).sample(KEY).dtype == np.float64


def test_pytree_pickle_and_jit(case):
    before = jax.tree.structure(case)
    x = case.sample(KEY, (3,))
    log_prob = case.log_prob(x)
    for used in (case.mean, case.variance, case.support):
        assert used is not None
    leaves, structure = jax.tree.flatten(case)
    assert structure == before  # a carry of `scan` must keep its structure under use
    assert all(isinstance(leaf, jax.Array | np.ndarray | float | int) for leaf in leaves)
    for back in (jax.tree.unflatten(structure, leaves), pickle.loads(pickle.dumps(case))):  # noqa: S301
        assert type(back) is type(case)
        assert back.shape() == case.shape()
        assert jax.tree.structure(back) == before
        assert type(back.support) is type(case.support)
        np.testing.assert_array_equal(back.log_prob(x), log_prob)
    through, found = jax.jit(lambda d, x: (d, d.log_prob(x)))(case, x)
    assert through.shape() == case.shape()
    np.testing.assert_allclose(found, log_prob, rtol=1e-4, atol=2e-5)


def test_intermediates_of_draws_save_an_inversion():
    d = make("copula")
    x, intermediates = d.sample_with_intermediates(KEY)
    np.testing.assert_array_equal(x, d.sample(KEY))
    np.testing.assert_allclose(d.log_prob(x, intermediates), d.log_prob(x), rtol=1e-4, atol=1e-4)


def test_scan_carry_and_new_parameters_do_not_retrace():
    traces = []

    def step(d, _):
        marginals = LinearizedMarginal(d.marginals.loc + 1.0, d.marginals.weights)
        moved = GaussianCopulaJoint(marginals, d.correlation_matrix)
        return moved, moved.mean

    _, means = jax.lax.scan(step, jax.tree.map(jnp.asarray, make("copula")), length=3)
    np.testing.assert_allclose(means, LOC + np.arange(1.0, 4.0)[:, None], rtol=1e-6)

    @jax.jit
    def log_prob(d):
        traces.append(d)
        return d.log_prob(LOC)

    for scale in (1.0, 1.1, 1.2):
        log_prob(GaussianCopulaJoint(LinearizedMarginal(scale * LOC, scale * WEIGHTS), MATRIX))
    assert len(traces) == 1


# Which argument is scaled by each of three widths, the others being shared.
WIDTHS = np.array([1.0, 1.5, 2.0], np.float32)
SCALED = [
    ("marginals", 1),
    ("corrected", 2),
    ("noisy", 1),
    ("joint with noise", 1),
    ("conditional", 2),
    ("both batches", 0),
    ("conditional batch", 0),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "position"), SCALED)
def test_vmap_is_a_loop_and_its_axis_becomes_a_batch_axis(name, position):
    """The axis that `vmap` adds must not meet a batch axis of another parameter."""
    cls, (*arguments,), _ = SHAPES[name]

    def of_width(width):
        scaled = jax.tree.map(lambda leaf: width * leaf, arguments[position])
        return cls(*arguments[:position], scaled, *arguments[position + 1 :])

    distributions = jax.vmap(of_width)(WIDTHS)
    shape = of_width(1.0).shape()
    x = np.array([0.05, -0.2, 0.1]).reshape(3, *[1] * len(shape)) + np.zeros(shape)
    expected = [of_width(w).log_prob(point) for w, point in zip(WIDTHS, x, strict=True)]
    assert distributions.shape() == promote_batch_shape(distributions).shape() == (3, *shape)
    np.testing.assert_allclose(distributions.log_prob(x), expected, rtol=1e-5, atol=1e-5)
    # And `vmap` over a batch is a loop over its entries.
    found = jax.vmap(lambda distribution, point: distribution.log_prob(point))(distributions, x)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    for outcome in (lambda d: d.mean, lambda d: d.variance, lambda d: d.sample(KEY)):
        assert traced(jax.vmap(outcome), distributions).shape == (3, *shape)


def test_expand_keeps_the_methods(case):
    batch_shape = (4, *case.batch_shape)
    wide = case.expand(batch_shape)
    assert wide.shape() == (*batch_shape, *case.event_shape)
    assert type(wide.support) is type(case.support)
    x = wide.sample(KEY)
    assert np.unique(x).size == x.size
    np.testing.assert_allclose(wide.log_prob(x), case.log_prob(x), rtol=1e-4, atol=1e-5)
    assert case.expand((1, *case.batch_shape)).expand(batch_shape).shape() == wide.shape()
    if not case.event_shape:
        np.testing.assert_allclose(wide.cdf(x), case.cdf(x), rtol=1e-5, atol=1e-6)
        quantile = np.broadcast_to(case.icdf(0.2), batch_shape)
        np.testing.assert_allclose(wide.icdf(0.2), quantile, rtol=1e-5)


def test_plate_to_event_and_mask(case):
    plate = numpyro.plate("points", 3, dim=-1 - len(case.batch_shape))
    with numpyro.handlers.seed(rng_seed=0), plate:
        x = numpyro.sample("x", case)
    assert x.shape == (3, *case.shape())
    assert np.unique(x).size == x.size
    x = x[0]
    log_prob = np.asarray(case.log_prob(x))
    event = case.to_event()
    assert (event.batch_shape, event.event_shape) == ((), case.shape())
    np.testing.assert_allclose(event.log_prob(x), log_prob.sum(), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(case.mask(False).log_prob(x), np.zeros_like(log_prob))
    np.testing.assert_allclose(case.mask(np.ones(case.batch_shape, bool)).log_prob(x), log_prob)


def test_support_is_where_the_density_is(case):
    assert np.all(case.support(case.sample(KEY, (500,))))
    # Inference walks over biject_to(support).
    x = biject_to(case.support)(2.0 * jax.random.normal(KEY, (100, *case.shape())))
    if not isinstance(case, LinearizedJoint):  # whose support is within this box
        assert np.isfinite(case.log_prob(x)).all()
    assert np.isfinite(case.support.feasible_like(jnp.zeros(case.shape()))).all()
    outside = np.full(case.event_shape, -99.0)
    is_unbounded = case.support in (constraints.real, constraints.real_vector)
    assert np.all(case.support(outside)) == is_unbounded


BOUNDED = ["marginals", "copula"]


@pytest.mark.slow
@pytest.mark.parametrize("name", BOUNDED)
def test_gradients_are_those_of_the_points_inside(name):
    quiet = jax.tree.map(lambda leaf: jnp.asarray(leaf, float), make(name, validate_args=False))
    leaves, structure = jax.tree.flatten(quiet)
    inside = jnp.asarray(quiet.mean)

    def total(leaves, x):
        log_prob = jax.tree.unflatten(structure, leaves).log_prob(x)
        return jnp.sum(jnp.where(jnp.isfinite(log_prob), log_prob, 0))

    gradient = jax.jit(jax.grad(total, argnums=(0, 1)))
    gradients, alone = gradient(leaves, jnp.stack([inside, inside - 99])), gradient(leaves, inside)
    assert (np.asarray(gradients[1][1]) == 0).all()
    for got, expected in zip(gradients[0], alone[0], strict=True):
        assert np.isfinite(got).all()
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", BOUNDED)
def test_at_and_beyond_the_bounds(name):
    d = make(name)
    for edge in (d.support.lower_bound, d.support.upper_bound):
        x = jnp.broadcast_to(jnp.asarray(edge, float), d.shape())
        assert not np.isnan(d.log_prob(x)).any()
        assert not np.isnan(jax.grad(lambda x: d.log_prob(x).sum())(x)).any()
    far = np.full(d.event_shape, -99.0)
    with pytest.warns(UserWarning, match="Out-of-support values") as warned:
        assert (np.asarray(d.log_prob(far)) == -np.inf).all()
    assert {warning.filename for warning in warned} == {__file__}  # the line of the user


@pytest.mark.parametrize("name", [*BOUNDED, "joint with noise", "conditional"])
def test_infinite_values_have_no_density_and_no_slope(name):
    d = make(name, validate_args=False)
    values = np.array([np.inf, -np.inf, np.finfo(np.float32).max, np.nan], np.float32)
    x = np.broadcast_to(values.reshape(4, *(1,) * len(d.shape())), (4, *d.shape()))
    if d.event_shape:  # one output is enough
        x = np.where(np.arange(d.event_shape[0]) == 0, x, np.float32(0))
    logs, slopes = jax.jit(lambda x: (d.log_prob(x), jax.grad(lambda x: d.log_prob(x).sum())(x)))(x)
    assert (logs[:3] == -np.inf).all()
    assert (slopes[:3] == 0).all()
    assert np.isnan(logs[3]).all()
    assert np.isnan(slopes[3]).any()


def test_numpy_values_with_traced_parameters_and_checks_while_tracing():
    arguments = LAWS["marginal with noise"][1]
    found = jax.jit(lambda *args: LinearizedMarginal(*args).log_prob(np.float32(0.1)))(*arguments)
    np.testing.assert_allclose(found, make("marginal with noise").log_prob(0.1), rtol=1e-4)
    with pytest.raises(ValueError, match="normal_scale must not be negative"):
        jax.jit(lambda x: LinearizedMarginal(x, [1.0], -1.0).log_prob(0.0))(0.0)
    with pytest.raises(ValueError, match="point mass"):
        jax.jit(lambda x: LinearizedMarginal(x, [0.0, 0.0]).log_prob(0.0))(0.0)
    half = jax.jit(lambda w: LinearizedMarginal(0.0, [w, 0.5]).variance)(1.0)  # a list of traced
    np.testing.assert_allclose(half, 1.25 / 3, rtol=1e-6)
