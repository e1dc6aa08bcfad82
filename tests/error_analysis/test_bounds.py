"""Bounds of the linearization error, and the certificate of exactness: against search."""

import importlib
import itertools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import scipy.stats

from nn_uq_dist import InputLaw, LeakyReLUNetwork
from nn_uq_dist import error_analysis as ea

NUM_INPUTS = 3
CORNERS = np.array(list(itertools.product([-1.0, 1.0], repeat=NUM_INPUTS)))
OPERATORS = Path(__file__).parents[2] / "examples" / "operators"
SHAPES = {1: (3, 4, 2), 2: (3, 4, 4, 2), 3: (3, 5, 2, 4, 2), 5: (3, 3, 3, 3, 3, 3, 2)}


def random_networks(num_layers, count, seed):
    """Stacked networks with boxes from ones that flip nothing to ones that flip much."""
    rng = np.random.default_rng(seed)
    sizes = SHAPES[num_layers]
    weights = [rng.normal(size=(count, n, m)) for m, n in itertools.pairwise(sizes)]
    biases = [rng.normal(size=(count, n)) for n in sizes[1:-1]]
    # Where bias and center are zero, so is the pre-activation.
    biases = [np.where(rng.random(b.shape) < 0.1, 0, b) for b in biases]
    slopes = rng.choice([0.0, 0.01, 0.3, 0.9], size=count)
    one = jax.tree.map(lambda leaf: leaf[0], (weights, biases))
    like = LeakyReLUNetwork(one[0][:-1], one[1], one[0][-1])
    leaves = [*weights[:-1], *biases, weights[-1], slopes]
    nets = jax.tree.unflatten(jax.tree.structure(like), [jnp.asarray(leaf) for leaf in leaves])
    mu = rng.normal(size=(count, NUM_INPUTS)) * (rng.random((count, 1)) < 0.9)
    half_width = 10 ** rng.uniform(-3, 1, (count, 1)) * rng.uniform(0, 1, (count, NUM_INPUTS))
    inner = rng.uniform(-1, 1, (count, 24, NUM_INPUTS))
    points = np.concatenate([np.broadcast_to(CORNERS, (count, *CORNERS.shape)), inner], axis=1)
    return nets, mu, half_width, half_width[:, None, :] * points


@jax.jit
def errors_and_flips(nets, mu, z):
    def of_one(net, mu, z):
        before = jnp.concatenate(net.pre_activations(mu)) >= 0
        after = jax.vmap(lambda one: jnp.concatenate(net.pre_activations(mu + one)))(z) >= 0
        flips = (before != after).any()
        return ea.total_error(net, mu, z), ea.last_layer_residual(net, mu, z), flips

    return jax.vmap(of_one)(nets, mu, z)


@pytest.mark.parametrize("num_layers", SHAPES)
@pytest.mark.usefixtures("x64")
def test_no_bound_is_violated_and_certificates_hold(num_layers):
    count = 5000  # 20,000 networks in all
    nets, mu, half_width, z = random_networks(num_layers, count, seed=num_layers)
    total, last, flips = errors_and_flips(nets, mu, z)
    largest = {of: np.abs(e).max(axis=1) for of, e in (("total", total), ("last_layer", last))}
    law = InputLaw(mu, half_width)
    bounds = {
        (of, form): np.asarray(ea.deterministic_bound(nets, law, of=of, form=form))
        for of in largest
        for form in ("tightened", "corrected", "printed")
    }
    for (of, form), bound in bounds.items():
        assert bound.shape == (count, 2)
        if (of, form) == ("total", "printed"):
            continue  # no bound of the total: see the chain below
        # The factors are for rounding in the evaluation of the errors and of the norms.
        assert not (largest[of] > bound * (1 + 1e-12)).any()
        assert (bounds[of, "tightened"] <= bound * (1 + 1e-12)).all()
    exact = ea.is_exact_on_support(nets, law)
    assert 0.1 < exact.mean() < 0.9
    # The first layer that flips at all does so at a corner, which the search has visited.
    np.testing.assert_array_equal(exact, ~np.asarray(flips))
    assert not np.asarray(total)[exact].any()
    assert not bounds["total", "tightened"][exact].any()


