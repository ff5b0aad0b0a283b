"""The catalogue of schemes: two tables to compare, then a section per scheme."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from . import pictures, text
from .numbers import DIM, GOAL, LATENCY, ROUNDS, SEED, ApproximateFacts, ExactFacts, facts, waiting
from .schemes import ENTRIES, GROUPS, Entry, N, P
from .sections import bias, gain, ratio, section


def write(out: Path, entries: Sequence[Entry] = ENTRIES) -> None:
    """Write OUT/catalogue.md and the pictures beside it."""
    found = [facts(entry) for entry in entries]
    rivals = {each.entry.name: each for each in found if isinstance(each, ApproximateFacts)}
    for each in found:
        pictures.save(each, out / "catalogue", rivals)
    text.save(out / "catalogue.md", page(found))


def page(found: Sequence[ExactFacts | ApproximateFacts]) -> str:
    """The whole text."""
    exact = [each for each in found if isinstance(each, ExactFacts)]
    approximate = [each for each in found if isinstance(each, ApproximateFacts)]
    pieces = [setting(), "## Exact schemes at a glance", exact_table(exact)]
    pieces += ["## Approximate schemes at a glance", approximate_setting(), approximate_table(approximate)]
    for group, title in GROUPS.items():
        members = [each for each in found if each.entry.group == group]
        if members:
            pieces += [f"## {title}", *(section(each) for each in members)]
    return "\n\n".join(pieces) + "\n"


def setting() -> str:
    """What all numbers have in common."""
    return f"""**The setting of every number below.** n = {N} workers. The latency model is that of [A], `{LATENCY!r}`:
a worker draws its speed once a round, and twice the work takes twice the time. {ROUNDS:,} simulated rounds, seed {SEED}, the
same draws for all schemes. Waiting for all takes {waiting().time.mean:.3f} s per round on average. Bytes are those of a
gradient with {DIM:,} coordinates.

**Letters.** g_j is the partial gradient of partition j, g the sum of all. m_i is the message of worker i, B the matrix of
coefficients (in pictures a row per message), A the set of workers that were heard. [A], [B] and [C] are papers, see
[notation](notation.md).

- *load*: most work of a worker, in shares of 1/n of the data.
- *tolerates*: the most workers of which any may be silent, tried out on all sets. Many larger sets decode as well.
- *messages, MB*: sent until the round ends, on average, copies included.
- *noise gain*: how much decoding amplifies rounding or quantisation, median and worst over survivor sets.
- *time*: mean time of a round over that of waiting for all. By rule: a round ends at the threshold of the paper. By span:
  as soon as linear algebra allows."""


def exact_table(found: Sequence[ExactFacts]) -> str:
    head = ["scheme", "load", "tolerates", "messages", "MB", "noise gain", "time by rule", "time by span"]
    return text.table(head, [_exact_row(each) for each in found])


def _exact_row(each: ExactFacts) -> list[str]:
    rule = "-" if each.rule is None else ratio(each.rule.time.mean)
    counts = [f"{each.code.load:.3g}", str(each.tolerates), f"{each.messages:.1f}", f"{each.megabytes:.1f}", gain(each)]
    return [_link(each.entry), *counts, rule, ratio(each.span.time.mean)]


def approximate_setting() -> str:
    """What their numbers mean."""
    return f"""They end a round at a deadline and give an estimate ĝ. Bias and error are those of workers that miss the deadline
with probabilities p = {list(P)}, as in [C], whatever they compute.

- *relative error*: E|ĝ - g|² / |g|², for partial gradients that are orthogonal, and for identical ones.
- *bias*: the part of the first error that does not average out over rounds.
- *time*: here work takes time. Workers are equal, and how often they are late follows from the latency model and their own
  load. A scheme is timed by the deadline at which its relative error (orthogonal) falls to {GOAL:g}, over the mean time of
  waiting for all, which has no error."""


def approximate_table(found: Sequence[ApproximateFacts]) -> str:
    head = ["scheme", "load", "messages", "MB", "bias", "error, orthogonal", "error, identical", f"time to error {GOAL:g}"]
    return text.table(head, [_approximate_row(each) for each in found])


def _approximate_row(each: ApproximateFacts) -> list[str]:
    sizes = [f"{each.code.load:.3g}", f"{each.messages:.1f}", f"{each.megabytes:.1f}"]
    wrong = [bias(each), f"{each.orthogonal.relative:.3f}", f"{each.identical.relative:.3f}"]
    return [_link(each.entry), *sizes, *wrong, ratio(each.time_to_goal)]


def _link(entry: Entry) -> str:
    return f"[{entry.name}](#scheme-{entry.name})" + (f", {entry.limit}" if entry.limit else "")
