"""Budgets: rows in the units of the network, totals, shares, and who is refused."""

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import nn_uq_dist as nuq
from nn_uq_dist.diagnostics import uncertainty_budget

INPUTS = {
    "mass": dist.Normal(2.0, 0.01),
    "room": nuq.Input.arcsine(np.array([19.0]), 21.0),
    "scale": nuq.Input.curvilinear_trapezoidal(np.array([1.0]), 0.03, 0.015),
    "volume": dist.LogNormal(0.0, 0.01),
}


def density(x):
    value = x["mass"] / x["volume"] * x["scale"][0] * (1 + 0.001 * (x["room"][0] - 20))
    return {"density": value, "mass": x["mass"]}


def test_rows():
    lin = nuq.linearize(density, INPUTS)
    budget = uncertainty_budget(lin)
    rows = budget.loc["density"]
    assert list(rows.index) == ["mass", "room[0]", "scale[0]", "volume", "combined"]
    volume = np.exp(0.01**2 / 2)
    estimates = [2, 20, 1, volume, 2 / volume]
    np.testing.assert_allclose(rows["estimate"], estimates, rtol=1e-6)
    spread = volume * np.sqrt(np.expm1(0.01**2))
    spreads = [0.01, np.sqrt(0.5), np.sqrt(0.03**2 / 3 + 0.015**2 / 9), spread]
    np.testing.assert_allclose(rows["uncertainty"][:4], spreads, rtol=2e-5)
    slopes = np.array([1, 0.002, 2, -2 / volume]) / volume
    np.testing.assert_allclose(rows["sensitivity"][:4], slopes, rtol=2e-5)
    parts = slopes * spreads
    np.testing.assert_allclose(rows["contribution"][:4], parts, rtol=2e-5)
    np.testing.assert_allclose(rows["uncertainty"].iloc[4], np.linalg.norm(parts), rtol=2e-5)
    np.testing.assert_allclose(rows["share"][:4], parts**2 / (parts**2).sum(), rtol=4e-5)
    assert budget.loc["mass", "share"].tolist() == pytest.approx([1, 0, 0, 0, 1])
    assert max(map(len, str(budget).splitlines())) <= 80


def test_correlated_inputs_are_in_their_own_units():
    covariance = np.array([[0.04, 0.03], [0.03, 0.09]])
    lin = nuq.linearize(
        lambda x: x[:1] - x[1:], nuq.Input.normal([1.0, 2.0], covariance_matrix=covariance)
    )
    rows = uncertainty_budget(lin, input_names=["a", "b"], output_names=["gap"]).loc["gap"]
    np.testing.assert_allclose(rows["uncertainty"], [0.2, 0.3, np.sqrt(0.07)], rtol=1e-6)
    np.testing.assert_allclose(
        rows["share"][:2], [0.01**2 / (0.04 * 0.07), 0.06**2 / (0.09 * 0.07)], rtol=1e-5
    )


def test_units_of_any_size():
    """A picofarad and a gigahertz, in single precision."""
    f = {
        "C": nuq.Input.student_t(jnp.array([4.7e-12]), 2e-14, 9.0),
        "freq": dist.LogNormal(jnp.log(jnp.array([1e9])), 0.01).to_event(1),
    }
    rows = uncertainty_budget(nuq.linearize(lambda x: 2 * np.pi * x["freq"] * x["C"], f))
    frequency = 1e9 * np.exp(0.01**2 / 2)
    spreads = np.array([2e-14 * np.sqrt(9 / 7), frequency * np.sqrt(np.expm1(0.01**2))])
    parts = 2 * np.pi * np.array([frequency, 4.7e-12]) * spreads
    np.testing.assert_allclose(rows["contribution"][:2], parts, rtol=2e-5)
    np.testing.assert_allclose(rows["share"][:2], parts**2 / (parts**2).sum(), rtol=4e-5)


def test_what_is_refused():
    batch = nuq.linearize(lambda x: x, nuq.Input.box(jnp.zeros((3, 2)), 1.0))
    for wrong, words in ((batch, "without a batch"), (batch[0].marginals(), "a Linearization")):
        with pytest.raises(TypeError, match=words):
            uncertainty_budget(wrong)
