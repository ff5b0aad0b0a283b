"""The way of words and messages, as far as a trace tells it: what a round trip takes, and what a message takes of a link."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..latency import Network
from ..trace import Trace

Times = NDArray[np.float64]

WORD = 1 << 16
"""Bytes up to which a message goes its way as fast as a word. What larger ones take longer is put down to their link."""

FEWEST = 20
"""Messages that must have waited for the one before them to tell what one takes of the master's link."""

LOW = 0.1
"""Quantile of the gaps between messages that were under way together: on one link no gap is shorter than a message, on links of
their own many are."""


@dataclass(frozen=True)
class Links:
    """What `latency.Network` is given: coordinates of a gradient, bytes per second of links, and seconds of a round trip."""

    dim: int = 1
    bandwidth: float = np.inf
    round_trip: float = 0.0
    master: float = np.inf

    def around(self, model: Any) -> Any:
        """A latency model behind these links; the model itself where they take no time."""
        if np.isinf(self.bandwidth) and np.isinf(self.master) and not self.round_trip:
            return model
        return Network(model, self.dim, self.bandwidth, self.round_trip, self.master)


def told(trace: Trace) -> Links:
    """Links as a trace shows them that says when messages arrived; without that, or without their sizes, they take no time.

    A message that found the master's link free took a round trip, less what it computed, and its own time there. One that was
    ready before the one ahead of it arrived came as much later as it takes of the link. A worker's clock cancels out.

    >>> end = np.array([[[1.0], [2.0], [2.1]]] * 30)
    >>> arrival = np.array([[[1.5], [2.5], [2.9]]] * 30)
    >>> links = told(Trace(np.zeros(end.shape), end, arrival, bytes=4000.0))
    >>> links.dim, round(links.master), round(links.round_trip, 3)
    (1000, 10000, 0.1)
    """
    sizes = trace.bytes[np.isfinite(trace.bytes) & (trace.bytes > 0)]
    if np.isnan(trace.arrival).any() or not len(sizes):
        return Links()
    size = float(np.median(sizes))
    alone, behind = _ways(trace)
    queued = float(np.quantile(behind, LOW)) if len(behind) >= FEWEST else 0.0
    rest = max(float(np.median(alone)) - queued, 0.0) if len(alone) else 0.0
    master = size / queued if queued > 0 else np.inf
    dim = max(1, round(size / 4))
    if size <= WORD:
        return Links(dim, round_trip=rest, master=master)
    return Links(dim, bandwidth=size / rest if rest > 0 else np.inf, master=master)


def _ways(trace: Trace) -> tuple[Times, Times]:
    """The shortest round trip of a round, and how much later messages came than the one before that they had to wait for."""
    spare = _spare(trace)
    alone, behind = [np.empty(0)], [np.empty(0)]
    for end, arrival, size, gone in zip(trace.end, trace.arrival, trace.bytes, spare, strict=True):
        sent = np.isfinite(arrival) & np.isfinite(end) & (size > 0)
        order = np.argsort(arrival[sent], kind="stable")
        ended, came, lost = end[sent][order], arrival[sent][order], gone[sent][order]
        waited = ended[1:] < came[:-1]
        behind.append(np.diff(came)[waited])
        if len(came):
            alone.append(lost[np.concatenate([[True], ~waited])].min(keepdims=True))
    return np.concatenate(alone), np.concatenate(behind)


def _spare(trace: Trace) -> Times:
    """(rounds, workers, tasks) seconds until messages arrived, less what their workers took from their first task on."""
    began = np.where(np.isfinite(trace.start), trace.start, np.inf).min(axis=2, keepdims=True)
    at, worked = np.nan_to_num(trace.arrival, posinf=np.inf), np.nan_to_num(trace.end, posinf=np.inf) - began
    return np.asarray(np.where(np.isfinite(at) & np.isfinite(worked), at - worked, np.inf))
