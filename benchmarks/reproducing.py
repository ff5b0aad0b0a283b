"""How long every figure of `unstraggle reproduce` takes with its usual settings: wall-clock and processor time. load: how many
processes ran in the minute before; beside others, the wall-clock is too long.

REPRODUCE=cagc-fig2,cagc-fig3: these only; what is known of the others is kept.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from datetime import date

from unstraggle.papers import FIGURES

from .common import RESULTS, save


def timed(name: str) -> dict[str, float | str]:
    """Seconds of one figure, with those of the processes that it starts."""
    load = os.getloadavg()[0]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        line = [sys.executable, "-m", "unstraggle", "reproduce", name, "-o", folder]
        subprocess.run(line, check=True, stdout=subprocess.DEVNULL)
    took, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{name}: {took:.1f} s, {processor:.1f} s of processor time", flush=True)
    about: dict[str, float | str] = {"seconds": round(took, 1), "processor_seconds": round(processor, 1)}
    return about | {"load": round(load, 1), "date": date.today().isoformat()}


def main() -> None:
    chosen = os.environ.get("REPRODUCE", ",".join(FIGURES)).split(",")
    file = RESULTS / "reproducing.json"
    known = json.loads(file.read_text())["figures"] if file.exists() else {}
    for name in chosen:
        known[name] = timed(name)
        save("reproducing", {"figures": {name: known[name] for name in FIGURES if name in known}})
