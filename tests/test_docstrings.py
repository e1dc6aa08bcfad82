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
    """Functions and classes that packages export."""
    return {
        f"{module.__name__}.{name}": value
        for module in modules()
        if hasattr(module, "__path__")
        for name, value in vars(module).items()
        if not name.startswith("_")
        and callable(value)
        and (getattr(value, "__module__", None) or "").split(".")[0] == PACKAGE
    }


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


def test_public_names_have_docstrings_with_examples():
    documented = {name: inspect.getdoc(value) or "" for name, value in public_objects().items()}
    assert len(documented) > 100
    assert [name for name, text in documented.items() if ">>> " not in text] == []


@pytest.mark.parametrize("test", examples())
def test_docstring_example_runs(test, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # files that the example writes
    report = io.StringIO()
    # The runner empties the namespace at the end: it is collected once, so work on a copy.
    test.globs = dict(test.globs)
    results = doctest.DocTestRunner(optionflags=FLAGS).run(test, out=report.write)
    assert results.failed == 0, report.getvalue()
