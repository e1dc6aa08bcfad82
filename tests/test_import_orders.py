"""The package is imported after any other: ArviZ loads JAX and NumPyro in another order."""

import subprocess
import sys

import pytest


@pytest.mark.viz
@pytest.mark.parametrize("other", ["arviz_base", "arviz_stats", "arviz_plots", "numpyro", "xarray"])
def test_import_after(other):
    code = f"import {other}, nn_uq_dist"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)  # noqa: S603
