"""`LinearizedMarginal` as a NumPyro distribution: declaration, shapes, pytree, validation."""

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

from nn_uq_dist import LinearizedMarginal

KEY = jax.random.key(3)
PARAMETERS = ("loc", "weights", "normal_scale")

# name: arguments and the batch shape that they must give. Few weights: the formulas are closed, and
# compile fast. The one scalar case with a normal part stands for those that need the contour.
CASES = {
    "one": ((0.3, np.array([0.7])), ()),
    "two": ((-0.1, np.array([0.7, -0.4])), ()),
    "both": (
        (np.array([[0.0], [0.2], [-0.3]]), np.array([[0.7, 0.2, 0.0], [0.4, 0.9, 0.1]])),
        (3, 2),
    ),
    "normal": ((0.2, np.array([0.7, 0.5]), 0.4), ()),
}
BOUNDED = [name for name, (args, _) in CASES.items() if len(args) == 2]
# Where nothing but shapes and bookkeeping is asked, more of them.
SHAPES = {
    **CASES,
    "loc_batch": ((np.zeros(2), np.array([0.6, 0.4, 0.0])), (2,)),
    "weights_batch": ((0.5, np.array([[0.7, 0.2], [0.4, 0.9]])), (2,)),
    "normal_batch": ((0.2, np.array([0.7, 0.5]), np.array([[0.4], [1.0]])), (2, 1)),
    "normal_widens": ((np.zeros(3), np.ones((2, 1, 6)), np.array([0.0, 0.4, 1.0])), (2, 3)),
}


def make(name, **kwargs):
    return LinearizedMarginal(*SHAPES[name][0], **kwargs)


@pytest.fixture(params=CASES)
def case(request):
    return make(request.param)


# With bounds and without, scalar and batch.
few = pytest.mark.parametrize("case", ["both", "normal"], indirect=True)


@pytest.fixture(params=["two", "both"])
def bounded(request):
    return make(request.param)


def test_declaration():
    assert set(LinearizedMarginal.arg_constraints) == set(PARAMETERS)
    assert set(LinearizedMarginal.reparametrized_params) == set(PARAMETERS)
    assert [c.event_dim for c in LinearizedMarginal.arg_constraints.values()] == [0, 1, 0]
    assert LinearizedMarginal.support.event_dim == 0
    assert not LinearizedMarginal.support.is_discrete
    d = make("one")
    assert d.has_rsample
    assert not d.is_discrete
    # Without a normal part there is no array for it.
    assert set(d.get_args()) == set(PARAMETERS[:2])
    assert set(make("normal").get_args()) == set(PARAMETERS)


@pytest.mark.parametrize("name", SHAPES)
def test_shapes(name):
    args, batch_shape = SHAPES[name]
    d = make(name)
    assert (d.batch_shape, d.event_shape) == (batch_shape, ())
    for sample_shape in [(), (2, 1)]:
        assert d.sample(KEY, sample_shape).shape == (*sample_shape, *batch_shape)
    np.testing.assert_array_equal(d.rsample(KEY, (2, 1)), d.sample(KEY, (2, 1)))
    for value in (d.mean, d.variance, d.excess_kurtosis):
        assert value.shape == batch_shape
    shapes = [np.shape(arg) for arg in args]
    assert LinearizedMarginal.infer_shapes(*shapes) == (batch_shape, ())


@few
def test_shapes_of_functions(case):
    x = case.sample(KEY, (2,))
    assert case.log_prob(x).shape == case.cdf(x).shape == case.normal_score(x).shape == x.shape
    # A scalar broadcasts against every law of the batch.
    for function in (case.log_prob, case.cdf, case.icdf, case.from_normal_score):
        assert function(0.25).shape == case.batch_shape
    assert case.entropy().shape == case.batch_shape


