"""Every public name is documented, and every example in a docstring runs without a warning."""

import doctest
import importlib
import inspect
import io
import pkgutil

import pytest

import nn_uq_dist as nuq

PACKAGE = nuq.__name__
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def modules():
    """All modules: public objects are defined in private ones."""
    names = [info.name for info in pkgutil.walk_packages(nuq.__path__, f"{PACKAGE}.")]
    return [nuq, *map(importlib.import_module, names)]


def public_objects():
    """Functions and classes of this package under the names by which users reach them."""
    return [
        pytest.param(value, id=f"{module.__name__}.{name}")
        for module in modules()
        if not any(part.startswith("_") for part in module.__name__.split("."))
        for name, value in vars(module).items()
        if not name.startswith("_")
        and callable(value)
        and (getattr(value, "__module__", None) or "").split(".")[0] == PACKAGE
    ]


def needs_viz(name):
    return name.startswith((f"{PACKAGE}.diagnostics.", f"{PACKAGE}.plots."))


def examples():
    finder = doctest.DocTestFinder(exclude_empty=True)
    return [
        pytest.param(test, id=test.name, marks=pytest.mark.viz if needs_viz(test.name) else ())
        for module in modules()
        for test in finder.find(module)
        if test.examples
    ]


@pytest.mark.parametrize("value", public_objects())
def test_public_name_has_a_docstring_with_an_example(value):
    assert ">>> " in (inspect.getdoc(value) or "")


@pytest.mark.parametrize("test", examples())
def test_docstring_example_runs(test, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # files that the example writes
    report = io.StringIO()
    # The runner empties the namespace at the end: it is collected once, so work on a copy.
    test.globs = dict(test.globs)
    results = doctest.DocTestRunner(optionflags=FLAGS).run(test, out=report.write)
    assert results.failed == 0, report.getvalue()
