"""Which calls compile: outside of ``jit`` few programs serve all numbers of points and weights."""

import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from scipy.stats import norm

from nn_uq_dist import LinearizedMarginal
from tests.compiling import counted_compilations

# name: a function of a distribution with its parameters, points and levels.
CALLS = {
    "log_prob": lambda f, x, q: f.log_prob(x),
    "cdf": lambda f, x, q: f.cdf(x),
    "log_sf": lambda f, x, q: f.log_sf(x),
    "normal_score": lambda f, x, q: f.normal_score(x),
    "icdf": lambda f, x, q: f.icdf(q),
}

# Number of points, whether each has a distribution of its own, and what makes the arrays. Points
# times weights stay below what common lines are made for.
POINTS = (1, True, np.asarray), (100, True, jax.device_put), (1023, False, jax.device_put)

IN_FRESH_PROCESS = """
from tests.compiling import counted_compilations
with counted_compilations() as compiled:
    import numpy as np
    import nn_uq_dist.diagnostics, nn_uq_dist.plots
    distribution = nn_uq_dist.LinearizedMarginal(np.zeros(3), np.ones((3, 5)), 0.5)
    print("import", *compiled)
    compiled.clear()
    distribution.log_prob(np.zeros(3))
    print("log_prob", *compiled)
"""


def parameters(weights, scale):
    loc = np.zeros(weights.shape[:-1], weights.dtype)
    return (loc, weights) if scale is None else (loc, weights, np.full_like(loc, scale))


def easy(num_weights, num_points, *, own=True, scale=None):
    """A distribution for each point or one for all; points inside the support, and levels."""
    rng = np.random.default_rng(num_weights)
    weights = rng.uniform(0.3, 1.0, (*[num_points] * own, num_weights)).astype(np.float32)
    x = np.linspace(-0.9, 0.9, num_points, dtype=np.float32) * weights.sum(axis=-1)
    return parameters(weights, scale), x, np.linspace(0.01, 0.99, num_points, dtype=np.float32)


def hard(num_weights, *, scale=None):
    """A dominating weight: the method for it is compiled when a point first needs it."""
    weights = np.full(num_weights, 0.01, np.float32)
    weights[0] = 10.0
    x, q = np.array([[0.1, 9.99, 10.0], [0.3, 0.999, 0.5]], np.float32)
    return parameters(weights, None if scale is None else 1e-3), x, q


def evaluate(call, case, convert=np.asarray):
    distribution, x, q = case
    return CALLS[call](LinearizedMarginal(*map(convert, distribution)), convert(x), convert(q))


def compiled_by(calls, cases):
    """Programs by call and shape; each case comes with what makes its arrays."""
    compiled = {}
    for case, convert in cases:
        for call in calls:
            with counted_compilations() as programs:
                values = evaluate(call, case, convert)
            assert np.isfinite(values).all()
            if programs:
                compiled[call, case[0][1].shape, case[1].shape] = programs
    return compiled


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "others", "scale"), [(5, (7, 16), None), (5, (16,), 0.4), (17, (32,), None)]
)
def test_other_numbers_of_points_and_weights_compile_nothing(first, others, scale):
    """One program of the density and one of both functions, for up to 16 weights and up to 32."""
    for call in CALLS:
        evaluate(call, easy(first, 3, scale=scale))
        evaluate(call, hard(first, scale=scale))
    cases = [
        (easy(count, points, own=own, scale=scale), convert)
        for count in others
        for points, own, convert in POINTS
    ]
    cases.extend((hard(count, scale=scale), jax.device_put) for count in others)
    assert compiled_by(CALLS, cases) == {}


@pytest.mark.slow
def test_other_grids_of_one_distribution_compile_nothing():
    functions = ["log_prob", "log_sf", "normal_score"]
    for call in functions:
        # What no line serves is evaluated point by point: those programs belong to it.
        evaluate(call, easy(16, 2500, own=False, scale=0.4))
        evaluate(call, easy(12, 3, scale=0.4))
        evaluate(call, hard(12, scale=0.4))
    others = (12, 4096, np.asarray), (9, 4000, jax.device_put)
    cases = [(easy(*sizes, own=False, scale=0.4), convert) for *sizes, convert in others]
    assert compiled_by(functions, cases) == {}


@pytest.mark.slow
@pytest.mark.parametrize("call", ["log_prob", "icdf"])
def test_one_number_without_axes_is_known_too(call):
    distribution, x, q = easy(5, 1, own=False)
    case = distribution, x[0] + np.float32(0.2), q[0] + np.float32(0.2)
    evaluate(call, case)
    other, x, q = easy(9, 1, own=False)
    others = other, x[0] + np.float32(0.3), q[0] + np.float32(0.3)
    assert compiled_by([call], [(others, np.asarray)]) == {}
    # Known numbers in a function that is traced: a distribution that a model closes over.
    traced = jax.jit(lambda: evaluate(call, case))()
    np.testing.assert_allclose(traced, evaluate(call, case), rtol=1e-6)


def test_without_uniforms_it_is_normal_and_compiles_nothing():
    scale = np.array([1e-3, 2.0], np.float32)
    outputs, known = LinearizedMarginal(np.zeros(2), np.zeros((2, 1)), scale), norm(0, scale)
    z = np.array([[-20.0], [-1.0], [0.0], [9.0]], np.float32)
    levels = np.array([[1e-9], [0.05], [0.5], [0.9]])
    outputs.log_prob(z), outputs.icdf(levels)  # small operations of JAX itself
    with counted_compilations() as compiled:
        found = outputs.log_prob(z * scale), outputs.log_sf(z * scale), outputs.icdf(levels)
    assert not any("evaluate" in name for name in compiled)
    exact = known.logpdf(z * scale), known.logsf(z * scale), known.ppf(levels)
    for part, value in zip(found, exact, strict=True):
        np.testing.assert_allclose(part, value, rtol=2e-6, atol=1e-8)
    # Too far out for the type: warnings are errors here.
    assert outputs.log_prob(np.float32(1e30))[0] == -np.inf


@pytest.mark.slow
def test_importing_compiles_nothing_and_a_first_density_one_program():
    child = subprocess.run(  # noqa: S603 (this interpreter)
        [sys.executable, "-c", IN_FRESH_PROCESS],
        cwd=Path(__file__).parents[2], check=True, capture_output=True, text=True,
    )  # fmt: skip
    (_, *importing), (_, *log_prob) = (line.split() for line in child.stdout.splitlines())
    assert importing == []
    assert len(log_prob) == 1