@pytest.mark.parametrize("half_width", [0.01, 1.0])
@pytest.mark.usefixtures("x64")
def test_probabilistic_bounds_are_between_nothing_and_the_certain_ones(half_width):
    nets, mu, _, _ = random_networks(3, 50, seed=0)
    law = InputLaw(mu, half_width)
    for of, form in itertools.product(("total", "last_layer"), ("tightened", "corrected")):
        certain = ea.deterministic_bound(nets, law, of=of, form=form)
        rare, often = (
            ea.probabilistic_bound(nets, law, delta, of=of, form=form) for delta in (1e-9, 0.5)
        )
        np.testing.assert_allclose(rare, certain, rtol=1e-12)
        assert (often <= rare).all()
    assert (often < 0.9 * rare).all()


def chain(num_layers, slope=0.1):
    """W = A = 1 and pre-activations just below zero."""
    one = [[1.0]]
    return LeakyReLUNetwork([one] * num_layers, [[0.0]] * num_layers, one, slope)


@pytest.mark.parametrize("num_layers", [1, 2, 5])
@pytest.mark.usefixtures("x64")
def test_bounds_are_tight_on_the_chain_where_the_printed_one_fails(num_layers):
    mu, slope = np.array([-1e-12]), 0.1
    net, box = chain(num_layers, slope), InputLaw(mu, 1.0)
    error = ea.total_error(net, mu, [1.0])
    np.testing.assert_allclose(error, 1 - slope**num_layers, rtol=1e-10)
    for form in ("tightened", "corrected"):
        bound = ea.deterministic_bound(net, box, form=form)
        np.testing.assert_allclose(bound, error, rtol=1e-10)
        last = ea.deterministic_bound(net, box, of="last_layer", form=form)
        np.testing.assert_allclose(last, 1 - slope, rtol=1e-10)
    printed = ea.deterministic_bound(net, box, form="printed")
    np.testing.assert_allclose(printed, 1 - slope, rtol=1e-10)
    if num_layers > 1:
        assert printed < error


def test_skip_connection_and_output_bias_change_no_bound():
    net, box = chain(2), InputLaw([0.2], 1.0)
    one = net.output_matrix
    affine = LeakyReLUNetwork(net.hidden_weights, net.biases, one, 0.1, True, [3.0])
    for form in ("tightened", "corrected", "printed"):
        bounds = [ea.deterministic_bound(n, box, form=form) for n in (net, affine)]
        np.testing.assert_array_equal(*bounds)


@pytest.mark.usefixtures("x64")
def test_norm_bounds_match_the_formulas():
    # Loops over layers in plain NumPy, unequal widths and half-widths.
    rng = np.random.default_rng(3)
    weights = [rng.normal(size=(4, 3)), rng.normal(size=(2, 4)), rng.normal(size=(5, 2))]
    biases = [rng.normal(size=len(w)) for w in weights]
    biases[1] -= 100  # no neuron of this layer is on, and some of the next one
    biases[2][0] += 1000
    output, slope, mu = rng.normal(size=(2, 5)), 0.2, rng.normal(size=3)
    b = np.array([0.5, 0.0, 2.0])
    norms = [np.linalg.svd(w)[1][0] for w in weights]
    largest, signal, jacobian = [], mu, np.eye(3)
    for w, bias in zip(weights, biases, strict=True):
        h = w @ signal + bias
        slopes = np.where(h >= 0, 1, slope)
        largest.append(slopes.max())
        signal, jacobian = slopes * h, slopes[:, None] * (w @ jacobian)
    jacobian = output @ jacobian
    assert largest == [1, slope, 1]
    net = LeakyReLUNetwork(weights, biases, output, slope)
    lambdas = (largest[0] + 0.8) * norms[0] * (largest[1] + 0.8) * norms[1]
    for i, gain in enumerate(np.linalg.norm(output, axis=1)):
        gain *= np.prod(norms)  # noqa: PLW2901
        expected = {
            ("last_layer", "corrected"): 0.8 * gain,
            ("total", "corrected"): min(
                0.8 * gain * (1 + 1 + slope), gain + np.linalg.norm(jacobian[i])
            ),
            ("total", "printed"): 0.8 * np.linalg.norm(output[i]) * norms[2] * lambdas,
        }
        for (of, form), factor in expected.items():
            bound = ea.deterministic_bound(net, InputLaw(mu, b), of=of, form=form)
            np.testing.assert_allclose(bound[i], factor * np.linalg.norm(b), rtol=1e-12)


