"""The rounds of `unstraggle run`: gradient descent, what it took, and what is kept of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from ...problems.base import HasLoss
from .output import progress_bars, save_json


def descend(master: Any, problem: Any, rounds: int, quiet: bool, page: Any = None) -> Iterator[dict[str, Any]]:
    """Gradient descent; yields the record of every step: what it took, and how far its gradient was from the true one.

    The error is relative to the first gradient, since later ones approach zero. What it takes to know error and loss is not
    counted as time of a step. page: a `LivePage` that is told of every step.
    """
    from ...study.replaying import replay

    params = np.zeros(problem.dim)
    samples = sum(len(y) for _, y in problem.partitions)
    first = float(np.linalg.norm(problem.gradient(params)))
    with progress_bars(quiet) as told:
        told(master.code.name, 0, rounds)
        for number in range(rounds):
            estimate = master.gradient(params)
            step = estimate.lasting(estimate.wall - estimate.split.outside)
            error = np.linalg.norm(estimate.gradient - problem.gradient(params)) / first
            record = step.to_dict() | {"error": float(error)}
            delays = getattr(master.engine, "delays", None)
            if delays is not None and master.code.decoder.rule is not None:
                theory = replay(master.code, delays[None], master.stop, transfer=master.transfer)
                record |= {"theory": theory.time.mean, "theory_messages": theory.messages.mean}
            params = params - 1.0 / samples * estimate.gradient
            record["loss"] = _loss(problem, params)
            if page is not None:
                page.add(step, loss=record["loss"])
            yield record
            told(master.code.name, number + 1, rounds)


def _loss(problem: Any, params: Any) -> float:
    """The mean loss of a sample."""
    if isinstance(problem, HasLoss):
        return float(problem.loss(params))
    return float(np.mean(np.concatenate([(x @ params - y) ** 2 / 2 for x, y in problem.partitions])))


def summary(code: Any, records: Sequence[Mapping[str, Any]], about: dict[str, Any]) -> dict[str, Any]:
    from ...study.rounds import Sample

    def mean(name: str) -> float:
        return float(np.mean([record[name] for record in records]))

    result: dict[str, Any] = {"code": code.name, "rounds": len(records), **about}
    result |= {name: Sample(np.array([record[name] for record in records])).to_dict() for name in ("wall", "wait")}
    result |= {name: mean(name) for name in ("idle", "messages", "exact", "bytes", "stale", "damaged", "duplicates")}
    result["worst_error"] = max(record["error"] for record in records)
    result["lost"] = sorted({worker for record in records for worker in record["lost"]})
    if all("theory" in record for record in records):
        result |= {"theory": mean("theory"), "ratio": mean("wait") / mean("theory"), "theory_messages": mean("theory_messages")}
    return result


def table(about: dict[str, Any]) -> Table:
    rows = {
        "rounds": about["rounds"],
        "seconds per step": _seconds(about["wall"]),
        "wait for the round": _seconds(about["wait"]),
        "mean worker idle": f"{about['idle']:.4g} s per step",
        "messages": f"{about['messages']:.2f}",
        "exact": f"{100 * about['exact']:.4g} %",
        "worst relative error": f"{about['worst_error']:.2g}",
        "kilobytes per round": f"{about['bytes'] / 1000:.4g}",
        "stale, damaged, double": f"{about['stale']:.3g}, {about['damaged']:.3g}, {about['duplicates']:.3g} messages per round",
        "workers lost at times": ", ".join(map(str, about["lost"])) or "none",
    }
    if "theory" in about:
        rows["theory of the same draws"] = f"{about['theory']:.4g} s, {about['theory_messages']:.2f} messages"
        rows["measured / theory"] = f"{about['ratio']:.4f}"
    table = Table(title=f"{about['code']} on {about['engine']}", show_header=False)
    for name, value in rows.items():
        table.add_row(name, str(value))
    return table


def _seconds(time: dict[str, Any]) -> str:
    low, high = time["ci95"]
    return f"{time['mean']:.4g}" + ("" if low is None else f" [{low:.4g}, {high:.4g}], p99 {time['p99']:.4g}")


def save(out: Path, about: dict[str, Any]) -> None:
    """What is known at the end; the rest was written as the run went."""
    from ... import trace
    from ...trace.formats import chrome

    save_json(out / "summary.json", about)
    if (out / "trace.jsonl").exists():
        chrome.write(out / "chrome.json", trace.read(out / "trace.jsonl"))
