"""Log: every event and instruction of every round in a file, and the same decisions again from it."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..checks import parsed_json, require_writable
from ..doors import door
from ..errors import Invalid, UnstraggleError
from ..scheme.code import Code
from ..scheme.stop import Planned, Stop, code_and_stop
from . import events as event_kinds
from . import instructions as instruction_kinds
from .events import Arrived, Event
from .instructions import Instruction
from .message import Message
from .round import Round
from .terms import Terms

log = logging.getLogger("unstraggle")

EVENTS = {kind.__name__: kind for kind in event_kinds.Event.__args__}
INSTRUCTIONS = {kind.__name__: kind for kind in instruction_kinds.Instruction.__args__}


class Diverged(UnstraggleError):
    """A recorded round, decided again, decides otherwise: the code, the stop rule or this library is another one."""


class Log:
    """Writes JSON lines: one where a round begins, then one for every time it was fed. Without a path it does nothing."""

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self._file = None if path is None else require_writable("log", path).open("w", encoding="utf-8")

    def begin(self, round: Round) -> None:
        if self._file is not None:
            terms = asdict(round.terms) | {"suspects": sorted(round.terms.suspects)}
            self._write({"round": round.number, "code": round.code.name, "stop": str(round.stop), "terms": terms}, flush=True)

    def add(self, events: Iterable[Event | Message], instructions: Iterable[Instruction]) -> None:
        if self._file is not None:
            self._write({"events": list(map(_named, events)), "instructions": list(map(_named, instructions))})

    def close(self) -> None:
        if self._file is not None:
            self._try(self._file.flush)
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, line: dict[str, Any], *, flush: bool = False) -> None:
        """flush: what stands before it, so that what a killed run leaves is whole up to its last round."""
        assert self._file is not None
        if flush:
            self._try(self._file.flush)
        if self._file is not None:
            self._try(self._file.write, json.dumps(line) + "\n")

    def _try(self, what: Callable[..., object], *arguments: str) -> None:
        """A disk that is full costs the log, and not the run."""
        try:
            what(*arguments)
        except OSError as error:
            assert self._file is not None
            log.warning("The log %s cannot be written any more, and the run goes on without it: %s", self._file.name, error)
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None


@door
def replay_log(path: str | os.PathLike[str], code: Code | Planned, stop: Stop | None = None) -> list[Round]:
    """Feed the recorded events to new rounds; raises `Diverged` at the first decision that is not the recorded one."""
    code, stop = code_and_stop(code, stop)
    return [_replayed(code, stop, head, fed) for head, fed in _rounds(Path(path))]


def _replayed(code: Code, stop: Stop, head: dict[str, Any], fed: list[dict[str, Any]]) -> Round:
    if head["code"] != code.name:
        raise Invalid(f"The log is of {head['code']}, but got {code.name}. Give the code that was recorded.")
    round = Round(code, stop, head["round"], _terms(head["terms"]))
    for number, line in enumerate(fed):
        events = [_made(EVENTS, one) for one in line["events"]]
        decided = round.feed(*events) if events else round.begin()
        recorded = tuple(_made(INSTRUCTIONS, one) for one in line["instructions"])
        if decided != recorded:
            raise Diverged(f"Round {round.number}, step {number}: recorded {recorded}, decided again {decided}.")
    return round


def _rounds(path: Path) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """The rounds of a log: the line where each begins, and those that follow."""
    head: dict[str, Any] | None = None
    fed: list[dict[str, Any]] = []
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        line = _line(text, f"{path}, line {number}")
        if "round" in line:
            if head is not None:
                yield head, fed
            head, fed = line, []
        else:
            fed.append(line)
    if head is not None:
        yield head, fed


def _line(text: str, where: str) -> dict[str, Any]:
    try:
        found = parsed_json(text)
    except ValueError as error:
        raise Invalid(f"{where} is not JSON: {error}. Give a file that Master(log=...) wrote.") from None
    if not isinstance(found, dict) or not found.keys() & {"round", "events"}:
        raise Invalid(f"{where} is not of a log: it has neither a round nor events. Give a file that Master(log=...) wrote.")
    return found


def _terms(found: dict[str, Any]) -> Terms:
    lost = tuple((worker, returns) for worker, returns in found["lost"])
    busy = tuple(found["busy"])
    return Terms(**{**found, "lost": lost, "suspects": frozenset(found["suspects"]), "busy": busy})


def _named(one: Any) -> list[Any]:
    """An event or instruction, by its name; of a message, that it arrived."""
    if isinstance(one, Message):
        one = Arrived(one.index, one.time, one.round, one.ticket)
    return [type(one).__name__, asdict(one)]


def _made(kinds: dict[str, Any], one: list[Any]) -> Any:
    fields = {name: tuple(value) if isinstance(value, list) else value for name, value in one[1].items()}
    return kinds[one[0]](**fields)
