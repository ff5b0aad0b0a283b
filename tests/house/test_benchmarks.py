"""Benchmarks are seldom run, so that nobody notices when what they import is gone."""

import ast
import json
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


def imported(path):
    """(module, name) of what a file imports from this package, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").split(".")[0] == "unstraggle":
            yield from ((node.module, alias.name) for alias in node.names)


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.py")), ids=lambda path: path.stem)
def test_what_it_imports_is_there(path):
    missing = [
        f"{module}.{name}"
        for module, name in imported(path)
        if not hasattr(import_module(module), name) and find_spec(f"{module}.{name}") is None
    ]
    assert missing == []


def test_what_the_page_says_of_reading_was_measured():
    """And that it is what was asked: 1.1 of a DataLoader's step, 1.15 of computing."""
    rows = json.loads((FOLDER / "results" / "reading.json").read_text())["rows"]
    found = {(row["samples"], row["way"]): row for row in rows}
    for samples in (16, 20):
        assert found[samples, "uncoded(2), read_ahead=True"]["of_loader"] <= 1.1
        assert found[samples, "uncoded(2), read_ahead=True"]["of_computing"] <= 1.15
        assert found[samples, "fractional_repetition(2, s=1), read_ahead=True"]["of_computing"] <= 1.15
    page = " ".join((FOLDER.parent / "docs" / "training.md").read_text().split())
    wait, repeat = "uncoded(2), read_ahead=", "fractional_repetition(2, s=1), read_ahead="
    numbers = [found[20, f"{wait}{ahead}"]["of_loader"] for ahead in (True, False)]
    numbers += [found[20, f"{repeat}{ahead}"]["of_computing"] for ahead in (True, False)]
    assert f"takes {numbers[0]} of one process" in page and f"{numbers[2]} of its computing alone" in page
    assert f"it is {numbers[1]} and {numbers[3]} (" in page
