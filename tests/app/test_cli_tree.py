"""What holds for all commands: help with an example, options with words, 80 columns, the page that names them, completion."""

import re
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from unstraggle import __version__
from unstraggle.app.cli import app

from ..commands import run, run_process
from ..folding import folded

PAGE = Path(__file__).parents[2] / "docs/cli.md"
EXAMPLE = re.compile(r"Example: unstraggle ")


def leaves(app):
    """(path, command) of every command that does something."""
    todo = [((), get_command(app))]
    while todo:
        path, command = todo.pop()
        if hasattr(command, "commands"):
            todo += [((*path, name), inner) for name, inner in command.commands.items()]
        else:
            yield path, command


COMMANDS = dict(sorted(leaves(app)))
GROUPS = [(), ("plan",)]
FIRST = "unstraggle di"
EXACT = [("plan", "bits"), ("plan", "deadline"), ("plan", "convergence")]


@pytest.mark.parametrize("path", [*GROUPS, *COMMANDS], ids=" ".join)
def test_help_has_an_example_and_fits(path):
    done = CliRunner().invoke(app, [*path, "--help"], prog_name="unstraggle", env={"COLUMNS": "80"})
    assert done.exit_code == 0
    assert len(EXAMPLE.findall(done.output)) == 1 and f"Example: unstraggle {' '.join(path)}" in done.output
    assert max(map(len, done.output.splitlines())) <= 80


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_option_says_what_it_does(path):
    for param in COMMANDS[path].params:
        assert param.help and (param.help[0].isupper() or param.help[0] in "'-"), f"{param.name}: {param.help!r}"
        assert param.help.endswith("."), f"{param.name}: {param.help!r}"


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_shared_options_are_the_same_everywhere(path):
    options = {opt for param in COMMANDS[path].params for opt in param.opts}
    assert {"--json", "--out", "-o"} <= options
    assert "--seed" in options or path[0] in ("report", "compare") or path in EXACT  # which draw nothing
    assert ("-n" in options) == ("--workers" in options)


def test_a_seed_below_zero_is_refused_everywhere():
    """It ended in a traceback of NumPy in six commands."""
    seeded = [path for path, command in COMMANDS.items() if "--seed" in {opt for one in command.params for opt in one.opts}]
    with folded() as case:
        for path in seeded:
            with case(" ".join(path)):
                done = CliRunner().invoke(app, [*path, "--seed", "-1", "x", "-o", "/dev/null/x"])
                assert done.exit_code == 2 and "Invalid value for '--seed'" in done.output
    assert len(seeded) > 10


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_the_page_has_every_command_and_its_own_example(path):
    text = PAGE.read_text()
    assert f"### {' '.join(path)}\n" in text or f"`unstraggle {' '.join(path)}`" in text
    example = re.search(r"Example: (.+)", COMMANDS[path].help)[1].strip()
    assert example in text


def test_the_page_has_no_command_that_is_not_there():
    headings = re.findall(r"^### (.+)$", PAGE.read_text(), re.MULTILINE)
    assert headings and {tuple(heading.split()) for heading in headings} == set(COMMANDS)


def test_version_and_no_command():
    runner = CliRunner()
    assert runner.invoke(app, ["--version"]).output == f"unstraggle {__version__}\n"
    nothing = runner.invoke(app, [])
    assert nothing.exit_code == 2 and "Simulate rounds" in nothing.output
    near = runner.invoke(app, ["simulte"])
    assert near.exit_code == 2 and "Did you mean 'simulate'" in " ".join(near.output.replace("│", " ").split())


@pytest.mark.parametrize(
    "words, expected",
    [
        (FIRST, {"diagnose"}),
        ("unstraggle plan ", {"auto", "bits", "blocks", "convergence", "deadline", "orders", "redundancy"}),
        ("unstraggle reproduce mmc", {"mmc-claims", "mmc-fig1", "mmc-front"}),
        ("unstraggle measure --engine ", {"local", "ray", "mpi"}),
        ("unstraggle plan blocks --method tan", {"tandon", "tandon_tuned"}),
    ],
)
def test_completion_in_bash(words, expected, monkeypatch):
    count = len(words.split()) - (0 if words.endswith(" ") else 1)
    asked = {"_UNSTRAGGLE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(count)}
    if words == FIRST:
        assert set(run_process(**asked).stdout.split()) == expected
    for name, value in asked.items():
        monkeypatch.setenv(name, value)
    assert set(run().stdout.split()) == expected
