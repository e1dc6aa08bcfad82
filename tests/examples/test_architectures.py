"""The example of three architectures: its operators, its networks, its probabilities, its run."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate

pytestmark = pytest.mark.viz


def test_transmitted_light_against_quadrature(example):
    amplitudes = np.array([0.7, -0.4, 0.3, 0.2])
    coefficient = (jnp.asarray(2.0), jnp.asarray(amplitudes))

    def attenuation(s):
        return 2 + np.sin(np.multiply.outer(s, np.pi * np.arange(1, 5))) @ amplitudes

    places = np.array([0.0, 0.3, 1.0])
    found = example.attenuation(coefficient, places)
    np.testing.assert_allclose(found, attenuation(places), rtol=1e-5)
    expected = [np.exp(-scipy.integrate.quad(attenuation, 0, place)[0]) for place in places]
    np.testing.assert_allclose(example.transmitted(coefficient, places), expected, rtol=1e-5)


def test_burgers_against_a_time_stepper(example):
    num_points, viscosity = 64, example.VISCOSITY
    x = 2 * np.pi * np.arange(num_points) / num_points
    initial = 0.3 + 0.6 * np.sin(x) - 0.3 * np.cos(2 * x)
    frequency = 1j * np.fft.rfftfreq(num_points, 1 / num_points)

    def rate(_, u):
        spectrum = np.fft.rfft(u)
        slope = np.fft.irfft(frequency * spectrum)
        return viscosity * np.fft.irfft(frequency**2 * spectrum) - u * slope

    solution = scipy.integrate.solve_ivp(rate, (0, example.TIME), initial, rtol=1e-8, atol=1e-10)
    found = example.burgers(jnp.asarray(initial, jnp.float32))
    np.testing.assert_allclose(found, solution.y[:, -1], atol=2e-5)
    assert np.abs(found - initial).max() > 0.3  # not the identity


def test_spectral_convolution_turns_and_scales_each_mode(example):
    rng = np.random.default_rng(0)
    width, modes = example.WIDTH, example.MODES
    weights = rng.normal(size=(2, modes, width, width)).astype(np.float32)
    x = 2 * np.pi * np.arange(example.GRID_POINTS) / example.GRID_POINTS
    for mode in (0, 1, modes - 1, modes):
        v = np.zeros((x.size, width), np.float32)
        v[:, 3] = np.cos(mode * x)
        found = example.spectral_convolution(weights, jnp.asarray(v))
        real, imaginary = weights[:, mode, :, 3] if mode < modes else np.zeros((2, width))
        expected = np.outer(np.cos(mode * x), real) - np.outer(np.sin(mode * x), imaginary)
        np.testing.assert_allclose(found, expected, atol=2e-6)


def rows(lines, start):
    """Numbers of the lines from `start` on that begin with a half-width."""
    table = []
    for line in lines[start:]:
        words = line.replace("(", " ").replace(")", " ").split()
        if line.startswith("  ") and line[2] in "0123456789":
            table.append([float(word) for word in words if word.replace(".", "")[0].isdigit()])
        elif not line.startswith("  "):
            break
    return np.array(table)


@pytest.mark.slow
def test_example_runs(example, run, monkeypatch):
    short = {"DeepONet": 200, "Fourier neural operator": 100, "digits": 150}
    monkeypatch.setattr(example, "STEPS", short)
    monkeypatch.setattr(example, "HALF_WIDTHS", np.array([0.01, 0.1, 0.4]))
    monkeypatch.setattr(example, "SHOWN", 1)
    num_draws = 2000
    lines = run(f"--num-draws {num_draws}", "digit.png")
    heads = [i for i, line in enumerate(lines) if line.startswith("  half-width")]
    *_, accuracy = (line for line in lines if line.startswith("test accuracy"))
    assert float(accuracy.split()[2].rstrip("%")) > 90
    for head in (heads[0], heads[1], heads[3]):
        sd, sd_chance, mean, mean_chance, distance, floor = rows(lines, head)[0, 1:7]
        # The largest of 8 or 10 outputs; beyond 4 standard errors by chance once in 1500 tables.
        assert sd < 4 * sd_chance
        assert mean < 4 * mean_chance + 0.05  # the curvature of a network trained for seconds
        assert distance < 2.5 * floor + 0.02
    assert rows(lines, heads[3])[-1, 5] > 0.02  # at the widest box the linearization fails
    _, network, _, copula, _, linear, _, low, high = rows(lines, heads[2]).T
    error = 4 * np.sqrt(0.25 / num_draws)
    assert (low <= linear + error).all()
    assert (linear <= high + error).all()
    np.testing.assert_allclose(copula, linear, atol=1.5 * error)
    np.testing.assert_allclose(network[::3], linear[::3], atol=1.5 * error + 0.05)  # narrow
