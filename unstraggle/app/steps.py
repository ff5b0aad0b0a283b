"""steps.jsonl: a line for each step, the record of a `Step` with whatever its writer knows besides. Written as a run goes."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from ..checks import parsed_json
from ..errors import Invalid

log = logging.getLogger("unstraggle")

TIMES = ("wall", "wait")


class Keep(Protocol):
    """Takes a record."""

    def __call__(self, record: Mapping[str, Any], /) -> None: ...


@contextmanager
def writing(path: Path | None) -> Iterator[Keep]:
    """A new file, a line at a time, so that an interrupted run keeps its steps; nothing where there is no path."""
    if path is None:
        yield lambda record: None
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb", buffering=0) as file:
        yield _Lines(path, file)


class _Lines:
    """Writes records while there is room: a full disk ends the file, and not the run."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self._path, self._file, self._full = path, file, False

    def __call__(self, record: Mapping[str, Any], /) -> None:
        if self._full:
            return
        line = json.dumps(record).encode() + b"\n"
        try:
            self._full = self._file.write(line) < len(line)
            why = "the disk is full"
        except OSError as error:
            self._full, why = True, str(error)
        if self._full:
            log.warning("The steps %s cannot be written any more, and the run goes on without them: %s", self._path, why)


def read_steps(path: Path) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """The records of a file, and notes on it; a last line that is torn is left out, as an interrupted run leaves it."""
    lines = path.read_text().splitlines() if path.exists() else []
    found: list[dict[str, Any]] = []
    notes: tuple[str, ...] = ()
    for number, line in enumerate(lines, 1):
        try:
            record = parsed_json(line)
        except ValueError:
            if number < len(lines):
                raise Invalid(f"{path}, line {number} is not JSON, though lines follow. Remove that line.") from None
            notes = (f"{path.name}: its last line is incomplete and was left out",)
            break
        found.append(_checked(record, f"{path}, line {number}", found))
    return [{name: value for name, value in record.items() if name != "so far"} for record in found], notes


def _checked(record: Any, where: str, before: list[dict[str, Any]]) -> dict[str, Any]:
    """A step with its wait, and its wall where that is known."""
    if not isinstance(record, dict):
        raise Invalid(f"{where}: a step is a JSON object, but got {str(record)[:40]!r}.")
    old = "time" in record or "waited" in record
    found: dict[str, Any] = _renamed(record, before[-1] if before else {}) if old else record
    for name in TIMES if "wall" in found else TIMES[1:]:
        seconds = found.get(name)
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < np.inf:
            raise Invalid(f'{where}: a step needs "{name}", seconds >= 0, but got {seconds!r}.')
    return found


def _renamed(old: dict[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """A record as it was written before there was one vocabulary: "time" was the wait, and "wall" the seconds so far.

    Only trainings, which have "waited", took the wall-clock.
    """
    names = {"dead": "lost", "dropped": "stale", "wall": "so far"}
    if not isinstance(old.get("late"), list):
        names["late"] = "stale"
    left_out = ("time", "waited", "split")
    record = {names.get(name, name): value for name, value in old.items() if name not in left_out}
    record["wait"] = old.get("waited", old.get("time"))
    if isinstance(old.get("wall"), int | float) and "waited" in old:
        same_run = before.get("repeat") == old.get("repeat")
        record["wall"] = old["wall"] - (before.get("so far", 0.0) if same_run else 0.0)
    return record
