"""What every benchmark shares: timing, the machine, and where results go."""

import json
import os
import platform
from collections.abc import Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

from unstraggle.app.bench.timing import best_of as best_of
from unstraggle.app.bench.timing import processor

REPOSITORY = Path(__file__).parent.parent
RESULTS = REPOSITORY / "benchmarks" / "results"


def of_device(name: str, doc: str | None = None, packages: Sequence[str] = ()) -> dict[str, Any]:
    """What stands above the results of a CUDA device. doc: of the benchmark; its second paragraph tells the setting."""
    import torch

    about = {
        "benchmark": name,
        "repeat": f"python -m benchmarks.{name}",
        "date": date.today().isoformat(),
        "hardware": f"{torch.cuda.get_device_name()}, {os.cpu_count()} CPU cores",
        "versions": {package: version(package) for package in packages}
        | {"torch": torch.__version__, "python": platform.python_version()},
    }
    return about if doc is None else about | {"setting": " ".join(doc.split("\n\n")[1].split())}


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
