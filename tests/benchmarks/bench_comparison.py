"""Methods for the distribution of a network's outputs, side by side on five networks, in one run.

``--functions 4 --keys 1`` for a short run. All in float64, each method with 1,000 runs of the
network unless it takes fewer. Kolmogorov-Smirnov distances are from two million draws of the
network, tails above their 0.999 quantile; seconds are those of a call after the first.
"""

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import ndtr

import nn_uq_dist as nuq
from tests.benchmarks import _peers as peers
from tests.benchmarks._command_line import head, options, row
from tests.benchmarks._failure_cases import Case
from tests.benchmarks._networks import apply, operator, random_layers
from tests.benchmarks._openturns_peers import most_probable_point, polynomial_chaos
from tests.benchmarks._timing import timed

RUNS = 1000
REFERENCE_DRAWS = 2_000_000
TAIL = 0.001
LEVELS = (np.arange(1000) + 0.5) / 1000
CHAOS = "polynomial chaos"
TANGENTS = ("FORM", "SORM")  # one limit at a time
FAILURE = "nn_uq_dist: `failure_probability`"
OUTPUTS = np.array([5, 10, 25])  # of the operators


class TestFunction(NamedTuple):
    """A network of three outputs and its input: a box or independent normal variables."""

    __test__ = False  # no test of pytest

    name: str
    layers: list
    activation: Callable
    f: nuq.Input

    def network(self, x):
        return apply(self.layers, self.activation, x)

    def output(self, index):
        """One output, as a function of standard normal variables."""
        return Case(self.name, lambda x: self.network(x)[index : index + 1], self.f)


def trained(depth, half_width):
    """Three outputs of a trained operator network."""
    net, mean = operator(f"nonlinear_{depth}")
    layers = [*map(jnp.asarray, net.hidden_weights), jnp.asarray(net.output_matrix)[OUTPUTS]]
    layers = list(zip(layers, [*map(jnp.asarray, net.biases), jnp.zeros(3)], strict=True))
    f = nuq.Input.box(jnp.asarray(mean), half_width=half_width)
    activation = partial(jax.nn.leaky_relu, negative_slope=net.negative_slope)
    title = f"operator, layers: {depth}, 31 inputs, ±{half_width}"
    return TestFunction(title, layers, activation, f)


def drawn(num_inputs, activation, name, f):
    """Two hidden layers of 16 with random weights."""
    rng = np.random.default_rng(num_inputs)
    layers = random_layers(rng, (num_inputs, 16, 16, 3), gain=2**0.5, bias=0.3)
    return TestFunction(name, layers, activation, f)


def functions():
    """The five functions, in the default type of JAX."""
    leaky_relu = partial(jax.nn.leaky_relu, negative_slope=0.1)
    box_4, box_3 = (nuq.Input.box(jnp.full(n, 0.3), half_width=1.0) for n in (4, 3))
    return [
        trained(1, 0.5),
        trained(5, 1.5),
        drawn(12, jnp.tanh, "tanh, 12 normal inputs", nuq.Input.normal(jnp.full(12, 0.2), 0.3)),
        drawn(4, leaky_relu, "leaky ReLU, 4 inputs, ±1", box_4),
        drawn(3, jnp.tanh, "tanh, 3 inputs, ±1", box_3),
    ]


def corrected(case, key):
    """The distributions of the tangent, corrected by pairs at Sobol points."""
    linear = nuq.linearize(case.network, case.f)
    pairs = nuq.paired_draws(case.network, linear, key, RUNS, points="sobol", progress=False)
    return linear.corrected(pairs).marginals().cdf


def from_sobol_points(case, key, *, method):
    """A method that needs the outputs at Sobol points, or also these in standard units."""
    inputs, standard = peers.sobol_inputs(case.f, key, RUNS)
    outputs = _many(case)(inputs)
    return polynomial_chaos(case.f, standard, outputs, 0) if method is CHAOS else method(outputs)


def _many(case):
    return jax.jit(jax.vmap(case.network))


def normal(moments):
    """A method of moments of the network and its input."""
    return lambda case, _: peers.normal_cdf(moments(case.network, case.f))


METHODS = {
    "nn_uq_dist: tangent": lambda case, _: nuq.linearize(case.network, case.f).marginals().cdf,
    "nn_uq_dist: `corrected`": corrected,
    "delta method, normal": normal(peers.linear_moments),
    "stable propagation, independent neurons": lambda case, _: peers.normal_cdf(
        peers.stable_propagation(case.layers, case.activation, case.f, full=False)
    ),
    "unscented, normal": normal(lambda net, f: peers.unscented(net, f, float(f.num_inputs))),
    "second order": lambda case, key: peers.second_order(case.network, case.f, key),
    CHAOS: partial(from_sobol_points, method=CHAOS),
    "plain draws": lambda case, key: peers.empirical_cdf(_many(case)(case.f.sample(key, (RUNS,)))),
    "Sobol draws": partial(from_sobol_points, method=peers.empirical_cdf),
    "kernel of Sobol draws": partial(from_sobol_points, method=peers.kernel),
    "spline of Sobol draws": partial(from_sobol_points, method=peers.spline),
}


