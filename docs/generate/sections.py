"""A section of the catalogue: idea, formula, numbers, pictures and papers of one scheme."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

from unstraggle import codes
from unstraggle.study.rounds import Rounds

from . import text
from .numbers import GOAL, ROUNDS, SEED, ApproximateFacts, ExactFacts, Facts, waiting
from .references import papers
from .schemes import Entry

FOLDER = "generated/catalogue"
"""Where the page finds the pictures, from docs/."""

WIDTH = 108
"""Characters of a line of code that the page shows without a scroll bar."""


def section(each: ExactFacts | ApproximateFacts) -> str:
    """The whole section."""
    entry = each.entry
    function: Callable[..., Any] = getattr(codes, entry.name)
    rows = exact_rows(each) if isinstance(each, ExactFacts) else approximate_rows(each)
    pieces = [
        f"(scheme-{entry.name})=\n### {entry.name}",
        f"```python\n{signature(function)}\n```",
        f"{idea(function)} Options: {{py:func}}`unstraggle.codes.{entry.name}`.",
        f"```text\n{formula(entry)}\n```",
        text.table(["example", f"`{entry.shown}`"], rows),
        entry.note,
        pictures(entry),
        f"Repeat: `{command(each)}`",
        "\n".join(f"- {line}" for line in papers(entry.name)) or "No paper of its own.",
    ]
    return "\n\n".join(piece for piece in pieces if piece)


def signature(function: Callable[..., Any]) -> str:
    """The signature as it stands in the file, annotations without quotes; on several lines where it is long."""
    found = inspect.signature(function)
    given = [str(each.replace(annotation=_Plain(each.annotation))) for each in found.parameters.values()]
    named = [each.kind for each in found.parameters.values()]
    if inspect.Parameter.KEYWORD_ONLY in named and inspect.Parameter.VAR_POSITIONAL not in named:
        given.insert(named.index(inspect.Parameter.KEYWORD_ONLY), "*")
    line = f"{function.__name__}({', '.join(given)}) -> {found.return_annotation}"
    if len(line) <= WIDTH:
        return line
    inside = packed([f"{each}," for each in given], " ", WIDTH - 4)
    return "\n    ".join([f"{function.__name__}(", *inside]) + f"\n) -> {found.return_annotation}"


class _Plain(str):
    """A text that prints itself where Python prints a repr."""

    def __repr__(self) -> str:
        return str(self)


def packed(pieces: Sequence[str], between: str, width: int) -> list[str]:
    """Lines of at most so many characters that break only between pieces.

    >>> packed(["a,", "bc,", "d"], " ", 6)
    ['a, bc,', 'd']
    """
    lines = [""]
    for piece in pieces:
        longer = f"{lines[-1]}{between}{piece}" if lines[-1] else piece
        lines[-1:] = [longer] if len(longer) <= width or not lines[-1] else [lines[-1], piece]
    return lines


def idea(function: Callable[..., Any]) -> str:
    """The first sentence of the docstring, as markdown."""
    paragraph = " ".join((inspect.getdoc(function) or "").split("\n\n")[0].split())
    sentence = re.split(r"(?<=[.])\s+(?=[A-Z\[])", paragraph)[0]
    return re.sub(r"`[^`]*`|([*_])", lambda found: f"\\{found[1]}" if found[1] else found[0], sentence)


def formula(entry: Entry) -> str:
    """What is sent and how it is decoded; lines break where two spaces part clauses."""
    lines = []
    for word, rule in (("sent", entry.sent), ("decoded", entry.decoded)):
        broken = [line for given in rule.split("\n") for line in packed(given.split("  "), "  ", WIDTH - 10)]
        lines += [f"{word if not place else '':9}{line}" for place, line in enumerate(broken)]
    return "\n".join(lines)


def pictures(entry: Entry) -> str:
    """The table of the code, and its time or error, side by side."""
    what = "How often a round has ended by then" if entry.exact else "Relative error against the deadline"
    shown = {"code": ("44%", f"Coefficients of {entry.shown}"), "time": ("54%", f"{what}, {entry.name} and its rivals")}
    lines = [f'![{alt}]({FOLDER}/{entry.name}-{kind}.png){{width="{width}"}}' for kind, (width, alt) in shown.items()]
    return "\n".join(lines)


def command(each: ExactFacts | ApproximateFacts) -> str:
    """What gives the simulated time and messages again, or the error."""
    if isinstance(each, ApproximateFacts):
        return f"us.plan.mean_squared_error(us.codes.{each.entry.shown}, p).relative"
    by = "" if each.rule else " --by span"
    return f'unstraggle simulate "{each.entry.example}" --rounds {ROUNDS} --seed {SEED}{by}'


def exact_rows(each: ExactFacts) -> list[list[str]]:
    """Name and value of all that is computed."""
    threshold = (
        "by span only" if each.code.threshold is None else f"{each.code.threshold} of {len(each.code.messages)} messages"
    )
    spans = f"{_seconds(each.span)} by span"
    return [
        *_common_rows(each),
        ["always enough", threshold],
        ["tolerates", f"any {each.tolerates} of {each.code.n} workers silent" if each.tolerates else "no silent worker"],
        ["exact", "yes" if each.code.messages.plain.all() else "up to the noise of the quantiser"],
        ["time of a round", spans if each.rule is None else f"{_seconds(each.rule)} by rule, {spans}"],
        ["over waiting for all", ratio(each.rounds.time.mean)],
    ]


def approximate_rows(each: ApproximateFacts) -> list[list[str]]:
    """Name and value of all that is computed."""
    error, time = each.orthogonal, each.time_to_goal
    mean = "1: unbiased" if error.unbiased else f"{error.mean.min():.2f} to {error.mean.max():.2f}: biased"
    return [
        *_common_rows(each),
        ["exact", "no"],
        ["mean coefficient of a partition", mean],
        ["bias, relative squared", bias(each)],
        ["relative error, orthogonal", f"{error.relative:.3f}"],
        ["relative error, identical", f"{each.identical.relative:.3f}"],
        [f"deadline for error {GOAL:g}", f"{time:.3f} s, equal workers" if time < float("inf") else "not reached"],
        ["over waiting for all", ratio(time)],
    ]


def _common_rows(each: Facts) -> list[list[str]]:
    load = f"{each.code.load:.3g}"
    if each.code.load - each.load_mean > 1e-9:
        load += f" at most, {each.load_mean:.3g} on average"
    return [
        ["load", f"{load}, of {each.code.k}{' encoded' if each.code.data is not None else ''} partitions"],
        ["messages per round", f"{each.messages:.1f} of {len(each.code.messages)}"],
        ["MB per round", f"{each.megabytes:.1f}"],
        ["noise gain", gain(each)],
    ]


def _seconds(found: Rounds) -> str:
    half = (found.time.ci95[1] - found.time.ci95[0]) / 2
    return f"{found.time.mean:.3f} ± {half:.3f} s"


def ratio(time: float) -> str:
    """A time over that of waiting for all."""
    return f"{time / waiting().time.mean:.2f}" if time < float("inf") else "not reached"


def bias(each: ApproximateFacts) -> str:
    """The squared bias over the squared gradient."""
    return "0" if each.orthogonal.unbiased else f"{each.orthogonal.bias / each.orthogonal.squared_norm:.3f}"


def gain(each: Facts) -> str:
    """Median and worst noise gain."""
    return f"{text.number(each.gain.median, 2)}, worst {text.number(each.gain.worst, 2)}"
