"""The documentation is true: its code runs and prints what it says, its links lead somewhere, and docstring examples hold."""

import doctest
import importlib
import importlib.util
import pkgutil
import re
from pathlib import Path

import pytest

import unstraggle

ROOT = Path(__file__).parent.parent
PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "papers/mmc_clustering/README.md",
    "docs/index.md",
    "docs/idea.md",
    "docs/diagnose.md",
    "docs/report.md",
    "docs/traces.md",
    "docs/training.md",
    "docs/mpi.md",
    "docs/notation.md",
    "docs/api.md",
    "docs/planning.md",
    "docs/quantizers.md",
    "docs/runtime.md",
    "docs/security.md",
    "papers/block_coordinate/README.md",
    "papers/quantized_osgc/README.md",
    "docs/two_track.md",
)
PAGES_WITH_CODE = (
    "README.md",
    "CONTRIBUTING.md",
    "docs/idea.md",
    "docs/diagnose.md",
    "docs/report.md",
    "docs/traces.md",
    "docs/training.md",
    "docs/planning.md",
    "docs/quantizers.md",
    "docs/runtime.md",
    "docs/two_track.md",
)

FENCE = re.compile(r"^```(\w*).*?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s#]+)[^)]*\)")
EXPECTED = "# > "


def links(page):
    targets = LINK.findall(FENCE.sub("", (ROOT / page).read_text()))
    return [target for target in targets if "://" not in target]


def modules_with_examples():
    names = (module.name for module in pkgutil.walk_packages(unstraggle.__path__, "unstraggle."))
    return [name for name in names if ">>>" in Path(importlib.util.find_spec(name).origin).read_text()]


@pytest.mark.parametrize("page", PAGES_WITH_CODE)
def test_code_runs_and_prints_what_it_says(page, capsys):
    text = (ROOT / page).read_text()
    blocks = [match for match in FENCE.finditer(text) if match[1] == "python"]
    assert blocks
    namespace = {"__name__": page}
    for block in blocks:
        above = "\n" * text.count("\n", 0, block.start(2))  # so that a traceback shows the line of the page
        exec(compile(above + block[2], page, "exec", dont_inherit=True), namespace)
        said = [line.removeprefix(EXPECTED) for line in block[2].splitlines() if line.startswith(EXPECTED)]
        assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == said


@pytest.mark.parametrize(("page", "target"), [(page, target) for page in PAGES for target in links(page)])
def test_link_leads_somewhere(page, target):
    assert ((ROOT / page).parent / target).exists()


@pytest.mark.parametrize("name", modules_with_examples())
def test_docstring_examples(name):
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    result = doctest.testmod(importlib.import_module(name), optionflags=flags)
    assert result.attempted and not result.failed
