"""CONTRIBUTING followed to the letter, in a copy of the tree, gives a scheme that all contracts and pages know."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEW = "meet_in_the_middle"
NODES = (
    "tests/scheme/test_contracts.py",
    "tests/codes/test_facts.py",
    "tests/codes/test_copies.py",
    "tests/app/test_cite.py",
    "tests/house/test_docs_generated.py",
    "tests/house/test_rings.py",
)
"""Tests that know every scheme."""


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of what belongs to the repository, with the scheme that CONTRIBUTING adds."""
    copy = tmp_path_factory.mktemp("tree")
    for name in ("unstraggle", "tests", "docs", "papers", "benchmarks"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "_build", "generated"))
    for name in ("pyproject.toml", "CITATION.cff", "README.md", "CHANGELOG.md", "CONTRIBUTING.md"):
        shutil.copy(ROOT / name, copy / name)
    text = (ROOT / "CONTRIBUTING.md").read_text()
    path, source = re.search(rf"whole file, `(\S*{NEW}\.py)`:\n\n```python\n(.*?)```", text, re.DOTALL).groups()
    where, line = re.search(r"1\. Add one line to `(\S+)`.*?```text\n\s*(from .*?)\n", text, re.DOTALL).groups()
    (copy / path).write_text(source)
    added = (copy / where).read_text().replace("from .modify import hybrid", f"{line}\nfrom .modify import hybrid")
    (copy / where).write_text(added)
    return copy


def passed(tree, *arguments):
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(tree), "NUMBA_DISABLE_JIT": "1"}  # kernels of a copy would be compiled anew
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    return int(re.search(r"(\d+) passed", done.stdout)[1])


def test_the_scheme_of_contributing_keeps_every_contract(tree):
    assert passed(tree, *NODES, "-k", f"{NEW} or every or facts or cycle or inwards") >= 12


def test_a_missing_line_is_named(tree, tmp_path):
    other = shutil.copytree(tree, tmp_path / "tree")
    init = other / "unstraggle" / "codes" / "__init__.py"
    init.write_text("".join(line for line in init.read_text().splitlines(True) if NEW not in line))
    with pytest.raises(AssertionError, match=f"add to unstraggle/codes/__init__.py: from .{NEW} import"):
        passed(other, "tests/codes/test_facts.py")
