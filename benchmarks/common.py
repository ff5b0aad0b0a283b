"""What every benchmark shares: timing, the machine, and where results go."""

import json
import os
import platform
import time
from collections.abc import Callable
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def best_of(run: Callable[[], Any], repeats: int = 3) -> float:
    """Shortest of several wall-clock times, after one run that is not counted."""
    run()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def save(name: str, result: dict[str, Any]) -> None:
    """Write a result with date and hardware beside it, and say so."""
    about = {
        "benchmark": name,
        "repeat": f"python -m benchmarks {name}",
        "date": date.today().isoformat(),
        "hardware": f"{processor()}, {len(os.sched_getaffinity(0))} cores",
        "versions": {package: version(package) for package in ("numpy", "scipy", "numba")}
        | {"python": platform.python_version()},
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(about | result, indent=1) + "\n")
    print(f"benchmarks/results/{name}.json written")


def processor() -> str:
    """The processor's name and its vector instructions, where the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    flags = next((line for line in lines if line.startswith("flags")), "")
    return names[0] + next((f" ({isa})" for isa in ("avx512f", "avx2") if isa in flags), "")
