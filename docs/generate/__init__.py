"""Pages that are written at build time: the catalogue from the schemes, the gallery from papers/, the benchmarks from results.

`docs/conf.py` calls `write` before Sphinx reads the pages. What is written lies in docs/generated and is not kept in git; the
pages themselves (docs/catalogue.md, docs/reproductions.md, docs/benchmarks.md) are short texts that include it.
"""

from __future__ import annotations

from pathlib import Path

from . import benchmarks, catalogue, reproductions

DOCS = Path(__file__).parent.parent


def write(docs: Path = DOCS) -> None:
    """Write docs/generated: fragments, pictures, pages of the papers and raw numbers."""
    out = docs / "generated"
    catalogue.write(out)
    reproductions.write(docs.parent / "papers", out)
    benchmarks.write(docs.parent / "benchmarks", out)
