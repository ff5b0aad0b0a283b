"""Sphinx: markdown pages, some of them written at build time, and interfaces from the docstrings, which are plain text.

Pages need nothing from elsewhere: no scripts or fonts of other sites, and formulas are MathML, which browsers draw themselves.
"""

import re
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math import latex2mathml

import unstraggle

sys.path.insert(0, str(Path(__file__).parent))  # for the folder `generate`

project = "unstraggle"
author = "the unstraggle authors"
version = release = unstraggle.__version__
language = "en_GB"

extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_enable_extensions = ["attrs_inline", "dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "generated/*.md"]
html_theme = "furo"
html_title = f"unstraggle {release}"
html_static_path = ["_static"]
html_css_files = ["custom.css"]
html_show_copyright = False
html_math_renderer = "mathml"
autodoc_mock_imports = ["transformers"]  # no part of the set-up
autodoc_member_order = "bysource"
autodoc_typehints = "signature"


def plain_text(app: Any, what: str, name: str, obj: object, options: Any, lines: list[str]) -> None:
    """Docstrings are not reStructuredText: escape what would be markup, but leave the examples as they are."""
    paragraphs = re.split(r"\n{2,}", "\n".join(lines))
    lines[:] = "\n\n".join(text if text.lstrip().startswith(">>>") else _escaped(text) for text in paragraphs).split("\n")


def _escaped(text: str) -> str:
    return re.sub(r"`([^`]+)`|([\\*|_])", lambda found: f"``{found[1]}``" if found[1] else f"\\{found[2]}", text)


def generated_pages(app: Any) -> None:
    """Write what the catalogue, the gallery and the benchmarks include, before any page is read, where those pages are."""
    if not (Path(app.srcdir) / "catalogue.md").exists():
        return
    from generate import write

    write(Path(app.srcdir))


def formula(writer: Any, node: Any) -> None:
    """Write a formula, in a line or alone, as MathML."""
    alone = isinstance(node, nodes.math_block)
    writer.body.append(latex2mathml.tex2mathml(node.astext(), as_block=alone))
    raise nodes.SkipNode


def setup(app: Any) -> None:
    app.add_html_math_renderer("mathml", (formula, None), (formula, None))
    app.connect("builder-inited", generated_pages)
    app.connect("autodoc-process-docstring", plain_text)
