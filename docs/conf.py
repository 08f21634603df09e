"""Sphinx's settings."""

import importlib.metadata
import sys

project = "aiocuda"
author = "The aiocuda authors"
copyright = "The aiocuda authors"
release = importlib.metadata.version("aiocuda")
version = release

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
]
html_theme = "furo"
html_title = f"aiocuda {release}"
exclude_patterns = ["_build"]

nitpicky = False
default_role = "py:obj"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
maximum_signature_line_length = 100
autodoc_member_order = "bysource"
autosummary_generate = False
numpydoc_show_class_members = False
numpydoc_validation_checks = {"GL08", "PR02", "PR03"}
numpydoc_validation_exclude = {r"\.__\w+__$", r"\.with_traceback$", r"\.add_note$"}
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3


def _module_of_source(app: object, module: str, name: str) -> str | None:
    """Say where a public name is defined, for the links to its source: all say that they are of the public module."""
    public = name.partition(".")[0]
    value = getattr(sys.modules.get(module), public, None)
    for private in [each for each in sys.modules if each.startswith("aiocuda._")]:
        found = sys.modules[private]
        if public in getattr(found, "__all__", ()) and getattr(found, public) is value:
            return private
    return None


def setup(app):
    app.connect("viewcode-follow-imported", _module_of_source)
