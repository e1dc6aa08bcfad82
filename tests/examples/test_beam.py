"""The beam runs at a small size, and what it prints is right."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytestmark = pytest.mark.viz


def test_simulator_of_a_rectangular_section(example):
    # Fixed at one end, 2 m long, 100 mm thick: bending moments and second moments of area.
    side, load, modulus, width, thick, length = 1.2, 2.5, 190.0, 57.0, 100.0, 2000.0
    stress = 6 * length * (1e3 * load / (width * thick**2) + 1e3 * side / (width**2 * thick))
    found = example.simulate(jnp.array([side, load, modulus, width]))
    np.testing.assert_allclose(found[0], stress, rtol=1e-5)
    bent = [1e3 * load / (width * thick**3 / 12), 1e3 * side / (width**3 * thick / 12)]
    deflection = length**3 / (3e3 * modulus) * np.hypot(*bent)
    np.testing.assert_allclose(found[1], deflection, rtol=1e-5)


@pytest.mark.slow
def test_beam_runs(example, run, monkeypatch):
    monkeypatch.setattr(example, "NUM_HELD_OUT", 400)
    lines = run("--num-beams 20000 --rare 15", "deflection.png")
    output = "".join(f"{line}\n" for line in lines)
    shares = [float(share) for share in re.findall(r"([\d.]+)%\n", output)[:2]]
    assert min(shares) > 99  # of the variance
    rows = {line.split()[0]: line.split()[1:] for line in lines if line[:2] == "  "}
    above = float(rows["simulated"][-1])
    # Chance of 20,000 beams: .0013 in the probability. The tangent is off by .008.
    assert abs(float(re.search(r"corrected +\S+ \S+ +(\S+)", output)[1]) - above) < 0.005
    assert float(re.search(r"tangent +\S+ \S+ +(\S+)", output)[1]) < above - 0.004
    f = example.input_distribution(jnp.array(example.CENTER))
    far = example.simulate(f.sample(jax.random.key(9), (1_000_000,)))[:, 1] > 15
    rare = float(re.search(r"> 15 mm\): (\S+)", output)[1])
    assert abs(rare / far.mean() - 1) < 0.25  # 4 standard errors of 230 beams
    inside = [float(share) for share in re.findall(r"(?:stress|deflection) ([\d.]+)%", output)]
    assert len(inside) == 4
    assert np.all(np.abs(np.array(inside) - 90) < 6)  # 4 standard errors of 400 beams
