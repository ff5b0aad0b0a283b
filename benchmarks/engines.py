"""Live engines: rounds against the theory of the same draws, cost of a message, throughput, start-up and memory.

Engines run one after the other in processes of their own: `python -m benchmarks.engines measure local`.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import unstraggle as us
from unstraggle.app.bench.ones import Ones

from .common import save

ENGINES = {"local": "Local", "mpi": "MPI", "ray": "Ray"}
WORKERS, LOAD = 40, 10
PAPER = "ShiftedExponential(rate=10, shift=0.01)"
SCHEMES = {
    "GC": "cyclic_repetition(40, s=9)",
    "FR": "fractional_repetition(40, s=9)",
    "UC-MMC": "uncoded_mmc(40, load=10)",
    "GC-MMC-1": "cluster(correlated_mmc(10, load=10, order=6), times=4)",
    "GC-MMC-2": "cluster(uncorrelated_mmc(10, load=10, orders=[6, 8, 10]), times=4)",
    "hybrid": "hybrid(cluster(uncorrelated_mmc(10, load=10, orders=[6, 8, 10]), times=4))",
}
ROUNDS = int(os.environ.get("ENGINE_ROUNDS", "40"))
LARGE, LARGE_WORKERS = 5_000_000, 8
"""float32 coordinates of a message of 20 MB."""


def live(make: Any, rounds: int = ROUNDS) -> list[dict[str, Any]]:
    """Mean time of a round over the time that theory gives for the same draws, which are common to all engines."""
    rows = []
    for name, text in SCHEMES.items():
        code = us.parse_code(text)
        engine = us.engines.Chaos(make(Ones(code.k, 8)), latency=us.parse_latency(PAPER), rng=7)
        with us.Master(code, engine) as master:
            master.gradient(np.zeros(8))
            pairs = [(master.gradient(np.zeros(8)), us.replay(code, engine.delays[None])) for _ in range(rounds)]
        measured = np.array([estimate.wait for estimate, _ in pairs])
        theory = np.array([result.time.mean for _, result in pairs])
        row = {
            "scheme": name,
            "theory_s": round(float(theory.mean()), 4),
            "ratio": round(float(measured.mean() / theory.mean()), 4),
            "ratio_of_a_round_p10_p90": [round(float(q), 4) for q in np.quantile(measured / theory, [0.1, 0.9])],
            "overhead_ms_p50_p90": [round(1e3 * float(q), 2) for q in np.quantile(measured - theory, [0.5, 0.9])],
            "messages": round(float(np.mean([estimate.messages for estimate, _ in pairs])), 2),
            "messages_simulated": round(float(np.mean([result.messages.mean for _, result in pairs])), 2),
        }
        rows.append(row)
        print(row, file=sys.stderr, flush=True)
    return rows


def overhead(make: Any, blocks: int = 10, rounds: int = 40) -> dict[str, Any]:
    """40 workers, 10 small messages each, all of them taken: time at the master, by the clock and of its processor.

    In blocks with pauses, of which the middle and the quickest are given: others may use the machine for seconds at a time.
    """
    code = us.parse_code(f"uncoded_mmc({WORKERS}, load={LOAD})")
    messages = WORKERS * LOAD
    began = time.perf_counter()
    with us.Master(code, make(Ones(code.k, 8)), us.Count(messages, of="messages")) as master:
        started = time.perf_counter() - began
        times = [_block(master, rounds) for _ in range(blocks)]
        memory, idle = _memory(master.engine), _idle(master.engine)
    best, middle = (1e6 / messages * pick(times, axis=0) for pick in (np.min, np.median))
    return {
        "start_of_40_workers_s": round(started, 2),
        "us_a_message": round(float(middle[0]), 1),
        "us_a_message_best_block": round(float(best[0]), 1),
        "us_a_message_master_cpu_best_block": round(float(best[1]), 1),
        "pss_mb_a_worker": memory,
        "cores_of_40_idle_workers": idle,
    }


def _block(master: Any, rounds: int) -> Any:
    """Medians over some rounds, after a pause and five that are not counted."""
    time.sleep(1.0)
    return np.median([_timed(master, np.zeros(8)) for _ in range(5 + rounds)][5:], axis=0)


def throughput(make: Any, rounds: int = 20) -> dict[str, Any]:
    """8 workers, messages of 20 MB, decoded: bytes of messages per second, against copying the same bytes in this process,
    which is timed after every round, because other users of a machine slow down both."""
    code = us.parse_code(f"uncoded({LARGE_WORKERS})")
    params = np.zeros(LARGE, np.float32)
    sources = [np.ones(LARGE, np.float32) for _ in range(LARGE_WORKERS)]
    target = [np.empty(LARGE, np.float32) for _ in range(LARGE_WORKERS)]
    with us.Master(code, make(Ones(LARGE_WORKERS, LARGE, "f4"))) as master:
        pairs = [(*_timed(master, params), _copied(sources, target)) for _ in range(rounds)][3:]
    megabytes = LARGE_WORKERS * LARGE * 4 / 1e6
    wall, processor, copy = np.median(pairs, axis=0)
    return {
        "round_ms": round(1e3 * float(wall), 1),
        "mb_per_s": round(megabytes / float(wall)),
        "memcpy_mb_per_s": round(megabytes / float(copy)),
        "of_memcpy": round(float(copy / wall), 3),
        "of_memcpy_by_master_cpu": round(float(copy / processor), 3),
    }


def gloo(rounds: int = 20) -> dict[str, Any]:
    """The rival: an all-reduce of the same 20 MB among 8 processes by torch.distributed with gloo."""
    import torch.multiprocessing as mp

    with mp.get_context("spawn").Manager() as manager:
        result = manager.list()
        mp.spawn(_all_reduce, (rounds, result), LARGE_WORKERS)
        return {"all_reduce_ms": round(1e3 * float(np.median(list(result)[3:])), 1)}


def _all_reduce(rank: int, rounds: int, result: Any) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29533", rank=rank, world_size=LARGE_WORKERS)
    tensor = torch.ones(LARGE)
    for _ in range(rounds):
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(tensor)
        if rank == 0:
            result.append(time.perf_counter() - start)
    dist.destroy_process_group()


def _timed(master: Any, params: NDArray[Any]) -> tuple[float, float]:
    wall, processor = time.perf_counter(), time.process_time()
    master.gradient(params)
    return time.perf_counter() - wall, time.process_time() - processor


def _copied(sources: list[NDArray[Any]], targets: list[NDArray[Any]]) -> float:
    start = time.perf_counter()
    for source, target in zip(sources, targets, strict=True):
        np.copyto(target, source)
    return time.perf_counter() - start


def _memory(engine: Any) -> float | None:
    """Mean proportional set size of the workers, where they are processes of this machine."""
    sizes = [process.memory_full_info().pss for process in _processes(engine)]
    return round(float(np.mean(sizes)) / 1e6, 1) if sizes else None


def _idle(engine: Any, seconds: float = 4.0) -> float | None:
    """Processor time of all workers while nothing happens, a second."""
    processes = _processes(engine)
    time.sleep(2.0)
    before = [sum(process.cpu_times()[:2]) for process in processes]
    time.sleep(seconds)
    after = [sum(process.cpu_times()[:2]) for process in processes]
    return round((sum(after) - sum(before)) / seconds, 3) if processes else None


def _processes(engine: Any) -> list[Any]:
    """Those of the workers, where they are on this machine."""
    import psutil

    pids = [engine.pid(worker) for worker in range(WORKERS)] if hasattr(engine, "pid") else []
    return [psutil.Process(pid) for pid in pids if pid]


def measure(name: str) -> dict[str, Any]:
    if name == "gloo":
        return gloo()
    make = getattr(us.engines, ENGINES[name])
    return {"overhead": overhead(make), "throughput": throughput(make), "live": live(make)}


def in_its_own_process(name: str) -> dict[str, Any]:
    """Run `measure` apart; MPI needs a launcher."""
    program = ["-m", "benchmarks.engines", "measure", name]
    command = [sys.executable, *program]
    if name == "mpi":
        from unstraggle.engines import mpi

        command = mpi.command(WORKERS, *program)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=Path(__file__).parent.parent)
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def main(names: tuple[str, ...] = ("local", "mpi", "ray", "gloo")) -> None:
    result = {}
    for name in names:
        result[name] = in_its_own_process(name)
        print(name, json.dumps(result[name], indent=1))
    save("engines", {"rounds": ROUNDS, "latency": PAPER, "engines": result})


if __name__ == "__main__" and sys.argv[1:2] == ["measure"]:
    print(json.dumps(measure(sys.argv[2])), flush=True)