def compare(case, num_keys, distances, tails):
    """Add errors and seconds of a network to both tables."""
    key = jax.random.key(2**20)
    draws = nuq.monte_carlo(case.network, case.f, key, REFERENCE_DRAWS, progress=False)
    points = np.quantile(np.asarray(draws), [*LEVELS, 1 - TAIL], axis=0)
    for name, method in METHODS.items():
        found = []
        for number in range(1 if name == CHAOS else num_keys):
            values, seconds = timed(
                lambda method=method, number=number: np.asarray(
                    method(case, jax.random.key(number))(jnp.asarray(points))
                )
            )
            found.append(errors(values))
        for table, error in zip((distances, tails), np.mean(found, axis=0), strict=True):
            table[name].append((error, seconds))
    limits = points[-1]
    found, seconds = timed(
        lambda: [most_probable_point(case.output(k), float(y)) for k, y in enumerate(limits)]
    )
    for index, (first, second, runs) in enumerate(found):
        print(f"{case.name}, output {index}: FORM {first:.2g}, SORM {second:.2g}, {runs} runs")
    for k, name in enumerate(TANGENTS):
        tails[name].append((np.mean([abs(one[k] / TAIL - 1) for one in found]), seconds))
    found = []
    for number in range(num_keys):
        results, seconds = timed(
            lambda number=number: [
                nuq.failure_probability(
                    case.network, case.f, jax.random.key(number), limit, output=index,
                    num_runs=RUNS, progress=False,
                )
                for index, limit in enumerate(limits)
            ]
        )  # fmt: skip
        found += [abs(float(result.probability) / TAIL - 1) for result in results]
    tails[FAILURE].append((np.mean(found), seconds))


def errors(values):
    """Mean over the outputs of the distance and of the relative error of the tail."""
    distance = np.abs(values[:-1] - LEVELS[:, None]).max(axis=0)
    return distance.mean(), np.abs((1 - values[-1]) / TAIL - 1).mean()


def check_openturns():
    """Fail unless its methods are right for a cube, a plane and a paraboloid."""
    uniform = nuq.Input.box(jnp.zeros(2), half_width=1.0)
    normal = nuq.Input.normal(jnp.zeros(2), 1.0)
    inputs, standard = peers.sobol_inputs(uniform, jax.random.key(0), 200)
    cdf = polynomial_chaos(uniform, standard, inputs[:, :1] ** 3, 0)
    values = np.array([-0.7, -0.1, 0.2, 0.6])
    # Five standard errors of 200,000 draws.
    np.testing.assert_allclose(cdf(values[:, None])[:, 0], (1 + np.cbrt(values)) / 2, atol=0.0056)
    plane = Case("plane", lambda x: (0.6 * x[0] + 0.8 * x[1])[None], normal)
    np.testing.assert_allclose(most_probable_point(plane, 3.0)[:2], ndtr(-3.0), rtol=1e-3)
    bent = Case("paraboloid", lambda x: (x[0] + 0.1 * x[1] ** 2)[None], normal)
    breitung = ndtr(-4.0) / np.sqrt(1 - 4 * 0.2)  # K. Breitung, J. Eng. Mech. 110 (1984)
    found = most_probable_point(bent, 4.0)[:2]
    np.testing.assert_allclose(found, [ndtr(-4.0), breitung], rtol=1e-3)


def main():
    """Print both tables."""
    given = options(functions=tuple(range(5)), keys=4)
    with jax.enable_x64(True):
        check_openturns()
        some = [functions()[number] for number in given.functions]
        distances, tails = defaultdict(list), defaultdict(list)
        for case in some:
            compare(case, given.keys, distances, tails)
            jax.clear_caches()
    for title, table in (("Kolmogorov-Smirnov distance", distances), ("Tail", tails)):
        print(f"\n{title}")
        head("method", *(case.name for case in some), "seconds")
        for name, cells in table.items():
            found, seconds = zip(*cells, strict=True)
            shown = ["-" if np.isnan(value) else f"{value:.2g}" for value in found]
            row(name, *shown, f"{min(seconds):.2g} to {max(seconds):.2g}")


if __name__ == "__main__":
    main()
