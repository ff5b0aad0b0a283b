"""Chaos: rounds in which workers are killed, stopped, slow, hold the interpreter lock, fail and die; messages vanish, come
twice, late, damaged and forged; disks are full, forks fail and Ctrl+C comes, in random order from a seed. Counted are hangs,
wrong gradients, and what is left.

Each few lives of a master run in a process of their own (`chaos_lives`). `python -m benchmarks soak` is another thing: 100,000
quiet rounds, and what grows over them.
"""

import collections
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

from unstraggle.engines import mpi_launch

from . import chaos_left
from .chaos_faults import LEFT
from .chaos_lives import ENGINES, HANG, LIVES, ROUNDS_OF_A_LIFE, SPARE, WORKERS
from .common import RESULTS, save

ROUNDS = int(os.environ.get("CHAOS_ROUNDS", "2000"))
SEED = int(os.environ.get("CHAOS_SEED", "0"))
EXITS = ("--host", f"localhost:{WORKERS + 1 + SPARE}", "--mca", "btl", "self,sm", "--runtime-options", "error-nonzero-status=0")
"""Open MPI 5.0 may end the job when a worker leaves by itself with an exit code: see docs/mpi.md."""
MOST = 4
"""Times as many processes as the rounds need, where some do not get to their end."""


def run(engine: str, number: int) -> dict[str, Any]:
    """Some lives in a process of their own, and what they leave behind."""
    word, shared = f"{os.getpid()}-{engine}-{number}", chaos_left.shared_memory()
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder, small_disk(Path(folder) / "full"):
        program = ["-m", "benchmarks.chaos_start", engine, str(SEED), str(number), folder]
        command = [sys.executable, *program]
        if engine == "mpi":
            command = mpi_launch.command(WORKERS, *program, spare=SPARE, options=EXITS)
        with open(Path(folder) / "output", "w+") as output:
            found = watched(command, word, output)
            result = Path(folder) / "result.json"
            found |= json.loads(result.read_text()) if result.exists() else {}
            if "rounds" not in found or found["exit_code"] not in (0, LEFT):
                found["failed"] = 1
                output.seek(0)
                print(output.read()[-6000:], flush=True)
    left = chaos_left.wait_for_end(word)
    chaos_left.end(left)
    del found["exit_code"]
    return found | {"processes_left": len(left), "shared_memory_left": len(chaos_left.shared_memory() - shared)}


@contextlib.contextmanager
def small_disk(place: Path) -> Iterator[None]:
    """A disk of 32 KiB, for those who may mount one; others do without."""
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=32k", "chaos", str(place)]
    if subprocess.run(mount, capture_output=True).returncode:
        place.rmdir()
        yield
        return
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def watched(command: list[str], word: str, output: Any) -> dict[str, Any]:
    """Run a command to its end, or until all its rounds could have hung."""
    variables = os.environ | {chaos_left.MARK: word, "PYTHONFAULTHANDLER": "1"}
    with subprocess.Popen(
        command,
        env=variables,
        stdout=output,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        cwd=Path(__file__).parent.parent,
    ) as process:
        try:
            code = process.wait(HANG * 10)
        except subprocess.TimeoutExpired:
            chaos_left.end(chaos_left.processes(word))
            return {"hangs": 1, "exit_code": process.wait()}
    output.seek(0)
    return {"hangs": int("Timeout (" in output.read()), "exit_code": code}


def soak(engine: str, rounds: int = ROUNDS) -> dict[str, Any]:
    """So many rounds on an engine; the sums of what was seen."""
    total, began = collections.Counter[str](), time.monotonic()
    while total["rounds"] < rounds and total["processes"] < MOST * rounds // (LIVES * ROUNDS_OF_A_LIFE):
        found = run(engine, total["processes"])
        total.update({"processes": 1, "failed": 0} | found)
        print(f"{engine}: {dict(total)}", flush=True)
    about = {"date": date.today().isoformat(), "rounds": total.pop("rounds"), "seconds": round(time.monotonic() - began)}
    return about | dict(sorted(total.items()))


def main() -> None:
    """All engines at once, for they mostly wait. CHAOS_ENGINES=ray,mpi: these only, and what is known of the others is kept."""
    chosen, alone = os.environ.get("CHAOS_ENGINES", ",".join(ENGINES)).split(","), chaos_left.with_shared_memory_of_its_own()
    with ThreadPoolExecutor() as pool:
        found = dict(zip(chosen, pool.map(soak, chosen), strict=True))
    file = RESULTS / "chaos.json"
    known = json.loads(file.read_text())["engines"] if file.exists() else {}
    save("chaos", {"seed": SEED, "shared_memory_of_its_own": alone, "engines": known | found})
