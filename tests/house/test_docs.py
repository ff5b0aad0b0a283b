"""The documentation is true: its code runs and prints what it says, its links lead somewhere, and docstring examples hold."""

import doctest
import importlib
import importlib.util
import os
import pkgutil
import re
import shlex
import subprocess
import sys
import tempfile
from functools import cache
from itertools import groupby
from pathlib import Path
from types import FunctionType, ModuleType

import pytest

import unstraggle
from unstraggle.runtime.states import TRANSITIONS, State

from ..commands import run_script
from ..engines.patient_ray import wait_for_ray
from ..folding import folded
from ..pages import ROOT, fences, line_of, pages, prose

LINK = re.compile(r"\[[^\]]*\]\(([^)\s#]+)[^)]*\)")
EXPECTED = "# > "
MOST_NOT_RUN = 4
"""Blocks that may say that they do not run here."""


def python_blocks(page):
    return [fence for fence in fences(page) if fence.language == "python"]


def links(page):
    """(line, target) of the links to files."""
    text = prose(page)
    return [(line_of(text, found.start(1)), found[1]) for found in LINK.finditer(text) if "://" not in found[1]]


@cache
def listed():
    """The pages that stand in a table of contents."""
    found = {"docs/index.md"}
    for page in pages():
        for fence in fences(page) if page.startswith("docs/") else ():
            if fence.language == "{toctree}":
                names = [line.strip() for line in fence.text.splitlines() if line.strip() and not line.startswith(":")]
                found |= {str(Path(page).parent / f"{name}.md") for name in names}
    return found


@cache
def modules_with_examples():
    """{part of the package: its modules that have examples}"""
    names = (module.name for module in pkgutil.walk_packages(unstraggle.__path__, "unstraggle."))
    found = [name for name in names if ">>>" in Path(importlib.util.find_spec(name).origin).read_text()]
    return {part: list(inside) for part, inside in groupby(sorted(found), lambda name: name.split(".")[1])}


def said(text):
    """What a block says that it prints."""
    return [line.removeprefix(EXPECTED).rstrip() for line in text.splitlines() if line.startswith(EXPECTED.rstrip())]


def started(command):
    """The command line that starts a script here."""
    words = shlex.split(command)
    if words[0] != "mpiexec":
        return [sys.executable, *words[1:]]
    from unstraggle.engines.mpi import command as by_mpiexec

    return by_mpiexec(int(words[words.index("-n") + 1]) - 1, *words[words.index("unstraggle.engines.mpi") + 1 :])


