"""What the planner predicts against what then happens: eight kinds of slowness, live, with work that cannot be abandoned.

A setting is recorded without a code, planned from that trace, and then run with other draws: waiting, what was chosen, and the
best of every other family. Each task sleeps for as long as drawn, and workers look up between two tasks only.
"""

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import unstraggle as us
from unstraggle.app.cli.measure_rounds import uneven_shares
from unstraggle.blocks import block_slices
from unstraggle.latency import FixedCost, Network, Replay
from unstraggle.plan.advice import Advice, Candidate
from unstraggle.plan.by_part import ByPart
from unstraggle.scheme.code import Code
from unstraggle.statistics import saving_of
from unstraggle.torch.scheme import resolve
from unstraggle.trace import Trace

from .common import save
from .lasting import Costly
from .planned_settings import DIM, SETTINGS, N, Setting
from .slow_link import SlowLink

Times = NDArray[np.float64]

RECORDED, LIVE = int(os.environ.get("PLANNED_RECORDED", "240")), int(os.environ.get("PLANNED_ROUNDS", "160"))
"""Rounds of the trace, and rounds of each scheme that is run."""
NAMES = tuple(filter(None, os.environ.get("PLANNED_SETTINGS", "").split(","))) or tuple(SETTINGS)
WARM = 2
"""Rounds at the start that pay for what is loaded, and are not kept."""
CLOSE, NEAR = 0.05, 1.05
"""Predicted and measured saving are to differ by less, and what was chosen to take at most so much of the best one's time."""


# Live


def rounds_of(code: Code, setting: Setting, drawn: tuple[Times, Times], trace: Path | None = None) -> Times:
    """(rounds,) seconds, each checked for its gradient; recorded into a trace where one is named."""
    speeds, costs = (np.concatenate([one[:WARM], one]) for one in drawn)
    starts = [where.start or 0 for where in block_slices(DIM, code.blocks)]
    table = zip(code.tasks.part.tolist(), code.tasks.block.tolist(), code.tasks.work.tolist(), strict=True)
    work = {(part, starts[block]): units for part, block, units in table}
    problem = Costly(code.k, DIM, speeds, work, fixed=setting.fixed, costs=costs)
    engine: Any = us.engines.Local(problem)
    if setting.link is not None:
        engine = SlowLink(engine, setting.link)
    with us.Master(code, engine, trace=trace) as master:
        found = [master.gradient(np.zeros(DIM, np.float32), step) for step in range(len(speeds))]
    for estimate in found:
        np.testing.assert_allclose(estimate.gradient, problem.total, rtol=1e-4, err_msg=code.name)
    return np.array([estimate.wait for estimate in found[WARM:]])


def recorded(setting: Setting) -> Trace:
    """Rounds that wait for all. Shares are cut: unevenly to tell fixed costs from work, evenly to tell data from machines."""
    code = {"uneven": uneven_shares(N), "equal": equal_shares(N, 4)}[setting.cut]
    with tempfile.TemporaryDirectory() as folder:
        rounds_of(code, setting, setting.draw(RECORDED, 1), Path(folder) / "trace.jsonl")
        return us.trace.read(Path(folder) / "trace.jsonl")[WARM:]


def equal_shares(n: int, tasks: int) -> Code:
    """Waiting for all, where a worker has so many tasks."""
    return us.codes.heterogeneity_aware([1.0] * n, s=0, k=n * tasks)


# Planned


def doors(trace: Trace, advice: Advice) -> dict[str, Any]:
    """The scheme that each door would run: the planner, the diagnosis, and `Coded(scheme="auto")`."""
    found = us.diagnose(trace)
    code = resolve("auto", N, trace, DIM).code
    said = {
        "plan_auto": _named(advice.chosen),
        "diagnose": _named(found.advice.chosen if found.advice and found.answer in ("scheme", "instead") else None),
        "coded_auto": code.name,
    }
    return said | {"diagnosis": found.action, "agree": len(set(said.values())) == 1}


def _named(chosen: Candidate | None) -> str:
    return chosen.plan.code.name if chosen else f"uncoded({N})"


def rivals(advice: Advice) -> Iterator[tuple[str, Candidate]]:
    """The candidate of every family that did best on the rounds used for choosing, all exact; waiting and the chosen first."""
    exact = sorted((one for one in advice.candidates if one.exact), key=lambda one: one.seen)
    wait = next(one for one in exact if one.name == "wait for all")
    yield "waiting", wait
    families = {family(wait)}
    if advice.chosen:
        families.add(family(advice.chosen))
        yield family(advice.chosen), advice.chosen
    for one in exact:
        if family(one) not in families:
            families.add(family(one))
            yield family(one), one


