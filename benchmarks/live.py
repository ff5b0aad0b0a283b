"""Live rounds whose work cannot be abandoned: against the theory of the same draws, and work-conserving against the rest.

Every task sleeps for as long as drawn, on workers that look up between two tasks only. A trace of a real cluster is replayed
too where one is given: LIVE_TRACE=compute_seconds.npz LIVE_TRACE_KEY=SE python -m benchmarks live
LIVE_SCHEMES=work_conserving,sums_on_request measures these against theory anew and leaves the rest of the result as it is.
"""

import json
import os
import signal
import threading
import time
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

import unstraggle as us
from unstraggle.blocks import block_slices
from unstraggle.latency import Replay
from unstraggle.scheme.code import Code
from unstraggle.statistics import mean_and_half

from .common import RESULTS, save
from .lasting import Lasting

Times = NDArray[np.float64]

DIM, SEED = 8, 7
TRACE_KEY = os.environ.get("LIVE_TRACE_KEY", "SE")
SIZES = tuple(map(int, os.environ.get("LIVE_WORKERS", "8,20").split(",")))
ROUNDS, MORE_ROUNDS = int(os.environ.get("LIVE_ROUNDS", "4")), int(os.environ.get("LIVE_MORE_ROUNDS", "40"))
HANDED = 4
"""Where tasks are handed out, so many times as many rounds are taken against theory: a moment decides who does what, and with
that how long a round takes."""
ONLY = tuple(filter(None, os.environ.get("LIVE_SCHEMES", "").split(",")))
MODELS = {
    "shifted exponential": "ShiftedExponential(rate=10, shift=0.01)",
    "two-speed": "TwoSpeed(fast=0.05, slow=0.4, p=0.1)",
}
"""A unit of work, a share of 1/n of the data, takes about 0.1 s, so that a message of a tenth of a millisecond is little."""
UNIT = 0.1
"""Seconds that the mean unit of work of a trace is scaled to."""
LONGER = 1.5
"""Against theory all times are so many times as long: the theory leaves out words, of a third of a millisecond, and pieces are
to be long beside them."""

SCHEMES = (
    "uncoded({n})",
    "cyclic_repetition({n}, s=1)",
    "fractional_repetition({n}, s=1)",
    "reed_solomon({n}, s=1)",
    "communication_efficient({n}, s=2, blocks=2)",
    "partial_stragglers({n}, s=1, slowdown=4)",
    "heterogeneity_aware({speeds}, s=1)",
    "group_based({speeds}, s=1)",
    "lagrange({n}, load=2)",
    "uncoded_mmc({n}, load=2)",
    "correlated_mmc({n}, load=3, order=2)",
    "uncorrelated_mmc({n}, load=3, orders=[1, 3])",
    "cluster(correlated_mmc({half}, load=3, order=2), times=2)",
    "hybrid(cluster(uncorrelated_mmc({half}, load=3, orders=[1, 3]), times=2))",
    "stack(uncoded({n}), fractional_repetition({n}, s=1), shares=[0.5, 0.5])",
    "blocks([1, 1], cyclic_repetition({n}, s=1), cyclic_repetition({n}, s=2))",
    "quantize(fractional_repetition({n}, s=1), bits=4, bucket=512)",
    "sums_on_request({n}, load=2, pieces=4)",
    "work_conserving({n}, load=2, pieces=4)",
)
"""Every public scheme with exact gradients; of quantised messages the round is what is looked at."""
APPROXIMATE = ("quantize", "lagrange")
"""Messages are rounded, or are of another gradient than that of `Lasting`, whose value is then not checked."""

WAITING, REPEATING = "uncoded(8)", "fractional_repetition(8, s=1)"
SENDING, CONSERVING = "uncoded_mmc(8, load=4)", "work_conserving(8, load=4, pieces=10)"
KILLS = 4


@cache
def draws(n: int, rounds: int) -> dict[str, Times]:
    """(rounds, n) seconds of a unit of work in every setting: common to all schemes."""
    models: dict[str, Any] = {name: us.parse_latency(text) for name, text in MODELS.items()}
    found = {name: np.asarray(model.speeds(n, rounds, np.random.default_rng(SEED))) for name, model in models.items()}
    return found | recorded(n, rounds)


