"""Every command line in the documentation is one that the program takes: commands, options, arguments and expressions."""

import re
import shlex

import pytest
from typer.main import get_command

from unstraggle import parse_code, parse_latency
from unstraggle.app.cli import app

from ..folding import folded
from ..pages import ROOT, SHELL, fences, line_of, pages, prose

PROGRAM = get_command(app)
CALLED = re.compile(r"(?:^|\s)(?:\S*/)?unstraggle(?=\s|$)(.*)")
STARTS = re.compile(r"(?:\$ )?(?:\S+=\S+ )*(?:\S*/)?(?:unstraggle|mpiexec|python\S*)\s")
INLINE = re.compile(r"`((?:\.venv/bin/)?unstraggle [^`]+)`")
PARTLY = ("...", "…")


class NotACommand(Exception):
    """A command line that the program would not take."""


def shell_lines(text):
    """The commands of a block, one per line: continued lines joined."""
    return [line.strip() for line in re.sub(r"\\\n\s*", " ", text).splitlines()]


def words_of(line):
    """The words after `unstraggle` in a line of a shell; None where the line calls something else."""
    if not STARTS.match(line):
        return None
    found = CALLED.search(line)
    return None if found is None else shlex.split(found[1], comments=True)


def in_blocks(page):
    """(line of the page on which the block begins, command, words) of all commands in blocks of shell."""
    for fence in fences(page):
        for line in shell_lines(fence.text) if fence.language in SHELL else ():
            words = words_of(line)
            if words is not None:
                yield fence.line + 1, line, words


def in_prose(page):
    """(line, command, words) of commands in the middle of a sentence; those with dots in them stand for more."""
    text = prose(page)
    for found in INLINE.finditer(text):
        words = words_of(" ".join(found[1].split()) + " ")
        if words and not any(dots in found[1] for dots in PARTLY):
            yield line_of(text, found.start()), found[1], words


def parsed(words, whole=True):
    """(names of the commands, values of the options and arguments), without running anything. whole: nothing is missing."""
    command, context, names, rest, values = PROGRAM, None, [], list(words), {}
    while command is not None:
        context = type(command).context_class(command, info_name="unstraggle", parent=context)
        found, rest, _ = command.make_parser(context).parse_args(rest)
        values |= {name: value for name, value in found.items() if value is not None}
        missing = [p.name for p in command.params if p.required and found.get(p.name) in (None, ())]
        if whole and missing:
            raise NotACommand(f"missing {missing}")
        command, rest = below(command, context, rest, names, whole and not values)
    if rest:
        raise NotACommand(f"too many arguments: {rest}")
    return names, values


def below(command, context, rest, names, needed):
    """The command that a group's next word names. needed: there must be one."""
    if not hasattr(command, "resolve_command"):
        return None, rest
    if not rest:
        if needed:
            raise NotACommand("no command is named")
        return None, rest
    name, found, rest = command.resolve_command(context, rest)
    names.append(name)
    return found, rest


def expressions(values):
    """The codes of a command, one or several."""
    given = values.get("code", values.get("codes", ()))
    found = [given] if isinstance(given, str) else list(given)
    assert found
    return found


def check_expressions(names, values):
    """Codes and latencies of a command are such."""
    for code in expressions(values) if names[0] in ("run", "simulate", "check") else ():
        assert parse_code(code).n
    if isinstance(values.get("latency"), str) and "(" in values["latency"]:
        assert parse_latency(values["latency"]).sample


@pytest.mark.parametrize("page", [page for page in pages() if any(in_blocks(page)) or any(in_prose(page))])
def test_commands_of_a_page(page):
    with folded() as case:
        for line, command, words in in_blocks(page):
            with case(f"{page}:{line}: {command}"):
                check_expressions(*parsed(words))
        for line, command, words in in_prose(page):
            with case(f"{page}:{line}: {command}"):
                assert parsed(words, whole=False)


def test_commands_are_found():
    assert sum(len(list(in_blocks(page))) for page in pages()) > 30
    assert all(any(in_blocks(page)) for page in ("README.md", "docs/quickstart.md", "docs/howto/spot_machines.md"))
    assert sum(len(list(in_prose(page))) for page in pages()) > 10


@pytest.mark.parametrize(
    "line",
    [
        "unstraggle simulte 'uncoded(4)'",
        "unstraggle simulate 'uncoded(4)' --round 10 --nonsense",
        "unstraggle check 'uncoded(4)' 'uncoded(5)'",
        "unstraggle simulate",
        "unstraggle plan outo trace.jsonl",
        "mpiexec -n 5 python -m unstraggle run",
        "unstraggle",
    ],
)
def test_wrong_commands_are_noticed(line):
    with pytest.raises(Exception, match=r"(?i)no such|missing|too many|unexpected|no command"):
        parsed(words_of(line + " "))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("$ .venv/bin/unstraggle check 'uncoded(4)'  # a comment", ["check", "uncoded(4)"]),
        ("mpiexec -n 5 python -m unstraggle run 'uncoded(4)'", ["run", "uncoded(4)"]),
        ("import unstraggle as us", None),
        ("mpiexec -n 9 python -m unstraggle.engines.mpi train.py", None),
    ],
)
def test_what_counts_as_a_command(line, words):
    assert words_of(line) == words


def test_make_targets_exist():
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        (page, name)
        for page in pages()
        for fence in fences(page)
        if fence.language in SHELL
        for name in re.findall(r"^(?:\$ )?make (\w+)", fence.text, re.MULTILINE)
    }
    assert named and all(name in targets for _, name in named)
