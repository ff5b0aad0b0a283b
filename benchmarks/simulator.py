"""The simulator against its plain NumPy form: a million rounds of each code of figure 1, growth with n, and memory.

And rounds that hand out tasks, in the same setting, with carry-over: chains of rounds, as many at once as there are cores.
"""

import subprocess
import sys
from functools import partial
from pathlib import Path

from unstraggle import codes, simulate
from unstraggle.app.bench.rounds import LATENCY, plain_numpy
from unstraggle.papers.mmc_clustering.figure1 import Setting, schemes
from unstraggle.study.simulation import CHUNK

from .common import best_of, save

ROUNDS = 1_000_000
PLAIN_ROUNDS = 10 * CHUNK
HANDED_ROUNDS = 32 * CHUNK


def figure_codes() -> list[dict[str, object]]:
    rows = []
    for scheme in schemes(Setting()):
        if scheme.by == "span":
            continue
        run = partial(simulate, scheme.code, LATENCY, rounds=ROUNDS, rng=0)
        fast, single = ROUNDS / best_of(run), ROUNDS / best_of(partial(run, threads=1))
        plain = PLAIN_ROUNDS / best_of(partial(plain_numpy, scheme.code, PLAIN_ROUNDS))
        rows.append(
            {
                "scheme": scheme.label,
                "messages": len(scheme.code.messages),
                "rounds_per_second": round(fast),
                "rounds_per_second_one_thread": round(single),
                "plain_numpy_rounds_per_second": round(plain),
                "ratio": round(fast / plain, 2),
                "ratio_one_thread": round(single / plain, 2),
            }
        )
        print(f"{scheme.label:24}{fast:12.3g} rounds/s{single:12.3g} on one thread{fast / plain:8.1f} x plain NumPy")
    return rows


GROWING = {
    "uncoded_mmc(n, load=10)": lambda n: codes.uncoded_mmc(n, load=10),
    "cluster(correlated_mmc(10, load=10, order=6), times=n/10)": lambda n: codes.cluster(
        codes.correlated_mmc(10, load=10, order=6), times=n // 10
    ),
    "cyclic_repetition(n, s=9)": lambda n: codes.cyclic_repetition(n, s=9),
    "fractional_repetition(n, s=9)": lambda n: codes.fractional_repetition(n, s=9),
}


def growth() -> list[dict[str, object]]:
    rows = []
    for name, make in GROWING.items():
        for n in (40, 400, 4000):
            code, rounds = make(n), max(8 * CHUNK, 400_000 * 40 // n)
            seconds = best_of(partial(simulate, code, LATENCY, rounds=rounds, rng=0))
            cost = seconds / rounds / len(code.messages) * 1e9
            rows.append({"code": name, "n": n, "messages": len(code.messages), "ns_per_message_and_round": round(cost, 3)})
            print(f"{name:60}{n:6}{cost:8.2f} ns per message and round")
    return rows


def handed_codes() -> list[dict[str, object]]:
    """Work-conserving rounds, nothing twice and with helpers: drawing the times is part of it."""
    rows = []
    for helpers in (False, True):
        code = codes.work_conserving(40, load=10, pieces=10, helpers=helpers)
        run = partial(simulate, code, LATENCY, rounds=HANDED_ROUNDS, rng=0, carry=True)
        fast, single, result = HANDED_ROUNDS / best_of(run), HANDED_ROUNDS / best_of(partial(run, threads=1)), run()
        rows.append(
            {
                "code": code.name,
                "rounds": HANDED_ROUNDS,
                "rounds_per_second": round(fast),
                "rounds_per_second_one_thread": round(single),
                "seconds_a_round": round(result.time.mean, 4),
                "sums_a_round": round(result.messages.mean, 2),
            }
        )
        print(f"{code.name:60}{fast:12.3g} rounds/s{single:12.3g} on one thread")
    return rows


MEMORY_ROUNDS = 10_000_000


def memory() -> dict[str, object]:
    """Peak memory of a process that simulates 1e7 rounds of the figure's code with most messages."""
    done = subprocess.run([sys.executable, "-m", "benchmarks.simulator"], capture_output=True, text=True, check=True)
    peak = float(done.stdout)
    print(f"{MEMORY_ROUNDS:.0e} rounds of uncoded_mmc(40, load=10): peak {peak:.0f} MiB")
    return {"code": "uncoded_mmc(40, load=10)", "rounds": MEMORY_ROUNDS, "peak_mib": round(peak)}


def main() -> None:
    figure, handed = figure_codes(), handed_codes()
    save("simulator", {"rounds": ROUNDS, "figure_codes": figure, "handed": handed, "growth": growth(), "memory": memory()})


if __name__ == "__main__":
    simulate(codes.uncoded_mmc(40, load=10), LATENCY, rounds=MEMORY_ROUNDS, rng=0)
    status = Path("/proc/self/status").read_text()
    print(int(status.split("VmHWM:")[1].split()[0]) / 1024)
