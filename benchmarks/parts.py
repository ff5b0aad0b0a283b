"""Parts of messages on the wire: steps of workers on other hosts, with and without what goes ahead during the backward pass.

Hosts are namespaces of this machine, of processes, too, so that no memory is shared, with cables of so many megabits a second
each way; that needs root on Linux. The same processes take turns: a step in parts, a step whole, each from the order until
both messages are at the master.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from unstraggle import codes
from unstraggle.engines import MPI, Message, Order
from unstraggle.engines.hub import Hub
from unstraggle.engines.mpi import command
from unstraggle.engines.ray_worker import Post, Worker
from unstraggle.runtime.serve import share_of
from unstraggle.statistics import ratio_and_half

from .common import REPOSITORY, save
from .namespaces import HOSTS, agent, hosts, job

CODE = codes.uncoded(2)
PAIRS, WARM = 20, 3
WIDTH, DEPTH, BATCH = 368, 8, 3072
NETWORK = "10.178.0"
ALONE = "--pid --fork --mount-proc"


def problem() -> Any:
    """A perceptron whose backward pass takes about as long as its message at 200 Mbit/s."""
    import torch
    from torch import nn

    import unstraggle as us

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(*[layer for _ in range(DEPTH) for layer in (nn.Linear(WIDTH, WIDTH), nn.Tanh())])
    data, how = (torch.randn(2 * BATCH, WIDTH), torch.randn(2 * BATCH, WIDTH)), us.latency.ShiftedExponential(rate=1.0)
    return us.torch.Coded(model, nn.MSELoss(), data, scheme=CODE, engine="virtual", latency=how, check=False).problem


# On the hosts


def steps(dim: int, start: Callable[[Order], None], news: Callable[[], list[Any]], parts: Callable[[], int]) -> dict[str, Any]:
    """Seconds of steps in parts and whole, in turns, and how many parts came; their numbers must be the same."""
    seconds: dict[str, list[float]] = {"parts": [], "whole": []}
    params, payloads = np.zeros(dim, "f4"), {}  # type: Any, dict[str, list[bytes]]
    for number in range(2 * (WARM + PAIRS)):
        name = ("parts", "whole")[(number + number // 2) % 2]  # each goes first in turn
        began, came = time.monotonic(), []  # type: float, list[Message]
        start(Order(number, 0, params, delays=None if name == "parts" else np.zeros(2)))
        while len(came) < 2:
            came += [one for one in news() if isinstance(one, Message) and one.round == number]
        seconds[name].append(time.monotonic() - began)
        payloads[name] = [one.payload.tobytes() for one in sorted(came, key=lambda one: one.index)]
    assert payloads["parts"] == payloads["whole"] and all(map(any, payloads["parts"])), "other numbers"
    return {name: some[WARM:] for name, some in seconds.items()} | {"came": parts()}


def counted(parts: Any) -> Callable[[], int]:
    """How many parts come to a master from now on."""
    seen, room = [0], parts.room

    def counting(*given: Any) -> Any:
        seen[0] += 1
        return room(*given)

    parts.room = counting
    return lambda: seen[0]


def by_mpi() -> None:
    engine = MPI(problem())
    engine.open(CODE)
    print(json.dumps(steps(engine.problem.dim, engine.start, lambda: engine.next(None), counted(engine._parts))), flush=True)
    engine.close()


def hub_master(address: str) -> None:
    """What Ray's engine does, without Ray."""
    there = problem()
    hub = Hub(CODE, there.dim, np.dtype("f4"), lambda worker: None, heartbeat=60.0, start_within=60.0, restarts=0)
    host, port = hub.listen(address, 0)
    print(host, port, hub.token.hex(), flush=True)
    while not hub.roster.all_ready:
        hub.collect(0.1)

    def start(order: Order) -> None:
        hub.begin(order.round)
        hub.order(order, range(2))

    def news() -> list[Any]:
        hub.collect(1.0)
        events, hub.events = hub.events, []
        return events

    print(json.dumps(steps(there.dim, start, news, counted(hub._parts))), flush=True)


