"""Without the extra `viz` the core works, and the rest says which extra it needs.

These tests run with the extra hidden; CI runs them again where it is not installed. With it, the
package is imported after any other: ArviZ loads JAX and NumPyro in another order.
"""

import inspect
import subprocess
import sys

import jax
import numpy as np
import pytest

import nn_uq_dist as nuq

HIDDEN = ("arviz_base", "arviz_stats", "arviz_plots", "matplotlib", "pandas", "xarray", "h5netcdf")
LINEARIZATION = nuq.Linearization(
    np.zeros(3), np.eye(3) + 0.5, nuq.Input.box(np.zeros(3), half_width=1.0)
)
DRAWS = np.random.default_rng(0).standard_normal((200, 3))
KEY = jax.random.key(0)

CALLS = {
    "diagnostics.joint_summary": (LINEARIZATION, DRAWS, KEY, LINEARIZATION.gaussian_copula()),
    "diagnostics.sensitivity": (LINEARIZATION,),
    "diagnostics.uncertainty_budget": (LINEARIZATION,),
    "diagnostics.summary": (LINEARIZATION, DRAWS),
    "diagnostics.table": (LINEARIZATION,),
    "diagnostics.to_datatree": (LINEARIZATION, DRAWS),
    "plots.plot_joint": (LINEARIZATION, DRAWS),
    "plots.plot_marginals": (LINEARIZATION, DRAWS),
    "plots.plot_band": (LINEARIZATION, DRAWS),
    "plots.plot_calibration": (LINEARIZATION, DRAWS),
    "plots.plot_sensitivity": (LINEARIZATION,),
    "plots.plot_tails": (LINEARIZATION, DRAWS),
}


@pytest.fixture
def _without_extra(monkeypatch):
    for name in HIDDEN:
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.usefixtures("_without_extra")
def test_every_function_of_diagnostics_and_plots_names_the_missing_extra():
    functions = {
        f"{label}.{name}": value
        for label, module in {"diagnostics": nuq.diagnostics, "plots": nuq.plots}.items()
        for name, value in vars(module).items()
        if inspect.isfunction(value)
    }
    assert functions.keys() == CALLS.keys()
    for name, function in functions.items():
        with pytest.raises(ImportError, match=rf"{name} needs .*pip install 'nn_uq_dist\[viz\]'"):
            function(*CALLS[name])


def test_import_loads_nothing_of_the_extra():
    code = f"import nn_uq_dist, sys; assert not set(sys.modules) & set({HIDDEN!r})"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)  # noqa: S603


@pytest.mark.viz
@pytest.mark.parametrize("other", ["arviz_plots", "numpyro"])
def test_import_after(other):
    code = f"import {other}, nn_uq_dist"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)  # noqa: S603
