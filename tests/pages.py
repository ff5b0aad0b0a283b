"""The pages of the documentation, and the code in them."""

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PATTERNS = ("*.md", "docs/**/*.md", "examples/*.md", "papers/*/*.md", "benchmarks/*.md")
LEFT_OUT = {"_build", "generated"}

FENCE = re.compile(r"^( *)(`{3,})([^\n`]*)\n(.*?)^\1\2 *$", re.MULTILINE | re.DOTALL)
SCRIPT = re.compile(r"# (\w+\.py)(?:, run by: (.+))?\n")
NOT_RUN = re.compile(r"# not run here: (.+)\n")
SHELL = ("", "bash", "sh", "shell", "console")


@dataclass(frozen=True)
class Fence:
    """A block of code: its language, its text without indentation, and the line of the page on which the text begins."""

    language: str
    text: str
    line: int

    @property
    def script(self) -> tuple[str, str] | None:
        """(file name, command) of a block that is a whole script. It begins with its name, and how it is started if that is
        not by Python alone: `# train.py`, or `# train.py, run by: mpiexec -n 5 python -m unstraggle.engines.mpi train.py`."""
        found = SCRIPT.match(self.text)
        return None if found is None else (found[1], found[2] or f"python {found[1]}")

    @property
    def reason(self) -> str | None:
        """Why a block does not run in the tests, which it says in its first line: `# not run here: REASON`."""
        found = NOT_RUN.match(self.text)
        return None if found is None else found[1]


def pages():
    """All pages, as paths from the root of the repository."""
    found = {path.relative_to(ROOT) for pattern in PATTERNS for path in ROOT.glob(pattern)}
    return sorted(str(path) for path in found if not LEFT_OUT & set(path.parts))


def fences(page):
    """The blocks of a page, in order."""
    text = (ROOT / page).read_text()
    return [
        Fence(found[3].strip(), textwrap.dedent(found[4]), text.count("\n", 0, found.start(4)))
        for found in FENCE.finditer(text)
    ]


def prose(page):
    """A page with empty lines for its blocks."""
    return FENCE.sub(lambda found: "\n" * found[0].count("\n"), (ROOT / page).read_text())


def line_of(text, place):
    """The number of the line, from 1, in which a place of a text lies."""
    return text.count("\n", 0, place) + 1