def measuring_network(size):
    """A network whose corrected and printed factors are 1: its bound is that of ``|z|``."""
    return LeakyReLUNetwork([np.eye(1, size)], [[0.0]], [[1.0]], 0.0)


@pytest.mark.usefixtures("x64")
def test_bernstein_at_the_numbers_of_the_paper():
    net, box = measuring_network(31), dist.Uniform(-np.ones(31), 1.0).to_event(1)
    squared = {
        form: ea.probabilistic_bound(net, box, 0.5, form=form).item() ** 2
        for form in ("corrected", "printed")
    }
    median = np.median((np.random.default_rng(0).uniform(-1, 1, (100_000, 31)) ** 2).sum(axis=1))
    assert round(median, 1) == 10.3
    np.testing.assert_allclose(squared["corrected"], 12.45, atol=0.005)
    np.testing.assert_allclose(squared["printed"], 35.5, atol=0.05)
    certain = ea.deterministic_bound(net, box, form="corrected").item() ** 2
    np.testing.assert_allclose(certain, 31)
    assert median < squared["corrected"] < certain < squared["printed"]


@pytest.mark.parametrize("ratio", [1.0, 0.5])
@pytest.mark.usefixtures("x64")
def test_bernstein_solves_its_own_inequality_and_holds(ratio):
    half_width = ratio ** np.arange(20.0)
    net, box = measuring_network(20), InputLaw(np.zeros(20), half_width)
    z = np.random.default_rng(0).uniform(-1, 1, (20_000, 20)) * half_width
    squares = (z**2).sum(axis=1)
    mean, largest = (half_width**2).sum() / 3, 2 / 3
    variance = (half_width**4).sum() * scipy.stats.beta(0.5, 1).var()  # the law of U^2
    for delta in (0.5, 0.1, 0.01):
        bound = ea.probabilistic_bound(net, box, delta, form="corrected").item() ** 2
        t = bound - mean
        if bound < (half_width**2).sum() * (1 - 1e-9):
            tail = np.exp(-(t**2) / 2 / (variance + largest * t / 3))
            np.testing.assert_allclose(tail, delta, rtol=1e-9)
        assert np.mean(squares > bound) < delta


def test_bounds_follow_the_dtype_and_are_rounded_upwards():
    # 1 - 1/3 is no float32: the nearest one is below.
    net, box = chain(1, slope=0.0), InputLaw(np.array([1 / 3]), 1.0)
    bound = ea.deterministic_bound(net, box)
    assert bound.dtype == "float32"
    exact = 1 - np.float64(np.float32(1 / 3))
    assert exact <= float(bound[0]) <= exact * (1 + 2e-7)


def test_batch_of_boxes_equals_single_boxes():
    net = jax.tree.map(lambda leaf: leaf[0], random_networks(3, 1, seed=5)[0])
    mu = np.random.default_rng(0).normal(size=(2, 4, NUM_INPUTS))
    law = InputLaw(mu, np.array([0.1, 0.4, 1.0, 3.0])[:, None])
    functions = (
        ea.deterministic_bound,
        lambda net, f: ea.deterministic_bound(net, f, form="corrected"),
        lambda net, f: ea.probabilistic_bound(net, f, 0.1, of="last_layer"),
        ea.is_exact_on_support,
    )
    for function in functions:
        values = function(net, law)
        for index in np.ndindex(2, 4):
            one = function(net, InputLaw(mu[index], law.half_width[index]))
            np.testing.assert_allclose(values[index], one, rtol=1e-6)


