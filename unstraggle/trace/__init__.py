"""Recorded rounds: when every task of every worker began, ended and reached the master, in memory and on disk.

A file is JSON lines, one header and then one line per round, so that a recorder can append and a crash costs one round at most.
The format is described in docs/traces.md.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..doors import door
from ..errors import Invalid
from .formats import json_lines
from .formats.json_lines import TornTrace
from .summary import TraceSummary, shape, summary

__all__ = ["TornTrace", "Trace", "TraceSummary", "append", "from_seconds", "read", "write"]

Times = NDArray[np.float64]


@door
@dataclass(frozen=True, eq=False, init=False, repr=False)
class Trace:
    """Recorded rounds: arrays (rounds, workers, tasks) in seconds since the start of the round; infinite means never.

    start, end: of the computation of a task. arrival: when the message that a worker sent after the task reached the master;
    never if there was none. bytes: size of that message. arrival and bytes of a round are NaN where they were not recorded.
    work: (workers, tasks) units of work, where a unit is the gradient of 1/n of the data; (rounds, workers, tasks) where the
    run changed its code as it went, and then meta["switches"] says when and why. numbers: (rounds,) what the rounds were
    called. meta: whatever else is worth keeping, as JSON.
    """

    start: Times
    end: Times
    arrival: Times
    bytes: Times
    work: Times
    numbers: NDArray[np.int64]
    meta: Mapping[str, Any] = field(default_factory=dict)

    def __init__(
        self,
        start: ArrayLike,
        end: ArrayLike,
        arrival: ArrayLike | None = None,
        bytes: ArrayLike | None = None,
        work: ArrayLike = 1.0,
        numbers: ArrayLike | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        ends = np.array(end, dtype=float)
        if ends.ndim != 3 or not ends.size:
            raise Invalid(f"A Trace needs times (rounds, workers, tasks), none of them 0, but got shape {ends.shape}.")
        optional = {"arrival": arrival, "bytes": bytes}
        given = {"start": start, "end": end} | {k: np.nan if v is None else v for k, v in optional.items()}
        arrays = {name: _array(name, values, ends.shape) for name, values in given.items()}
        arrays["work"] = _array("work", work, ends.shape if np.ndim(work) == 3 else ends.shape[1:])
        arrays["numbers"] = _array("numbers", np.arange(len(ends)) if numbers is None else numbers, ends.shape[:1], np.int64)
        for name, array in arrays.items():
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        object.__setattr__(self, "meta", dict(meta or {}))
        _check(self)

    def __len__(self) -> int:
        return len(self.end)

    def __getitem__(self, rounds: slice) -> Trace:
        """Some of the rounds, such as trace[:100]."""
        arrays = (self.start[rounds], self.end[rounds], self.arrival[rounds], self.bytes[rounds])
        return Trace(*arrays, self.work_of(rounds), self.numbers[rounds], self.meta)

    def work_of(self, rounds: Any) -> Times:
        """The work of some of the rounds: that of all, unless it changes."""
        return self.work[rounds] if self.work.ndim == 3 else self.work

    @property
    def n(self) -> int:
        """Workers."""
        return int(self.end.shape[1])

    @property
    def tasks(self) -> int:
        """Tasks of the worker that has most."""
        return int(self.end.shape[2])

    @property
    def durations(self) -> Times:
        """(rounds, workers, tasks) seconds that a task took; infinite if it did not end."""
        never = np.full(self.end.shape, np.inf)
        return np.asarray(np.subtract(self.end, self.start, out=never, where=np.isfinite(self.end)))

    @property
    def finish(self) -> Times:
        """(rounds, n) when the last of a worker arrived, or ended where arrivals are not recorded; infinite: never.

        >>> from_seconds([[0.5, float("inf")]]).finish.tolist()
        [[0.5, inf]]
        """
        at = np.where(np.isnan(self.arrival), self.end, self.arrival)
        last = np.where(np.isfinite(at), at, -np.inf).max(axis=2)
        return np.where(np.isfinite(last), last, np.inf)

    @property
    def seconds(self) -> Times:
        """(rounds, workers) time of a unit of work: of all tasks that ended, time / work; infinite where none did."""
        done = np.isfinite(self.end)
        time, work = np.where(done, self.durations, 0).sum(axis=2), (done * self.work).sum(axis=2)
        return np.asarray(np.divide(time, work, out=np.full(time.shape, np.inf), where=work > 0))

    def summary(self) -> TraceSummary:
        """How uneven the rounds are, whether slowness persists, whether time is proportional to work, whether it drifts."""
        return summary(self.seconds, self.durations, self.work)

    def __repr__(self) -> str:
        return f"Trace({shape(*self.end.shape)})"


@door
def from_seconds(seconds: ArrayLike, work: ArrayLike = 1.0, meta: Mapping[str, Any] | None = None, **more: Any) -> Trace:
    """A trace of tasks without gaps: seconds (rounds, workers, tasks), or (rounds, workers) where a worker has one task.

    >>> from_seconds([[0.5, 2.0], [0.25, 0.5]]).seconds
    array([[0.5 , 2.  ],
           [0.25, 0.5 ]])
    """
    times = np.asarray(seconds, dtype=float)
    if times.ndim not in (2, 3):
        raise Invalid(f"A trace needs seconds (rounds, workers) or (rounds, workers, tasks), but got shape {times.shape}.")
    end = times.reshape(*times.shape[:2], 1 if times.ndim == 2 else times.shape[2]).cumsum(axis=2)
    return Trace(json_lines.back_to_back(end), end, work=work, meta=meta, **more)


@door
def read(path: str | os.PathLike[str], key: str | None = None, stage: int | None = None) -> Trace:
    """The trace in a file of this format, in a parquet file of ByteDance's straggler traces, or in an array of an npz file.

    key: name of the array, for npz. stage: one stage of a pipeline instead of the sum over all, for the latter two. An
    incomplete last line is left out with a `TornTrace` warning.
    """
    from .formats import npz, parquet

    path = Path(path)
    if path.suffix == ".npz":
        return from_seconds(**npz.load(path, key, stage))
    if key is not None:
        raise Invalid(f"key names an array of an npz file, but got key={key!r} for {path}. Leave it out.")
    if path.suffix == ".parquet":
        return from_seconds(**parquet.load(path, stage))
    if stage is not None:
        raise Invalid(f"stage is for npz and parquet files of pipelines, but got stage={stage!r} for {path}. Leave it out.")
    return Trace(**json_lines.load(path))


@door
def write(path: str | os.PathLike[str], trace: Trace) -> None:
    """Write a trace, in place of what the file may have held. The file changes only when the new one is complete."""
    path = Path(path)
    header = json_lines.header(trace.n, trace.work, trace.meta)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    with partial.open("w", encoding="utf-8") as file:
        file.write(header)
        file.writelines(json_lines.rounds(trace))
    partial.replace(path)


@door
def append(path: str | os.PathLike[str], rounds: Trace | Mapping[str, Any]) -> None:
    """Add rounds to a file, which is made if there is none: a trace, or one round as it stands in the file.

    An incomplete last line is cut off first, with a `TornTrace` warning; complete ones are never touched. The file keeps its
    header: meta of the new rounds is not written. Only one process may append at a time.
    """
    path = Path(path)
    there = json_lines.mend(path) if path.exists() else None
    if isinstance(rounds, Mapping):
        rounds = Trace(**json_lines.single(rounds, there, f"A round for {path}"))
    if there is None:
        write(path, rounds)
        return
    json_lines.require_same(path, there, rounds)
    with path.open("ab") as file:
        file.write("".join(json_lines.rounds(rounds, there.work)).encode())


def _array(name: str, values: ArrayLike, shape: tuple[int, ...], dtype: Any = float) -> NDArray[Any]:
    try:
        return np.array(np.broadcast_to(np.asarray(values, dtype=dtype), shape))
    except (ValueError, TypeError):
        got = np.shape(np.asarray(values, dtype=object))
        raise Invalid(f"Trace.{name} needs numbers of shape {shape}, as end has it, but got shape {got}.") from None


def _check(trace: Trace) -> None:
    """Times must be in order, and recorded for a whole round or not at all."""
    missing = np.isnan(trace.arrival).all(axis=(1, 2), keepdims=True), np.isnan(trace.bytes).all(axis=(1, 2), keepdims=True)
    rules = (
        ("start", trace.start, trace.start >= 0, "times >= 0"),
        ("end", trace.end, trace.end >= trace.start, "tasks that end after they start"),
        ("arrival", trace.arrival, missing[0] | (trace.arrival >= trace.end), "messages that arrive after their task ended"),
        ("bytes", trace.bytes, missing[1] | (trace.bytes >= 0), "sizes >= 0 (or NaN for a whole round, if not recorded)"),
    )
    for name, values, good, rule in rules:
        if not good.all():
            r, worker, task = np.argwhere(~good)[0]
            got = f"{name}={values[r, worker, task]} in round {trace.numbers[r]}, worker {worker}, task {task}"
            raise Invalid(f"A Trace needs {rule}, but got {got}. Use inf (null in a file) for never.")
    if not ((trace.work > 0) & np.isfinite(trace.work)).all():
        raise Invalid(f"A Trace needs finite work > 0 for every task, but got {trace.work.min()}.")