def recorded(n: int, rounds: int) -> dict[str, Times]:
    """The first rounds and workers of the trace that was given; empty where none was, or one with fewer workers."""
    path = os.environ.get("LIVE_TRACE")
    seconds = us.trace.read(path, key=TRACE_KEY).seconds[:, :n] if path else np.empty((0, 0))
    return {"trace": np.resize(UNIT / seconds.mean() * seconds, (rounds, n))} if seconds.shape[1] == n else {}


def problem(code: Code, speeds: Times) -> Lasting:
    """What its workers compute: tasks that take their time."""
    starts = [where.start or 0 for where in block_slices(DIM, code.blocks)]
    tasks = zip(code.tasks.part.tolist(), code.tasks.block.tolist(), code.tasks.work.tolist(), strict=True)
    work = {(part, starts[block]): units for part, block, units in tasks}
    return Lasting(code.k if code.data is None else code.data.shape[1], DIM, speeds, work)


# Live over theory


def against_theory(n: int, rounds: int) -> list[dict[str, Any]]:
    """Every scheme: mean of the live rounds over that of the same draws in `simulate`."""
    rows = []
    for text in SCHEMES:
        if ONLY and not text.startswith(ONLY):
            continue
        code = us.parse_code(text.format(n=n, half=n // 2, speeds=[1, 2] * (n // 2)))
        drawn = draws(n, rounds if code.handing is None else HANDED * rounds)
        found = ratios(code, {name: LONGER * speeds for name, speeds in drawn.items()})
        shown = ", ".join(f"{row['setting']} {row['ratio']:.3f} ({row['ratio_abandonable']:.3f})" for row in found)
        print(f"{code.name}: live over theory {shown}", flush=True)
        rows += found
    return rows


def ratios(code: Code, settings: dict[str, Times]) -> list[dict[str, Any]]:
    """One row a setting. All are one chain of rounds, in theory as well: what is left of a task goes on in the next setting."""
    speeds = np.vstack(list(settings.values()))
    lasting = problem(code, speeds)
    with us.Master(code, us.engines.Local(lasting)) as master:
        free = abandonable(master, code, speeds)
        real = np.array([_checked(master.gradient(np.zeros(DIM), step), lasting, code) for step in range(len(speeds))])
    model, rounds = Replay(speeds), len(speeds)
    theory = us.simulate(code, model, rounds=rounds, rng=0, carry=True).time.values
    fresh = us.simulate(code, model, rounds=rounds, rng=0).time.values
    cuts = np.split(np.arange(rounds), len(settings))
    return [
        {
            "scheme": code.name,
            "setting": name,
            "workers": code.n,
            "rounds": len(own),
            "theory_s": round(float(theory[own].mean()), 4),
            "ratio": round(float(real[own].mean() / theory[own].mean()), 4),
            "theory_abandonable_s": round(float(fresh[own].mean()), 4),
            "ratio_abandonable": round(float(free[own].mean() / fresh[own].mean()), 4),
        }
        for name, own in zip(settings, cuts, strict=True)
    ]


def abandonable(master: us.Master, code: Code, speeds: Times) -> Times:
    """(R,) seconds of rounds whose slowness is a wait that ends with the round: it is before the message, not in the task."""
    delays = Replay(speeds).sample(code, len(speeds), np.random.default_rng(0))
    nothing = len(speeds)
    master.gradient(np.zeros(DIM), nothing)
    return np.array([master.gradient(np.zeros(DIM), nothing, delays=row).wait for row in delays])


def _checked(estimate: Any, lasting: Lasting, code: Code) -> float:
    """Seconds of a round, whose gradient must be right."""
    if not code.name.startswith(APPROXIMATE):
        np.testing.assert_allclose(estimate.gradient, lasting.total, rtol=1e-6, err_msg=code.name)
    return float(estimate.wait)


# Work-conserving against the rest


def against_others(rounds: int) -> list[dict[str, Any]]:
    """8 workers that hold four shares: seconds of a round with the same draws, and messages that a worker sends."""
    rows = []
    for name in MODELS:
        speeds = draws(8, rounds)[name]
        rows += [measured(us.parse_code(text), name, speeds) for text in (WAITING, REPEATING, SENDING, CONSERVING)]
    return rows


def measured(code: Code, setting: str, speeds: Times) -> dict[str, Any]:
    lasting = problem(code, speeds)
    with us.Master(code, us.engines.Local(lasting)) as master:
        master.gradient(np.zeros(DIM), len(speeds))
        estimates = [master.gradient(np.zeros(DIM), step) for step in range(len(speeds))]
    mean, half = mean_and_half(np.array([_checked(estimate, lasting, code) for estimate in estimates]))
    theory = us.simulate(code, Replay(speeds), rounds=len(speeds), rng=0, carry=True).time.mean
    row = {
        "scheme": code.name,
        "setting": setting,
        "round_s": [round(float(mean), 4), round(float(half), 4)],
        "theory_s": round(float(theory), 4),
        "uploads_a_worker": round(float(np.mean([estimate.messages for estimate in estimates])) / code.n, 3),
    }
    print(row, flush=True)
    return row


def shares(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Work-conserving's time as a fraction of each other scheme's, by setting."""
    time = {(row["setting"], row["scheme"]): row["round_s"][0] for row in rows}
    others = (WAITING, REPEATING, SENDING)
    return {
        setting: {other: round(time[setting, CONSERVING] / time[setting, other], 3) for other in others}
        for setting in dict.fromkeys(row["setting"] for row in rows)
    }


def killed(rounds: int) -> dict[str, Any]:
    """Work-conserving rounds in which workers are killed (SIGKILL) amid their tasks: how many gradients are exact."""
    code, speeds = us.parse_code(CONSERVING), draws(8, rounds)["shifted exponential"]
    lasting = problem(code, speeds)
    engine, exact = us.engines.Local(lasting), 0
    with us.Master(code, engine) as master:
        for step in range(rounds):
            if step % (rounds // KILLS) == rounds // KILLS // 2:
                threading.Timer(0.03, _kill, (engine, step % code.n)).start()
            estimate = master.gradient(np.zeros(DIM), step)
            exact += bool(estimate.exact and np.allclose(estimate.gradient, lasting.total, rtol=1e-9))
    row = {"scheme": code.name, "rounds": rounds, "kills": KILLS, "exact": exact}
    print(row, flush=True)
    return row


def _kill(engine: Any, worker: int) -> None:
    pid = engine.pid(worker)
    if pid is not None:
        os.kill(pid, signal.SIGKILL)


def main() -> None:
    began = time.monotonic()
    theory = [row for n in SIZES for row in against_theory(n, ROUNDS)]
    if ONLY:
        anew(theory)
        return
    others = against_others(MORE_ROUNDS)
    result = {
        "rounds": {"against_theory": ROUNDS, "where_tasks_are_handed_out": HANDED * ROUNDS, "against_others": MORE_ROUNDS},
        "times_against_theory": f"{LONGER:g} times those of the models",
        "models": MODELS | ({"trace": TRACE_KEY} if os.environ.get("LIVE_TRACE") else {}),
        "work": "a task sleeps for all of its time and is never left; workers look up between two tasks",
        "live_over_theory": theory,
        "worst_ratio": max(row["ratio"] for row in theory),
        "work_conserving": others,
        "of_the_time_of": shares(others),
        "killed": killed(MORE_ROUNDS),
        "minutes": round((time.monotonic() - began) / 60, 1),
    }
    save("live", result)


def anew(theory: list[dict[str, Any]]) -> None:
    """Put rows that were measured again in the place of those in the result."""
    found = json.loads((RESULTS / "live.json").read_text())
    fresh = {(row["scheme"], row["setting"]): row for row in theory}
    rows = [fresh.get((row["scheme"], row["setting"]), row) for row in found["live_over_theory"]]
    save("live", found | {"live_over_theory": rows, "worst_ratio": max(row["ratio"] for row in rows)})
