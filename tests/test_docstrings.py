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
# Examples of more than 2.5 CPU seconds; those of other functions compile most of their programs.
SLOW = {
    "LinearizedInputPosterior", "LinearizedJoint.condition", "NoisyMarginal", "rosenblatt_scores",
    "plot_joint",
}  # fmt: skip


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


def examples():
    finder = doctest.DocTestFinder(exclude_empty=True)
    for module in modules():
        for test in filter(lambda test: test.examples, finder.find(module)):
            is_slow = test.name.removeprefix(f"{module.__name__}.") in SLOW
            needs_viz = test.name.startswith((f"{PACKAGE}.diagnostics.", f"{PACKAGE}.plots."))
            marks = [pytest.mark.slow] * is_slow + [pytest.mark.viz] * needs_viz
            yield pytest.param(test, id=test.name, marks=marks)


def test_public_names_have_docstrings_with_examples():
    documented = {name: inspect.getdoc(value) or "" for name, value in public_objects().items()}
    assert len(documented) > 100
    assert [name for name, text in documented.items() if ">>> " not in text] == []


@pytest.mark.parametrize("test", [*examples()])
def test_docstring_example_runs(test, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # files that the example writes
    report = io.StringIO()
    # The runner empties the namespace at the end: it is collected once, so work on a copy.
    test.globs = dict(test.globs)
    results = doctest.DocTestRunner(optionflags=FLAGS).run(test, out=report.write)
    assert results.failed == 0, report.getvalue()
