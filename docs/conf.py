"""Sphinx's settings."""

import importlib.metadata
import sys

from sphinx.pycode import ModuleAnalyzer

import aiocuda

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
html_favicon = "static/icon.svg"
html_static_path = ["static"]
html_css_files = ["pages.css"]
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


_FRAMEWORKS = [f"aiocuda.interop.{name}" for name in aiocuda.interop.__all__]


def _private_modules() -> list[str]:
    """List those that define something; a room's own module only hands on what others define."""
    return [
        name
        for name, module in sys.modules.items()
        if name.startswith("aiocuda._") and hasattr(module, "__all__") and not hasattr(module, "__path__")
    ]


def _module_of_source(app: object, module: str, name: str) -> str | None:
    """Say where a public name is defined, for the links to its source: all say that they are of the public module."""
    public = name.partition(".")[0]
    value = getattr(sys.modules.get(module), public, None)
    for private in _private_modules():
        if public in sys.modules[private].__all__ and getattr(sys.modules[private], public) is value:
            return private
    return None


def _tell_order_of_source() -> None:
    """Have the members of public classes in the order of their source, which is not in the public modules."""
    order: dict[str, int] = {}
    for private in _private_modules():
        analyzer = ModuleAnalyzer.for_module(private)
        analyzer.analyze()
        order.update({name: len(order) + place for place, name in enumerate(analyzer.tagorder)})
    for name in aiocuda.__all__:  # what a class has from a private base stands there as if it were its own
        for base in getattr(getattr(aiocuda, name), "__mro__", ())[1:]:
            inherited = {tag: place for tag, place in order.items() if tag.startswith(f"{base.__name__}.")}
            order = {f"{name}.{tag.partition('.')[2]}": place for tag, place in inherited.items()} | order
    for module in (
        "aiocuda",
        "aiocuda.algorithms",
        "aiocuda.cluster",
        "aiocuda.collective",
        "aiocuda.errors",
        "aiocuda.fft",
        "aiocuda.linalg",
        *_FRAMEWORKS,
    ):
        analyzer = ModuleAnalyzer.for_module(module)
        analyzer.analyze()
        analyzer.tagorder.update(order)


def setup(app):
    for name in aiocuda.__all__:
        getattr(aiocuda, name)  # so that its module is loaded
    app.connect("viewcode-follow-imported", _module_of_source)
    _tell_order_of_source()
