"""The script that reproduces the paper's figures and tables runs, and its tables are correct."""

import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nn_uq_dist as nuq

pytestmark = [pytest.mark.viz, pytest.mark.slow]


def test_some_figures_and_tables_are_written(operators, tmp_path, capsys):
    arguments = "--num-draws 1000 --no-progress --only inputs flips"
    operators.reproduce.main([*arguments.split(), "marginals_linear_2", "--out", str(tmp_path)])
    written = {path.name for path in tmp_path.iterdir()}
    assert written == {"inputs.png", "marginals_linear_2.png", "flips.md"}
    output, _ = capsys.readouterr()
    assert all(str(tmp_path / name) in output for name in written)
    assert min(path.stat().st_size for path in tmp_path.glob("*.png")) > 5_000


def test_correlation_table_holds_those_of_the_jacobian(operators):
    case = operators.study.study("nonlinear_1", 1.5, jax.random.key(0), 1_000)
    table = operators.paper_tables.correlations([case])
    cells = re.findall(r"(-?\d\.\d\d) \((-?\d\.\d\d)\)", table)
    jacobian = np.asarray(jax.jacfwd(case.net)(case.f.mean), np.float64)
    rows = jacobian / np.linalg.norm(jacobian, axis=1, keepdims=True)
    index = [0, 5, 10, 15, 20]
    pairs = [(i, j) for a, i in enumerate(index) for j in index[a + 1 :]]
    expected = [(rows[i] @ rows[j], np.corrcoef(case.draws[:, [i, j]].T)[0, 1]) for i, j in pairs]
    np.testing.assert_allclose(np.array(cells, float), expected, atol=0.0051)


def test_error_table_follows_from_subtraction(operators):
    table = operators.paper_tables.linearization_errors(jax.random.key(0))
    first = next(line for line in table.splitlines() if line.startswith("| 1.5 |"))
    found = [float(cell) for cell in first.strip("| ").split(" | ")[1:]]
    study = operators.study
    shown = np.arange(31) != 15
    expected = []
    for name in ("nonlinear_1", "nonlinear_5", "nonlinear_20", "nonlinear"):
        case = study.study(name, 1.5, jax.random.key(1), 1_000)
        f = case.f.sample(jax.random.key(2), (5_000,))
        difference = jax.vmap(case.net)(f) - jax.vmap(case.lin)(f)
        expected.append(float(jnp.mean(jnp.abs(difference[:, shown]))))
    # Other draws: the mean of 5000 is known to 2%.
    np.testing.assert_allclose(found, expected, rtol=0.08)


def test_on_a_chain_the_corrected_bound_is_attained_the_printed_one_fails(operators):
    one, mean, slope, num_layers = [[1.0]], jnp.array([-1e-9]), 0.1, 5
    net = nuq.LeakyReLUNetwork([one] * num_layers, [[0.0]] * num_layers, one, slope)
    error = operators.layer_errors.total_error(net, mean, [1.0])
    corrected, printed = operators.error_tables.norm_bounds(net, mean, 1.0)
    np.testing.assert_allclose(error, 1 - slope**num_layers, rtol=1e-5)
    np.testing.assert_allclose(corrected, error, rtol=1e-5)
    np.testing.assert_allclose(printed, 1 - slope, rtol=1e-5)


def test_corrected_bounds_hold_for_random_networks(operators):
    rng, error_of = np.random.default_rng(0), jax.jit(operators.layer_errors.total_error)
    for k in range(100):
        sizes = ((3, 4, 2), (3, 5, 2, 4, 2))[k % 2]
        weights = [rng.normal(size=(n, m)) for m, n in itertools.pairwise(sizes)]
        biases = [rng.normal(size=n) for n in sizes[1:-1]]
        net = nuq.LeakyReLUNetwork(weights[:-1], biases, weights[-1], rng.choice([0.0, 0.01, 0.3]))
        mean, amplitude = rng.normal(size=3), 10 ** rng.uniform(-2, 1)
        z = amplitude * rng.choice([-1.0, 1.0], (32, 3))
        error = np.abs(error_of(net, mean, z)).max(axis=0)
        corrected, _ = operators.error_tables.norm_bounds(net, mean, amplitude)
        assert (error <= corrected * (1 + 1e-5)).all()
