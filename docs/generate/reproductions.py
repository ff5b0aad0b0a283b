"""The gallery of reproduced figures, and the pages of the papers, both from papers/*/README.md."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from unstraggle.papers import FIGURES

from . import text

CLAIMS = "Claim against measured"
KEPT = (".png", ".csv", ".json")

LEFT_OUT: dict[str, str] = {}
"""Figures that `unstraggle reproduce` knows but the gallery does not show, each with the reason."""


def write(papers: Path, out: Path) -> None:
    """Write OUT/reproductions.md and OUT/papers/PAPER/README.md with its pictures, tables and data."""
    for folder in folders(papers):
        for file in sorted(folder.iterdir()):
            if file.suffix in KEPT:
                _copy(file, out / "papers" / folder.name / file.name)
        text.save(out / "papers" / folder.name / "README.md", paper_page(folder))
    text.save(out / "reproductions.md", gallery(papers))


def folders(papers: Path) -> list[Path]:
    """Papers in the order of their figures in FIGURES."""
    where = (found for name in FIGURES for found in papers.glob(f"*/{name}.json"))
    return list(dict.fromkeys(file.parent for file in where))


def gallery(papers: Path) -> str:
    """A section per paper: its claims, then its figures."""
    pieces = [paper_section(folder) for folder in folders(papers)]
    if LEFT_OUT:
        pieces += ["## Left out", "\n".join(f"- {name}: {why}" for name, why in LEFT_OUT.items())]
    return "\n\n".join(pieces) + "\n"


def paper_section(folder: Path) -> str:
    source = (folder / "README.md").read_text(encoding="utf-8")
    figures = [figure_section(folder, name) for name in FIGURES if (folder / f"{name}.json").exists()]
    page = f"generated/papers/{folder.name}/README.md"
    claims = relinked(
        section(source, CLAIMS), docs="", results="generated/benchmarks/", here=f"generated/papers/{folder.name}/"
    )
    head = f"## {title(source)}\n\n[The whole page]({page}): settings, all tables, what differs from the paper and why."
    return "\n\n".join([head, claims, *figures])


def figure_section(folder: Path, name: str) -> str:
    """Title, picture, command and files of one figure."""
    about = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    what, at = FIGURES[name].title, f"generated/papers/{folder.name}/{name}"
    lines = [
        f"### {what[0].upper()}{what[1:]}",
        f"![{what}]({at}.png)",
        f"`{about['repeat']} -o DIR` writes it again. Setting: {about['setting']}. [Table]({at}.csv), [data]({at}.json).",
    ]
    return "\n\n".join(lines)


def paper_page(folder: Path) -> str:
    """The README of a paper with links that hold inside the documentation."""
    source = (folder / "README.md").read_text(encoding="utf-8")
    return relinked(source, docs="../../../", results="../../benchmarks/", here="")


def title(source: str) -> str:
    """The heading of a page."""
    return source.splitlines()[0].removeprefix("# ")


def section(source: str, heading: str) -> str:
    """The text below a heading of the second level, up to the next one."""
    found = re.search(rf"^## {re.escape(heading)}\n+(.*?)(?=^## |\Z)", source, re.MULTILINE | re.DOTALL)
    if not found:
        raise ValueError(f"A paper's README needs a section '## {heading}', with a table of claim, measured and why.")
    return found[1].strip()


def relinked(source: str, docs: str, results: str, here: str) -> str:
    """Links of a README in papers/X as seen from elsewhere: to docs, to benchmark results, and to files beside it.

    >>> relinked("[a](../../docs/b.md) [c](d.png) [e](https://f)", docs="", results="r/", here="h/")
    '[a](b.md) [c](h/d.png) [e](https://f)'
    """
    source = source.replace("](../../docs/", f"]({docs}").replace("](../../benchmarks/results/", f"]({results}")
    return re.sub(r"\]\(([\w-]+\.(?:png|csv|json|pdf))\)", rf"]({here}\1)", source)


def _copy(file: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    if not to.exists() or to.read_bytes() != file.read_bytes():
        shutil.copyfile(file, to)
