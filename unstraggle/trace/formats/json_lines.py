"""The project's own trace format: JSON lines, a header and then one line per round. Described in docs/traces.md."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ...errors import Invalid

if TYPE_CHECKING:
    from .. import Trace

FORMAT, VERSION = "unstraggle-trace", 1
RESERVED = ("format", "version", "workers", "work")
SWITCHES = "switches"
"""In meta: changes of code during a run. In a file they stand with the rounds before which they were made."""
COLUMNS = ("start", "end", "arrival", "bytes")
DIGITS = 9
"""Significant digits of the times in a file."""

Times = NDArray[np.float64]


class TornTrace(UserWarning):
    """The last line of a trace is incomplete, because whoever wrote it was interrupted."""


@dataclass(frozen=True)
class Header:
    """The first line: workers, the work of their tasks (a number, or nested lists), and whatever else it says."""

    workers: int
    work: Any
    meta: dict[str, Any]


def header(workers: int, work: Times, meta: Mapping[str, Any]) -> str:
    """The first line of a file."""
    if taken := [name for name in RESERVED if name in meta]:
        raise Invalid(f"{', '.join(RESERVED)} have a meaning in a trace, but meta has {taken[0]!r}. Use another name.")
    first = work[0] if work.ndim == 3 else work
    known = {"format": FORMAT, "version": VERSION, "workers": workers, "work": _compact(first)}
    try:
        mine = {name: value for name, value in meta.items() if name != SWITCHES}
        return json.dumps(known | mine, allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        raise Invalid(f"The meta of a trace must be plain JSON values, but {error}. Convert it before writing.") from None


def rounds(trace: Trace, said: Any = None) -> Iterator[str]:
    """One line per round. Starts are left out where tasks follow one another without a gap, and so is what was not recorded.

    said: the work that the header says, by default that of the first round; a round of other work says its own.
    """
    works = np.broadcast_to(trace.work, trace.end.shape)
    said = _compact(works[0]) if said is None else said
    for r, number in enumerate(trace.numbers.tolist()):
        start, end = _rounded(trace.start[r]), _rounded(trace.end[r])
        line: dict[str, Any] = {"round": number}
        if not np.array_equal(start, back_to_back(end)):
            line["start"] = _plain(start)
        line["end"] = _plain(end)
        if not np.isnan(trace.arrival[r]).any():
            line["arrival"] = _plain(_rounded(trace.arrival[r]))
        if not np.isnan(trace.bytes[r]).any():
            line["bytes"] = _compact(trace.bytes[r])
        if (own := _compact(works[r])) != said:
            line["work"] = own
        if mine := [switch for switch in trace.meta.get(SWITCHES, ()) if switch.get("round") == number]:
            line[SWITCHES] = mine
        yield json.dumps(line, separators=(",", ":"), allow_nan=False) + "\n"


def back_to_back(end: Times) -> Times:
    """Starts of tasks that follow one another: at the end of the one before, the first at 0."""
    return np.concatenate([np.zeros_like(end[..., :1]), end[..., :-1]], axis=-1)


def load(path: Path) -> dict[str, Any]:
    """What a file says, as arguments of a Trace. An incomplete last line is left out, with a warning."""
    found: list[dict[str, Any]] = []
    torn = 0
    with path.open("rb") as file:
        first = parse_header(file.readline(), path)
        for number, line in enumerate(file, 2):
            if not line.strip():
                continue
            if torn:
                raise Invalid(f"{path}, line {torn} is not JSON, though lines follow. Remove that line to read the others.")
            data = _parse(line, f"{path}, line {number}")
            torn = number if data is None else 0
            if data is not None:
                found.append(columns(data, first.workers, f"{path}, line {number}"))
    if torn:
        warnings.warn(
            f"{path}: the last line ({torn}) is incomplete and was left out; {len(found)} rounds before it are read.",
            TornTrace,
            3,
        )
    if not found:
        raise Invalid(f"{path} has a header but no rounds. Append rounds to it first.")
    return assemble(first, found)


def mend(path: Path) -> Header | None:
    """The header of a file whose last line is made complete: cut off where it is torn. None where nothing is left."""
    with path.open("rb+") as file:
        at = _last_line(file)
        file.seek(at)
        tail = file.read()
        if tail.strip() and _parse(tail, f"{path}, last line") is None:
            warnings.warn(f"{path}: its last line is incomplete and was cut off; the rounds before it are kept.", TornTrace, 3)
            file.truncate(at)
        elif tail:
            file.write(b"\n")
        file.seek(0)
        first = file.readline()
    return parse_header(first, path) if first else None


def _last_line(file: Any) -> int:
    """Where the last line begins, which has no line break yet: the size of the file if there is none."""
    at = file.seek(0, os.SEEK_END)
    while at:
        step = min(at, 1 << 16)
        file.seek(at - step)
        if (found := file.read(step).rfind(b"\n")) >= 0:
            return int(at - step + found + 1)
        at -= step
    return 0


def parse_header(line: bytes, path: Path) -> Header:
    """The first line, refused where it is not that of a trace."""
    data = _parse(line, f"{path}, line 1")
    if not line.strip():
        raise Invalid(f"{path} is empty. A trace begins with a header; make one with unstraggle.trace.write or append.")
    if data is None or data.get("format") != FORMAT:
        raise Invalid(f'{path} is not a trace: its first line must be JSON with "format": "{FORMAT}", but is {line[:60]!r}.')
    if data.get("version") != VERSION:
        raise Invalid(
            f"{path} has version {data.get('version')!r} of the trace format, but version {VERSION} is read. Update unstraggle."
        )
    workers = data.get("workers")
    if not isinstance(workers, int) or isinstance(workers, bool) or workers < 1:
        raise Invalid(f'The header of a trace needs "workers", a whole number >= 1, but {path} has {workers!r}.')
    known = (*RESERVED, SWITCHES)
    return Header(workers, data.get("work", 1.0), {key: value for key, value in data.items() if key not in known})


def _parse(line: bytes, where: str) -> dict[str, Any] | None:
    """A JSON object, or None where the line is none."""
    try:
        data = _DECODER.decode(line.decode())
    except _NotFinite as error:
        raise Invalid(f"{where}: a trace holds numbers and null (for never), but got {error}. Write null instead.") from None
    except (ValueError, RecursionError):  # the latter: nested deeper than Python can follow
        return None
    return data if isinstance(data, dict) else None


class _NotFinite(Exception):
    """NaN or Infinity, which Python reads though JSON has neither."""


def _refuse(name: str) -> NoReturn:
    raise _NotFinite(name)


_DECODER = json.JSONDecoder(parse_constant=_refuse)


def columns(data: Mapping[str, Any], workers: int, where: str) -> dict[str, Any]:
    """One round of a file: (workers, tasks) arrays and its number."""
    if not isinstance(data.get("end"), list):
        raise Invalid(f'{where}: a round needs "end", a list of times for each worker, but got {data.get("end")!r}.')
    if len(data["end"]) != workers:
        raise Invalid(
            f"{where}: this trace has {workers} workers, but got a round of {len(data['end'])}. Use a new file for them."
        )
    end = _table("end", data["end"], None, where)
    start = _table("start", data["start"], end.shape, where) if "start" in data else back_to_back(end)
    more = {name: _table(name, data[name], end.shape, where) for name in ("arrival", "bytes") if name in data}
    if "work" in data:
        more["work"] = np.where(np.isfinite(given := _table("work", data["work"], end.shape, where)), given, 1.0)
    switches = data.get(SWITCHES, [])
    if not isinstance(switches, list) or not all(isinstance(one, dict) for one in switches):
        raise Invalid(f'{where}: "{SWITCHES}" is a list of objects, one for each change of code, but got {str(switches)[:60]}.')
    return {"start": start, "end": end, **more, "round": data.get("round"), SWITCHES: switches}


def _table(name: str, value: Any, shape: tuple[int, ...] | None, where: str) -> Times:
    """(workers, tasks) numbers, null for never; a single number stands for all, and short lists are filled up with never."""
    try:
        rows = value
        if isinstance(value, list):
            width = max([len(row) for row in value] + [shape[1] if shape else 1])
            if any(len(row) < width for row in value):
                rows = [row + [None] * (width - len(row)) for row in value]
        table = np.array(rows, dtype=float)  # which makes null NaN
        table = np.broadcast_to(table, shape) if shape else table
    except (ValueError, TypeError):
        raise Invalid(
            f'{where}: "{name}" needs a list of numbers for each worker, as "end" has, but got {str(value)[:60]}.'
        ) from None
    return np.where(np.isnan(table), np.inf, table)


def assemble(first: Header, found: list[dict[str, Any]]) -> dict[str, Any]:
    """Rounds, of which one may have more tasks than another, as arguments of a Trace."""
    tasks = max(one["end"].shape[1] for one in found)
    missing = np.full((first.workers, tasks), np.nan)
    stacked = {name: np.stack([_wide(one[name], tasks) if name in one else missing for one in found]) for name in COLUMNS}
    numbers = [place if one["round"] is None else one["round"] for place, one in enumerate(found)]
    switches = [switch for one in found for switch in one[SWITCHES]]
    meta = first.meta | ({SWITCHES: switches} if switches else {})
    return {**stacked, "work": _works(first.work, found, tasks), "numbers": numbers, "meta": meta}


def _works(first: Any, found: list[dict[str, Any]], tasks: int) -> Any:
    """What the header says, or (rounds, workers, tasks) where rounds say their own; what never happened has one unit."""
    if not any("work" in one for one in found):
        return first
    given = [one["work"] if "work" in one else np.broadcast_to(first, one["end"].shape) for one in found]
    return np.stack([np.pad(work, ((0, 0), (0, tasks - work.shape[1])), constant_values=1.0) for work in given])


def single(data: Mapping[str, Any], there: Header | None, where: str) -> dict[str, Any]:
    """One round by itself, as arguments of a Trace; `there` is the header of the file that it goes to."""
    ends = data.get("end")
    first = there or Header(len(ends) if isinstance(ends, list) else 0, 1.0, {})
    return assemble(first, [columns(data, first.workers, where)])


def _wide(table: Times, tasks: int) -> Times:
    return table if table.shape[1] == tasks else np.pad(table, ((0, 0), (0, tasks - table.shape[1])), constant_values=np.inf)


def require_same(path: Path, there: Header, trace: Trace) -> None:
    """Rounds that go into a file must have its workers and its work, unless they are of a run that changes its code."""
    work = _compact(trace.work)
    if trace.n != there.workers or (work != there.work and SWITCHES not in trace.meta):
        raise Invalid(
            f"The rounds of a trace share workers and work, but {path} has workers={there.workers}, work={there.work} and "
            f"the new rounds have workers={trace.n}, work={work}. Use a new file for them."
        )


def _rounded(times: Times) -> Times:
    """Rounded to `DIGITS` significant digits."""
    with np.errstate(divide="ignore", invalid="ignore"):
        power = 10.0 ** np.clip(DIGITS - np.ceil(np.log10(times)), -200, 200)
        return np.where(np.isfinite(times) & (times > 0), np.round(times * power) / power, times)


def _plain(values: Times) -> Any:
    """Nested lists, with None for what is infinite."""
    if not np.isinf(values).any():
        return values.tolist()
    plain = values.astype(object)
    plain[np.isinf(values)] = None
    return plain.tolist()


def _compact(values: Times) -> Any:
    """A single number where all are equal, else nested lists."""
    return _plain(values.reshape(-1)[:1])[0] if (values == values.flat[0]).all() else _plain(values)
