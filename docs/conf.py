"""Configuration of the documentation; `make docs` builds it with warnings as errors."""

from importlib.metadata import version as _version

project = "nn_uq_dist"
author = "The nn_uq_dist developers"
copyright = author
release = version = _version("nn_uq_dist")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build", "_tables", "_static"]
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3

napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True  # an attribute that is a property is described once
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "imported-members": True}
autodoc_typehints = "none"  # the docstrings state types and shapes

html_theme = "furo"
html_title = project

# Every reference must have a target, but the words of a type ("Array, shape (N_y,)", "array_like,
# optional"), which Sphinx takes for names of classes, and names of packages whose pages are not
# looked up: the build needs no network.
nitpicky = True
nitpick_ignore_regex = [
    ("py:class", r"[^.]*"),
    ("py:class", r"(jax|numpy|numpyro|pd|xr)\..*"),
    ("py:class", r"nn_uq_dist(\.\w+){3,}"),  # in signatures: modules, which are not public
]
