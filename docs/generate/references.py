"""The papers of a scheme, from BibTeX to a line with a link."""

from __future__ import annotations

import re
import unicodedata

from unstraggle.app import citations

ACCENTS = {'"': "\u0308", "'": "\u0301", "`": "\u0300", "^": "\u0302"}


def papers(name: str) -> list[str]:
    """Markdown lines, one per paper of this scheme.

    >>> papers("blocks")[0][:32]
    'Wang, Cui, Li, Zou, Xiong (2021)'
    """
    return [line(citations.entries()[key]) for key in citations.papers_of(name)]


def line(entry: str) -> str:
    """Authors, year, title and a link where the entry knows one."""
    fields = {key: plain(value) for key, value in re.findall(r"^\s+(\w+)\s*=\s*\{(.*)\},$", entry, re.MULTILINE)}
    surnames = ", ".join(author.split(",")[0].strip() for author in fields["author"].split(" and "))
    return f"{surnames} ({fields['year']}): {fields['title']}{_where(fields)}"


def _where(fields: dict[str, str]) -> str:
    place = fields.get("booktitle") or fields.get("journal")
    said = f". {place}" if place else ""
    if "eprint" in fields:
        return f"{said}, [arXiv {fields['eprint']}](https://arxiv.org/abs/{fields['eprint']})"
    if "doi" in fields:
        return f"{said}, [doi {fields['doi']}](https://doi.org/{fields['doi']})"
    return said


def plain(text: str) -> str:
    r"""BibTeX without braces and with real accents.

    >>> plain('G{\\"u}nd{\\"u}z, {MDS}')
    'Gündüz, MDS'
    """
    accented = re.sub(r"\{\\(.)(\w)\}", lambda found: found[2] + ACCENTS[found[1]], text)
    return unicodedata.normalize("NFC", accented.replace("{", "").replace("}", ""))