def hub_worker(number: str, host: str, port: str, token: str) -> None:
    there = problem()
    share = share_of(there, CODE, int(number))
    here = Worker(int(number), Post((host, int(port)), bytes.fromhex(token), 1, there.dim, "<f4", True))
    here.prepare(share.program, share.problem, share.slices, share.dtype)
    while threading.active_count() > 1:  # until the master is gone, which ends the process
        time.sleep(1.0)


# Hosts


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}


def inside(name: str, number: int, *arguments: str) -> subprocess.Popen[str]:
    alone = ["unshare", *ALONE.split(), "--kill-child"]
    line = ["ip", "netns", "exec", f"{name}{number}", *alone, sys.executable, "-m", "benchmarks.parts", *arguments]
    options: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": REPOSITORY}
    return subprocess.Popen(line, env=environment(), **options)


def run_hub(name: str) -> dict[str, Any]:
    with inside(name, 1, "hub_master", f"{NETWORK}.1") as master:
        assert master.stdout is not None
        at = master.stdout.readline().split()
        workers = [inside(name, 2 + number, "hub_worker", str(number), *at) for number in range(2)]
        said, errors = master.communicate(timeout=600)
    for worker in workers:
        worker.communicate(timeout=60)
    assert said, errors
    return json.loads(said)  # type: ignore[no-any-return]


def run_mpi(name: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        ssh, script = agent(Path(folder), name, f"--uts {ALONE}"), Path(folder, "steps.py")
        script.write_text("from benchmarks.parts import by_mpi\nby_mpi()\n")
        places = ",".join(f"{NETWORK}.{number}:1" for number in HOSTS)
        options = ("--host", places, "--prtemca", "plm_ssh_agent", ssh, "-x", "PYTHONPATH", "-x", "OMP_NUM_THREADS")
        line = command(2, str(script), options=options)
        done = subprocess.run(job(name, line), env=environment(), capture_output=True, text=True, timeout=600, check=False)
    assert done.stdout.strip().startswith("{"), done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def row(engine: str, megabits: int, found: dict[str, Any]) -> dict[str, Any]:
    """Milliseconds of a step either way, and the ratio of the means with the half width of its 95 % interval."""
    ratio, half = ratio_and_half(np.array(found["parts"]), np.array(found["whole"]))
    ms = {name: round(1e3 * float(np.mean(found[name])), 1) for name in ("parts", "whole")}
    return {
        "engine": engine,
        "megabits": megabits,
        "ms": ms,
        "ratio": round(ratio, 3),
        "half": round(half, 3),
        "came": found["came"],
    }


def main(rates: tuple[int, ...] = (100, 200, 1000)) -> None:
    rows = []
    for megabits in rates:
        for engine, run in (("Ray's hub", run_hub), ("MPI", run_mpi)):
            with hosts(NETWORK, megabits, burst="128kb") as name:
                rows.append(row(engine, megabits, run(name)))
            print(rows[-1], flush=True)
    megabytes = round(4e-6 * DEPTH * WIDTH * (WIDTH + 1), 2)
    about = {"megabytes": megabytes, "samples": 2 * BATCH, "workers": 2, "pairs": PAIRS, "passes_ms": passes_ms()}
    save("parts", about | {"rows": rows})


def passes_ms() -> dict[str, float]:
    """What a worker's forward and backward pass take by themselves."""
    there = problem()
    params, seconds = np.zeros(there.dim, "f4"), []
    for _ in range(5):
        began = time.perf_counter()
        there.loss(0, 0)
        forward = time.perf_counter()
        there.accumulate(params, 0, slice(None), 0, 1.0, None)
        seconds.append((forward - began, time.perf_counter() - forward - (forward - began)))
    forward, backward = np.median(seconds, axis=0)
    return {"forward": round(1e3 * float(forward), 1), "backward": round(1e3 * float(backward), 1)}


if __name__ == "__main__":
    {"hub_master": hub_master, "hub_worker": hub_worker}[sys.argv[1]](*sys.argv[2:]) if len(sys.argv) > 1 else main()