def printed_by_script(block, page, folder):
    """Write a script and run it as a reader would; gives what it printed."""
    name, command = block.script
    (folder / name).write_text(block.text)
    if "engines.Ray" in block.text:
        wait_for_ray()
    if command.startswith("python") and page != "README.md":  # that one as a process; the others cost less here
        return run_script(folder / name).stdout
    if command.startswith("mpiexec"):
        pytest.importorskip("mpi4py")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(started(command), cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def execute(block, page, namespace):
    """Run a block in the namespace of its page; a traceback shows the line of the page."""
    code = compile("\n" * block.line + block.text, page, "exec", dont_inherit=True)
    if block.reason is None:
        exec(code, namespace)


def one_thread(page):
    """Threads of PyTorch that wait for one another are slow where other tests use the cores as well."""
    if any("import torch" in block.text for block in python_blocks(page)):
        import torch

        torch.set_num_threads(1)


@pytest.mark.parametrize("page", [page for page in pages() if python_blocks(page)])
def test_code_runs_and_prints_what_it_says(page, capsys, tmp_path, monkeypatch):
    one_thread(page)
    monkeypatch.chdir(tmp_path)  # blocks may write files; what they read of the repository is there, too
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "path", list(sys.path))
    for folder in ("benchmarks", "examples"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    module = ModuleType(page.replace(".", "_"))  # a real one: what a page defines can be pickled
    monkeypatch.setitem(sys.modules, module.__name__, module)
    namespace = vars(module)
    for block in python_blocks(page):
        if block.script:
            printed = printed_by_script(block, page, tmp_path)
        else:
            execute(block, page, namespace)
            printed = capsys.readouterr().out
        assert [line.rstrip() for line in printed.splitlines()] == ([] if block.reason else said(block.text)), block.line


def test_pages_are_found():
    found = pages()
    assert {"README.md", "CONTRIBUTING.md", "docs/index.md", "docs/idea.md", "docs/howto/mpi.md"} <= set(found)
    assert len([page for page in found if python_blocks(page)]) >= 20


def test_few_blocks_do_not_run_and_these_say_why():
    reasons = [block.reason for page in pages() for block in python_blocks(page) if block.reason is not None]
    assert len(reasons) <= MOST_NOT_RUN
    assert all(len(reason) > 10 for reason in reasons)


@pytest.mark.parametrize("name", ["own_scheme", "own_engine"])
def test_how_to_pages_show_the_examples_as_they_are(name):
    text = (ROOT / "docs" / "howto" / f"{name}.md").read_text()
    assert f"```{{literalinclude}} ../../examples/{name}.py\n" in text


def test_pictures_can_be_drawn_again(tmp_path):
    script = ROOT / "docs" / "images" / "draw_concepts.py"
    done = subprocess.run([sys.executable, str(script), str(tmp_path)], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    drawn = {path.name for path in tmp_path.iterdir()}
    shown = set(re.findall(r"\(images/(concepts-\w+\.png)\)", (ROOT / "docs" / "concepts.md").read_text()))
    assert drawn == shown == {path.name for path in script.parent.glob("concepts-*.png")}


def test_every_transition_of_a_round_is_in_its_picture(tmp_path):
    sys.path.insert(0, str(ROOT / "docs" / "images"))
    try:
        import draw_states
    finally:
        sys.path.pop(0)
    texts = draw_states.states().axes[0].texts
    shown = {text.get_gid(): " ".join(text.get_text().split()) for text in texts if text.get_gid()}
    arrows = {(state, then) for (state, _), then in TRANSITIONS.items()}
    assert shown.keys() == {f"{state.name} {then.name}" for state, then in arrows} and draw_states.WAYS.keys() == arrows
    for (state, signal), then in TRANSITIONS.items():
        assert signal.value in shown[f"{state.name} {then.name}"]
    assert {state.value for state in State} <= {text.get_text() for text in texts}
    draw_states.main(tmp_path)
    assert (tmp_path / "round-states.png").read_bytes().startswith(b"\x89PNG")
    assert "(images/round-states.png)" in (ROOT / "docs" / "house.md").read_text()


@pytest.mark.parametrize("page", pages())
def test_links_lead_somewhere_and_the_page_is_found(page):
    missing = [f"{page}:{line}: {target}" for line, target in links(page) if not ((ROOT / page).parent / target).exists()]
    assert not missing
    assert page in listed() or not page.startswith("docs/"), "it is in no table of contents"


def test_links_are_found_with_their_lines():
    found = {(page, line): target for page in pages() for line, target in links(page)}
    assert len(found) > 100
    assert all(target in (ROOT / page).read_text().splitlines()[line - 1] for (page, line), target in found.items())


@pytest.mark.parametrize("part", modules_with_examples())
def test_docstring_examples(part):
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    with folded() as case:
        for name in modules_with_examples()[part]:
            with case(name):
                result = doctest.testmod(importlib.import_module(name), optionflags=flags)
                assert result.attempted and not result.failed


@cache
def interfaces():
    """{module: the names that docs/api.md shows of it; none: all that it exports}"""
    text = (ROOT / "docs" / "api.md").read_text()
    found = {name: [] for name in re.findall(r"automodule:: ([\w.]+)", text)}
    found |= {name: members.split(", ") for name, members in re.findall(r"automodule:: ([\w.]+)\n   :members: (.+)", text)}
    return found


def shown(value):
    """Whether the page of interfaces shows a function or a class: in its own module, or in one that exports it."""
    name, home = value.__name__, value.__module__
    if home in interfaces() and (not interfaces()[home] or name in interfaces()[home]):
        return True
    return any(name in getattr(importlib.import_module(module), "__all__", ()) for module in interfaces())


@pytest.mark.parametrize("module", ["", ".codes", ".engines", ".latency", ".problems", ".quantizers", ".testing"])
def test_every_public_name_is_among_the_interfaces(module):
    home = importlib.import_module(f"unstraggle{module}")
    names = {name: getattr(home, name) for name in home.__all__}
    assert [name for name, value in names.items() if isinstance(value, type | FunctionType) and not shown(value)] == []


def test_interfaces_exist():
    missing = [f"{home}.{name}" for home, names in interfaces().items() for name in names
               if not hasattr(importlib.import_module(home), name)]  # fmt: skip
    assert missing == []


def test_many_modules_have_examples():
    assert sum(map(len, modules_with_examples().values())) > 80