def family(candidate: Candidate) -> str:
    """What kind of scheme it is."""
    code = candidate.plan.code
    if candidate.name == "wait for all":
        return "waiting"
    if code.handing is not None or len(code.blocks) > 1:
        return "blocks" if code.handing is None else code.name.split("(")[0]
    if np.ptp(np.bincount(code.tasks.worker, minlength=code.n)) > 0:
        return "by speed"
    return "repetition" if len(code.messages) == code.n else "multi-message"


def simulated(candidate: Candidate, setting: Setting, drawn: tuple[Times, Times]) -> float:
    """Mean seconds of a round in theory, on the very draws that are run."""
    speeds, costs = drawn
    model: Any = Replay(speeds) if setting.cut != "equal" else ByPart(speeds.mean() * costs)
    model = FixedCost(model, setting.fixed) if setting.fixed else model
    model = Network(model, DIM, master=setting.link) if setting.link else model
    stop, code = candidate.plan.stop, candidate.plan.code
    by = stop.by if isinstance(stop, us.Recovered) else "rule"
    return float(us.simulate(code, model, stop, rounds=len(speeds), rng=0, by=by, carry=True).time.mean)


# A setting


def row(name: str) -> dict[str, Any]:
    """Everything about one setting."""
    setting = SETTINGS[name]
    trace = recorded(setting)
    advice = us.plan.auto(trace)
    print(f"{name}: {advice.verdict}", flush=True)
    if not advice.candidates:
        return {"setting": name, "verdict": advice.verdict}
    schemes, times = ran(name, advice, setting)
    chosen = advice.chosen.name if advice.chosen else "wait for all"
    measured = {one["scheme"]: one["round_s"] for one in schemes}
    best = min(measured, key=lambda one: measured[one])
    saving, interval = saving_of(times[chosen], times["wait for all"], chained=True)
    predicted, about = (advice.chosen.saving, advice.chosen.saving_ci95) if advice.chosen else (0.0, (0.0, 0.0))
    return {
        "setting": name,
        "verdict": advice.verdict,
        "chosen": _named(advice.chosen),
        "predicted_saving_%": _percent(predicted, about),
        "measured_saving_%": _percent(saving, interval),
        "points_apart": round(100 * (predicted - saving), 1),
        "within_5_points": bool(abs(predicted - saving) < CLOSE),
        "best_live": best,
        "chosen_over_best": round(measured[chosen] / measured[best], 3),
        "within_5_%_of_best": bool(measured[chosen] <= NEAR * measured[best]),
        "doors": doors(trace, advice),
        "schemes": schemes,
    }


def ran(name: str, advice: Advice, setting: Setting) -> tuple[list[dict[str, Any]], dict[str, Times]]:
    """Every family once, on the same draws; rows, and the times of all rounds."""
    drawn, rows, times = setting.draw(LIVE, 2), [], {}
    for kind, one in rivals(advice):
        times[one.name] = rounds_of(one.plan.code, setting, drawn)
        live, theory = float(times[one.name].mean()), simulated(one, setting, drawn)
        saving, interval = saving_of(times[one.name], times["wait for all"], chained=True)
        rows.append(
            {
                "setting": name,
                "family": kind,
                "scheme": one.name,
                "predicted_saving_%": round(100 * one.saving, 1),
                "measured_saving_%": _percent(saving, interval),
                "round_s": round(live, 4),
                "live_over_theory": round(live / theory, 3),
            }
        )
        print(rows[-1], flush=True)
    return rows, times


def _percent(value: float, interval: tuple[float, float]) -> str:
    """A share and its interval, in per cent."""
    low, high = interval
    return f"{100 * value:.1f} ({100 * low:.1f} to {100 * high:.1f})"


def main() -> None:
    began, rows = time.monotonic(), []
    try:
        for name in NAMES:
            rows.append(row(name))
            _save(rows, began)
    except KeyboardInterrupt:
        print(f"interrupted: {len(rows)} of {len(NAMES)} settings are in the result")


def _save(rows: list[dict[str, Any]], began: float) -> None:
    """Save what there is, after every setting."""
    flat = [{key: value for key, value in one.items() if key not in ("doors", "schemes")} for one in rows]
    result = {
        "workers": N,
        "rounds": {"recorded": RECORDED, "live": LIVE},
        "settings": {name: SETTINGS[name].about for name in NAMES},
        "minutes": round((time.monotonic() - began) / 60, 1),
        "planned": flat,
        "doors": [{"setting": one["setting"]} | one["doors"] for one in rows if "doors" in one],
        "schemes": [each for one in rows for each in one.get("schemes", [])],
    }
    save("planned", result)
