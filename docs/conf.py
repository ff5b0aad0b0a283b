"""Sphinx: markdown pages, and interfaces from the docstrings, which are plain text with examples."""

import re
from typing import Any

import unstraggle

project = "unstraggle"
author = "the unstraggle authors"
version = release = unstraggle.__version__
language = "en_GB"

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]
html_theme = "alabaster"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"


def plain_text(app: Any, what: str, name: str, obj: object, options: Any, lines: list[str]) -> None:
    """Docstrings are not reStructuredText: escape what would be markup, but leave the examples as they are."""
    paragraphs = re.split(r"\n{2,}", "\n".join(lines))
    lines[:] = "\n\n".join(text if text.lstrip().startswith(">>>") else _escaped(text) for text in paragraphs).split("\n")


def _escaped(text: str) -> str:
    return re.sub(r"`([^`]+)`|([\\*|_])", lambda found: f"``{found[1]}``" if found[1] else f"\\{found[2]}", text)


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", plain_text)
