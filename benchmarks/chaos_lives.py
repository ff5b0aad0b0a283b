"""The lives of the chaos soak: masters with their engines, one after the other, under faults that are drawn from a seed."""

from __future__ import annotations

import collections
import faulthandler
import gc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import unstraggle as us
from unstraggle.runtime.message import Message

from . import chaos_left
from .chaos_faults import Fault, Outside, Troubled, drawn

ENGINES = ("local", "mpi", "ray")
LIVES, ROUNDS_OF_A_LIFE, CHANCE = 2, 100, 0.2
"""Masters in a process, rounds of each, and how likely a round has a fault besides those of messages."""
WORKERS, SPARE = 4, 10
HANG = 300.0
"""Seconds of a round after which it hangs: rounds with stops take three or so, and many times that on a busy machine."""
STARTS = 20
CODES = {
    "cyclic_repetition(4, s=1)": 1e-8,
    "cyclic_repetition(4, s=2)": 1e-8,
    "fractional_repetition(4, s=1)": 1e-8,
    "uncoded(4)": 1e-8,
    "uncoded_mmc(4, load=2)": 1e-8,
    "cluster(correlated_mmc(2, load=2, order=1), times=2)": 1e-8,
    "quantize(uncoded(4), bits=8, bucket=512)": 0.1,
}
"""Codes with the relative error that counts as wrong; what is quantised is rounded."""
MESSAGES = {"drop": 0.01, "duplicate": 0.1, "corrupt": 0.03, "hold": 0.1, "hold_seconds": 0.02}


class Forger:
    """An engine that brings forged copies of messages, too: of other rounds, cut off, too long, or of nobody."""

    def __init__(self, engine: Any, chance: float, rng: np.random.Generator) -> None:
        self._engine, self._chance, self._rng = engine, chance, rng

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def next(self, until: float | None) -> list[Any]:
        return [one for incoming in self._engine.next(until) for one in self._with_forged(incoming)]

    def _with_forged(self, incoming: Any) -> list[Any]:
        if not isinstance(incoming, Message) or self._rng.random() > self._chance:
            return [incoming]
        nonsense = np.frombuffer(self._rng.bytes(int(self._rng.integers(1, 400))), np.uint8)
        forged = (
            replace(incoming, round=incoming.round + int(self._rng.integers(-3, 0))),
            replace(incoming, payload=nonsense, checksum=None if len(nonsense) != len(incoming.payload) else 1),
            replace(incoming, payload=incoming.payload[:-1], checksum=None),
            replace(incoming, payload=incoming.payload, checksum=12345),
        )
        return [forged[int(self._rng.integers(len(forged)))], incoming]


def lives(engine: str, seeds: tuple[int, int], folder: Path) -> dict[str, Any]:
    """Some masters one after the other; what was seen."""
    rng, seen = np.random.default_rng([*seeds, ENGINES.index(engine)]), collections.Counter[str]()
    before = None
    for number in range(LIVES):
        place = folder / str(number)
        place.mkdir()
        life(engine, rng, place, seen)
        gc.collect()
        before = chaos_left.held() if before is None else before
    now = chaos_left.held()
    return dict(seen) | {"files_more": now["files"] - before["files"], "ports": now["ports"]}  # type: ignore[index]


def life(name: str, rng: np.random.Generator, folder: Path, seen: collections.Counter[str]) -> None:
    """One master with its engine, from the first worker to the last."""
    text = str(rng.choice(list(CODES)))
    code, dim = us.parse_code(text), int(rng.choice([24, 5000]))
    faults = drawn(rng, name, WORKERS, ROUNDS_OF_A_LIFE, CHANCE, kills=SPARE // LIVES if name == "mpi" else 10**6)
    whole = us.problems.LeastSquares.split(rng.standard_normal((40, dim)), rng.standard_normal(40), code.shares.tolist())
    engine = made(name, Troubled(whole, faults, str(folder)))
    troubled = us.engines.Chaos(Forger(engine, 0.05, rng.spawn(1)[0]), rng=rng.spawn(1)[0], **MESSAGES)
    outside = Outside(engine, rng.spawn(1)[0])
    with master_of(code, troubled, files(rng, folder, seen), seen) as master:
        for number in range(ROUNDS_OF_A_LIFE):
            faulthandler.dump_traceback_later(HANG, exit=True)
            try:
                one_round(master, outside, whole, CODES[text], faults.get(number), number, seen)
            except KeyboardInterrupt:
                seen["interrupted"] += 1
        outside.end(early=bool(rng.random() < 0.5))
    faulthandler.cancel_dump_traceback_later()


def master_of(code: us.Code, engine: Any, files: dict[str, Path], seen: collections.Counter[str]) -> us.Master:
    """A master with its workers. Ray gives its own start half a minute, and has to be asked again on a busy machine."""
    for _ in range(STARTS):
        try:
            return us.Master(code, engine, patience=10.0, **files)
        except us.UnstraggleError as error:
            if "Ray could not be started" not in str(error):
                raise
            seen["ray_not_started"] += 1
    raise us.UnstraggleError(f"Ray could not be started {STARTS} times.")


def made(name: str, problem: Any) -> Any:
    if name == "mpi":
        return us.engines.MPI(problem, heartbeat=1.0)
    return {"local": us.engines.Local, "ray": us.engines.Ray}[name](problem, heartbeat=1.0, restarts=10**6)


def files(rng: np.random.Generator, folder: Path, seen: collections.Counter[str]) -> dict[str, Path]:
    """Where the trace and the log go: nowhere, to a disk that has room, or to one that is soon full."""
    full, found = folder.parent / "full", {}
    for name in ("trace", "log"):
        where = int(rng.integers(3))
        seen["full_disks"] += where == 2 and full.is_dir()
        if where:
            found[name] = (full if where == 2 and full.is_dir() else folder) / f"{folder.name}-{name}.jsonl"
    return found


def one_round(
    master: us.Master,
    outside: Outside,
    whole: Any,
    tolerance: float,
    fault: Fault | None,
    number: int,
    seen: collections.Counter[str],
) -> None:
    """A gradient under a fault, compared with the truth."""
    params = outside.rng.standard_normal(whole.dim)
    if fault is not None:
        outside.cause(fault)
        seen[fault.kind] += 1
    seen["rounds"] += 1
    outside.inside = True
    try:
        estimate = master.gradient(params, number)
    except us.WorkerFailed as error:
        if "on purpose" not in str(error) and "frame" not in str(error):
            raise
        seen["errors_told"] += 1
        return
    finally:
        outside.inside = False
    truth = whole.gradient(params)
    wrong = not np.linalg.norm(estimate.gradient - truth) <= tolerance * np.linalg.norm(truth)
    seen.update({"wrong": int(wrong), "not_exact": int(not estimate.exact), "lost": len(estimate.lost)})
    seen.update({"damaged": estimate.damaged, "twice": estimate.duplicates, "of_other_rounds": estimate.stale})
