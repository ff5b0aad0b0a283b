"""Timing: best of several turns, and the name of the processor."""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Timed = Mapping[str, Callable[[], Any]]


def best_times(runs: Timed, repeats: int) -> dict[str, float]:
    """Shortest time of each, taken in turns; processor time where that is below wall-clock time, since cores may be shared.

    A first turn, which may load and compile, is not counted.
    """
    best = dict.fromkeys(runs, math.inf)
    for turn in range(repeats + 1):
        for name, run in runs.items():
            wall, processor = time.perf_counter(), time.thread_time()
            run()
            taken = min(time.perf_counter() - wall, time.thread_time() - processor)
            best[name] = min(best[name], taken if turn else math.inf)
    return best


def best_of(run: Callable[[], Any], repeats: int = 3) -> float:
    """Shortest of several wall-clock times, after one run that is not counted."""
    run()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def processor() -> str:
    """The processor's name and its vector instructions, where the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    flags = next((line for line in lines if line.startswith("flags")), "")
    return (names or [platform.machine()])[0] + next((f" ({isa})" for isa in ("avx512f", "avx2") if isa in flags), "")
