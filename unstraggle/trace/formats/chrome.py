"""Chrome traces: one track per worker, to be opened in Perfetto or chrome://tracing."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from .. import Trace

MICRO = 1e6


def write(path: str | os.PathLike[str], trace: Trace) -> None:
    """Rounds one after the other; of each worker the tasks that ended, and the way of their messages to the master."""
    events = [*_names(trace), *_rounds(trace)]
    Path(path).write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}))


def _names(trace: Trace) -> Iterator[dict[str, Any]]:
    for track, name in enumerate(["master", *(f"worker {w}" for w in range(trace.n))]):
        yield {"ph": "M", "name": "thread_name", "pid": 0, "tid": track, "args": {"name": name}}


def _rounds(trace: Trace) -> Iterator[dict[str, Any]]:
    origin = 0.0
    for r, number in enumerate(trace.numbers.tolist()):
        ends = np.where(np.isnan(trace.arrival[r]), trace.end[r], trace.arrival[r])
        length = float(ends[np.isfinite(ends)].max(initial=0.0))
        yield _span(f"round {number}", 0, origin, length)
        for worker, task in np.argwhere(np.isfinite(trace.end[r])).tolist():
            start, end = trace.start[r, worker, task], trace.end[r, worker, task]
            yield _span(f"task {task}", worker + 1, origin + start, end - start, round=number)
            if np.isfinite(ends[worker, task]) and trace.bytes[r, worker, task] > 0:
                way = ends[worker, task] - end
                yield _span("message", worker + 1, origin + end, way, round=number, bytes=trace.bytes[r, worker, task])
        origin += length


def _span(name: str, track: int, start: float, length: float, **about: Any) -> dict[str, Any]:
    return {"ph": "X", "name": name, "pid": 0, "tid": track, "ts": MICRO * start, "dur": MICRO * length, "args": about}
