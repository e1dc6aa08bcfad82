"""Fixtures and settings that all tests share; none of them changes JAX for other tests."""

import os
import sys

import jax
import numpyro
import pytest
from hypothesis import HealthCheck, settings

from tests.compiling import drop_many_programs

os.environ.setdefault("MPLBACKEND", "Agg")  # read by Matplotlib when a test first imports it
numpyro.enable_validation()  # the default of NumPyro from 0.22 on

_COMMON = {
    "deadline": None,  # the first example compiles
    # The fixtures below hold for all examples of a test, so there is nothing to reset between them.
    "suppress_health_check": [HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
}
settings.register_profile("local", **_COMMON)
settings.register_profile("ci", derandomize=True, database=None, **_COMMON)
settings.load_profile("ci" if os.environ.get("CI") else "local")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark all but the first case of a test slow: types and shapes add programs to compile.

    `make test` shows that an installation is right. Docstrings are all different.
    """
    kept = set()
    for item in items:
        test = item.nodeid.partition("[")[0]
        if test in kept and item.path.name != "test_docstrings.py":
            item.add_marker(pytest.mark.slow)
        elif not item.get_closest_marker("slow"):
            kept.add(test)


@pytest.fixture
def x64():
    """Run the test with 64-bit types enabled."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(params=["float32", "float64"])
def precision(request):
    """Run the test in both precisions; its value is the name of the default dtype."""
    with jax.enable_x64(request.param == "float64"):
        yield request.param


@pytest.fixture
def bars(monkeypatch):
    """The progress bars that the test makes."""
    import tqdm

    made = []

    class Bar(tqdm.tqdm):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            made.append(self)

    monkeypatch.setattr("tqdm.tqdm", Bar)
    return made


@pytest.fixture
def fully_optimized():
    """Compile as users do, where the work is more than the compiling: long chains, many draws."""
    name = "jax_disable_most_optimizations"
    before = jax.config.values[name]
    jax.clear_caches()
    jax.config.update(name, False)
    yield
    jax.config.update(name, before)
    jax.clear_caches()


@pytest.fixture(autouse=True)
def _close_figures():
    """Close what a test has drawn: Matplotlib warns at 20 open figures."""
    yield
    if (pyplot := sys.modules.get("matplotlib.pyplot")) is not None:
        pyplot.close("all")


@pytest.fixture(scope="module", autouse=True)
def _drop_compiled_programs():
    """Free compiled programs between test modules: what one module compiled, the next ones use."""
    yield
    drop_many_programs()