@pytest.mark.usefixtures("x64")
def test_certificate_changes_at_the_critical_half_width():
    rng = np.random.default_rng(0)
    weights, biases, mu = rng.normal(size=(6, 5)), rng.normal(size=6), rng.normal(size=5)
    net = LeakyReLUNetwork([weights], [biases], np.ones((1, 6)))
    critical = np.min(np.abs(weights @ mu + biases) / np.abs(weights).sum(axis=1))
    assert ea.is_exact_on_support(net, InputLaw(mu, critical * (1 - 1e-11))) is True
    assert ea.is_exact_on_support(net, InputLaw(mu, critical)) is False
    assert ea.is_exact_on_support(net, InputLaw(mu, critical * (1 + 1e-11))) is False


def test_certificate_of_special_networks():
    wide, nothing = InputLaw(np.zeros(1), 9.0), InputLaw(np.zeros(1), 0.0)
    assert ea.is_exact_on_support(chain(2, slope=1.0), wide) is True  # affine all the same
    assert ea.is_exact_on_support(chain(2), wide) is False
    assert ea.is_exact_on_support(chain(2), nothing) is True
    # A neuron without weights stays at zero; so does what a ReLU that is off hides.
    dead = LeakyReLUNetwork([[[1.0], [0.0]]], [[10.0, 0.0]], [[1.0, 1.0]])
    assert ea.is_exact_on_support(dead, wide) is True
    hidden = LeakyReLUNetwork([[[1.0]], [[1.0]]], [[-10.0], [0.0]], [[1.0]], 0.0)
    assert ea.is_exact_on_support(hidden, wide) is True
    assert ea.deterministic_bound(hidden, wide).item() == 0


@pytest.mark.usefixtures("x64")
def test_sign_within_rounding_is_not_certified():
    # The pre-activation is -2.2e-8, less than 1e8 rounds by, and the box moves it by 2e-12.
    net = LeakyReLUNetwork([[[1e8, -1e8]]], [[0.0]], [[1.0]])
    mu = np.array([1.0, np.nextafter(1.0, 2.0)])
    assert ea.is_exact_on_support(net, InputLaw(mu, 1e-20)) is False
    assert ea.is_exact_on_support(net, InputLaw(mu + np.array([0.0, 1e-3]), 1e-20)) is True


def test_gaussian_part_is_never_certified_unless_zero():
    net = LeakyReLUNetwork([[[1.0]]], [[100.0]], [[1.0]])
    assert ea.is_exact_on_support(net, dist.Normal(np.zeros(1), 1e-3).to_event(1)) is False
    law = InputLaw(np.zeros(1), 1.0, np.zeros((1, 1)))
    assert ea.is_exact_on_support(net, law) is True
    assert ea.deterministic_bound(net, law).item() == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["linear_20", "nonlinear_5", "nonlinear_resnet"])
@pytest.mark.usefixtures("x64")
def test_trained_networks(name, monkeypatch):
    monkeypatch.syspath_prepend(OPERATORS)
    networks, lobatto = map(importlib.import_module, ("networks", "lobatto"))
    net = jax.tree.map(lambda leaf: leaf.astype(float), networks.load(name))
    mu = np.exp(np.sin(5 * lobatto.nodes(30)))
    rng = np.random.default_rng(0)
    points = np.concatenate([rng.uniform(-1, 1, (1000, 31)), rng.choice([-1.0, 1.0], (1000, 31))])

    @jax.jit
    def errors(z):
        jacobian = jax.jacrev(net)(mu)
        return jax.vmap(net)(mu + z) - net(mu) - z @ jacobian.T, ea.total_error(net, mu, z)

    for half_width in (1e-4, 0.1, 1.5):
        by_subtraction, total = errors(half_width * points)
        np.testing.assert_allclose(total, by_subtraction, rtol=0, atol=1e-10)
        bound = ea.deterministic_bound(net, InputLaw(mu, half_width))
        assert (np.abs(total).max(axis=0) <= bound * (1 + 1e-12)).all()
        exact = ea.is_exact_on_support(net, InputLaw(mu, half_width))
        assert exact is (half_width == 1e-4)
        assert not (exact and total.any())