@few
def test_draws_are_independent(case):
    x = np.asarray(case.sample(KEY, (50,)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        legacy = jax.random.PRNGKey(0)
    assert case.sample(legacy, (50,)).shape == x.shape
    assert np.unique(x).size == x.size
    assert not np.isclose(case.sample(jax.random.key(4), (50,)), x).any()


@pytest.mark.parametrize("name", ["normal"])
def test_dtype(name, precision):
    case = make(name)
    want = np.dtype(precision)
    x = case.sample(KEY)
    outcomes = {
        "sample": x,
        "log_prob": case.log_prob(x),
        "cdf": case.cdf(x),
        "icdf": case.icdf(0.3),
        "mean": case.mean,
        "variance": case.variance,
        "excess_kurtosis": case.excess_kurtosis,
    }
    assert {key: value.dtype for key, value in outcomes.items()} == dict.fromkeys(outcomes, want)


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_dtype_follows_the_parameters_and_widens_to_the_value():
    single = LinearizedMarginal(np.float32(0.3), np.array([0.7, 0.4], np.float32))
    assert single.sample(KEY).dtype == single.mean.dtype == single.variance.dtype == np.float32
    assert single.log_prob(0.5).dtype == np.float32
    assert single.log_prob(np.float64(0.5)).dtype == np.float64


@few
def test_pytree_round_trip_and_pickle(case):
    leaves, structure = jax.tree.flatten(case)
    assert all(isinstance(leaf, np.ndarray | float) for leaf in leaves)
    x = case.sample(KEY, (3,))
    for used in (case.log_prob(x), case.cdf(x), case.mean, case.variance, case.support):
        assert used is not None
    assert jax.tree.structure(case) == structure  # a carry of `scan` keeps it under use
    for back in (jax.tree.unflatten(structure, leaves), pickle.loads(pickle.dumps(case))):  # noqa: S301
        assert type(back) is LinearizedMarginal
        assert back.batch_shape == case.batch_shape
        np.testing.assert_array_equal(back.sample(KEY, (3,)), x)
        np.testing.assert_array_equal(back.log_prob(x), case.log_prob(x))
        assert (back.support is constraints.real) == (case.support is constraints.real)


@few
def test_jit_takes_and_returns_distributions(case):
    x = case.sample(KEY)
    shifted = jax.jit(lambda d: LinearizedMarginal(d.loc + 1.0, d.weights, d.normal_scale))(case)
    assert shifted.batch_shape == case.batch_shape
    np.testing.assert_allclose(shifted.log_prob(x + 1.0), case.log_prob(x), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        jax.jit(lambda d, x: d.log_prob(x))(case, x), case.log_prob(x), rtol=1e-5, atol=1e-6
    )


def test_scan_carry():
    d = jax.tree.map(jnp.asarray, make("normal"))

    def step(d, _):
        moved = LinearizedMarginal(d.loc + 1.0, d.weights, d.normal_scale)
        return moved, moved.mean

    last, means = jax.lax.scan(step, d, length=3)
    np.testing.assert_allclose(means, d.loc + np.arange(1.0, 4.0), rtol=1e-6)
    assert jax.tree.structure(last) == jax.tree.structure(d)


def test_new_parameter_values_do_not_retrace():
    traces = []

    @jax.jit
    def log_prob(d):
        traces.append(d)
        return d.log_prob(0.1)

    for scale in (1.0, 1.1, 1.2):
        log_prob(LinearizedMarginal(*[part * scale for part in CASES["normal"][0]]))
    assert len(traces) == 1


def test_vmap_over_names_the_parameters():
    registered = inspect.signature(vmap_over.dispatch(LinearizedMarginal)).parameters
    assert set(PARAMETERS) <= set(registered)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["two", "both", "normal"])
def test_vmap(name):
    args, batch_shape = CASES[name]
    stacked = [np.stack([np.asarray(part), 1.5 * np.asarray(part)]) for part in args]
    x = np.stack([make(name).mean, 1.5 * make(name).mean]) + 0.1
    expected = [LinearizedMarginal(*[part[i] for part in stacked]).log_prob(x[i]) for i in (0, 1)]

    built = jax.vmap(LinearizedMarginal)(*stacked)
    through = jax.vmap(lambda d, x: d.log_prob(x))(built, x)
    np.testing.assert_allclose(through, expected, rtol=1e-5)
    if not batch_shape:  # mapped over some parameters only
        axes = vmap_over(make(name), loc=0)
        moved = jax.vmap(lambda m: LinearizedMarginal(m, *args[1:]), out_axes=axes)(stacked[0])
        assert moved.loc.shape == (2,)
        assert moved.weights.shape == args[1].shape
        partly = jax.vmap(lambda d, x: d.log_prob(x), in_axes=(vmap_over(moved, loc=0), None))
        expected_partly = [LinearizedMarginal(m, *args[1:]).log_prob(x[0]) for m in stacked[0]]
        np.testing.assert_allclose(partly(moved, x[0]), expected_partly, rtol=1e-5)

    ranks = {np.ndim(part) - (i == 1) for i, part in enumerate(args)}
    if len(ranks) == 1:  # NumPyro aligns mapped parameters on the right
        promoted = promote_batch_shape(built)
        assert promoted.batch_shape == (2, *batch_shape)
        np.testing.assert_allclose(promoted.log_prob(x), expected, rtol=1e-5)


@pytest.mark.parametrize("name", ["two", "both"])
def test_expand_keeps_cdf_and_icdf(name):
    case = make(name)
    batch_shape = (3, *case.batch_shape)
    wide = case.expand(batch_shape)
    assert wide.batch_shape == batch_shape
    x = wide.sample(KEY)
    assert np.unique(x).size == x.size
    for method in ("log_prob", "cdf"):
        expected = getattr(case, method)(x)
        np.testing.assert_allclose(getattr(wide, method)(x), expected, rtol=1e-5, atol=1e-6)
    quantile = np.broadcast_to(case.icdf(0.2), batch_shape)
    np.testing.assert_allclose(wide.icdf(0.2), quantile, rtol=1e-5)
    for moment in ("mean", "variance"):
        expected = np.broadcast_to(getattr(case, moment), batch_shape)
        np.testing.assert_allclose(getattr(wide, moment), expected, rtol=1e-6)
    twice = case.expand((1, *case.batch_shape)).expand((4, *case.batch_shape))
    assert twice.sample(KEY, (2,)).shape == (2, 4, *case.batch_shape)
    assert wide.expand_by((5,)).batch_shape == (5, *batch_shape)


def test_expand_keeps_validation_and_the_kind_of_support():
    for name in ("two", "normal"):
        assert type(make(name).expand((2,)).support) is type(make(name).support)
    quiet = make("two", validate_args=False).expand((2,))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (quiet.log_prob(99.0) == -np.inf).all()


@pytest.mark.parametrize("shape", [(), (2, 3)])
def test_expand_to_a_wrong_shape(shape):
    with pytest.raises(ValueError, match=r"of shape \(2,\) to shape \(.*; add axes on the left"):
        make("weights_batch").expand(shape)


@few
def test_to_event_and_mask(case):
    x = case.sample(KEY)
    log_prob = np.asarray(case.log_prob(x))
    joint = case.to_event()
    assert (joint.batch_shape, joint.event_shape) == ((), case.batch_shape)
    np.testing.assert_allclose(joint.log_prob(x), log_prob.sum(), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(case.mask(False).log_prob(x), np.zeros_like(log_prob))
    np.testing.assert_allclose(case.mask(np.ones(case.batch_shape, bool)).log_prob(x), log_prob)


@few
def test_plate(case):
    plate = numpyro.plate("points", 3, dim=-1 - len(case.batch_shape))
    with numpyro.handlers.seed(rng_seed=0), plate:
        x = numpyro.sample("x", case)
    assert x.shape == (3, *case.batch_shape)
    assert np.unique(x).size == x.size


def test_support(case):
    draws = case.sample(KEY, (500,))
    if case.support is constraints.real:
        assert len(jax.tree.leaves(case)) == 3
        return
    low, high = (np.asarray(b) for b in (case.support.lower_bound, case.support.upper_bound))
    width = np.sum(np.abs(case.weights), axis=-1)
    np.testing.assert_allclose(low, case.mean - width, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(high, case.mean + width, rtol=1e-6, atol=1e-6)
    assert case.support(draws).all()
    # Inference walks over biject_to(support): the density is positive all over it.
    z = 2.0 * jax.random.normal(KEY, (100, *case.batch_shape))
    x = dist.biject_to(case.support)(z)
    assert np.isfinite(case.log_prob(x)).all()


@pytest.mark.slow
def test_outside_the_support_without_validation(bounded):
    quiet = LinearizedMarginal(bounded.loc, bounded.weights, validate_args=False)
    high = quiet.support.upper_bound
    for outside in (quiet.support.lower_bound - 1.0, high + 0.1):
        assert (np.asarray(quiet.log_prob(outside)) == -np.inf).all()

    def inside_only(parameters, x):
        log_prob = LinearizedMarginal(*parameters, validate_args=False).log_prob(x)
        return jnp.sum(jnp.where(jnp.arange(2).reshape(-1, *[1] * (x.ndim - 1)) == 0, log_prob, 0))

    x = jnp.stack([quiet.mean + 0.05, jnp.broadcast_to(high + 0.1, quiet.batch_shape)])
    parameters = (jnp.asarray(quiet.loc), jnp.asarray(quiet.weights))
    gradients = jax.grad(inside_only, argnums=(0, 1))(parameters, x)
    assert all(np.isfinite(g).all() for g in jax.tree.leaves(gradients))


def test_at_the_bounds(bounded):
    for edge in (bounded.support.lower_bound, bounded.support.upper_bound):
        bound = jnp.broadcast_to(jnp.asarray(edge), bounded.batch_shape)
        assert not np.isnan(bounded.log_prob(bound)).any()
        slope = jax.grad(lambda x: bounded.log_prob(x).sum())(bound)
        assert not np.isnan(slope).any()


def test_warning_for_values_outside_the_support(bounded):
    with pytest.warns(UserWarning, match="Out-of-support values"):
        log_prob = bounded.log_prob(99.0)
    assert (np.asarray(log_prob) == -np.inf).all()


@pytest.mark.parametrize("name", ["two", "normal"])
def test_numpy_values_with_traced_parameters(name):
    x = np.asarray(make(name).mean) + 0.05
    traced = jax.jit(lambda *args: LinearizedMarginal(*args).log_prob(x))(*CASES[name][0])
    np.testing.assert_allclose(traced, make(name).log_prob(x), rtol=1e-4, atol=1e-5)
    if name in BOUNDED:  # warns only for what is known while tracing
        with pytest.warns(UserWarning, match="Out-of-support"):
            jax.jit(lambda: make(name).log_prob(np.float32(99.0)))()


def test_constants_and_lists_are_checked_while_tracing():
    with pytest.raises(ValueError, match="invalid normal_scale"):
        jax.jit(lambda x: LinearizedMarginal(x, [1.0], -1.0).log_prob(0.0))(0.0)
    with pytest.raises(ValueError, match="point mass"):
        jax.jit(lambda x: LinearizedMarginal(x, [0.0, 0.0]).log_prob(0.0))(0.0)


def test_a_list_may_hold_traced_values():
    half = jax.jit(lambda w: LinearizedMarginal(0.0, [w, 0.5]).variance)(1.0)
    np.testing.assert_allclose(half, 1.25 / 3, rtol=1e-6)
