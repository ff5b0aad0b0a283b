"""The rounds of `unstraggle run`: gradient descent, what it took, and what is kept of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from ...problems.base import HasLoss
from .output import progress_bars, save_json


def descend(master: Any, problem: Any, rounds: int, quiet: bool, page: Any = None) -> list[dict[str, Any]]:
    """Gradient descent; every record says what the round took and how far its gradient was from the true one.

    The error is relative to the first gradient, since later ones approach zero. wall: seconds of all rounds so far, without
    what it takes to know error and loss. page: a `LivePage` that is told of every round.
    """
    from ...study.simulation import replay

    params = np.zeros(problem.dim)
    samples = sum(len(y) for _, y in problem.partitions)
    first = float(np.linalg.norm(problem.gradient(params)))
    records, wall = [], 0.0
    with progress_bars(quiet) as told:
        for step in range(rounds):
            estimate = master.gradient(params)
            error = np.linalg.norm(estimate.gradient - problem.gradient(params)) / first
            wall += estimate.time
            record = estimate.to_dict() | {"error": float(error), "wall": wall}
            delays = getattr(master.engine, "delays", None)
            if delays is not None and master.code.decoder.rule is not None:
                theory = replay(master.code, delays[None], master.stop)
                record |= {"theory": theory.time.mean, "theory_messages": theory.messages.mean}
            params = params - 1.0 / samples * estimate.gradient
            records.append(record | {"loss": _loss(problem, params)})
            if page is not None:
                page.add(estimate, loss=records[-1]["loss"], code=master.code)
            told(master.code.name, step + 1, rounds)
    return records


def _loss(problem: Any, params: Any) -> float:
    """The mean loss of a sample."""
    if isinstance(problem, HasLoss):
        return float(problem.loss(params))
    return float(np.mean(np.concatenate([(x @ params - y) ** 2 / 2 for x, y in problem.partitions])))


def summary(code: Any, records: list[dict[str, Any]], about: dict[str, Any]) -> dict[str, Any]:
    from ...study.rounds import Sample

    def mean(name: str) -> float:
        return float(np.mean([record[name] for record in records]))

    result = {
        "code": code.name,
        "rounds": len(records),
        **about,
        "time": Sample(np.array([r["time"] for r in records])).to_dict(),
    }
    result |= {name: mean(name) for name in ("messages", "exact", "bytes", "late", "damaged", "duplicates")}
    result["worst_error"] = max(record["error"] for record in records)
    result["lost"] = sorted({worker for record in records for worker in record["lost"]})
    if all("theory" in record for record in records):
        result |= {"theory": mean("theory"), "ratio": mean("time") / mean("theory"), "theory_messages": mean("theory_messages")}
    return result


def table(about: dict[str, Any]) -> Table:
    time = about["time"]
    rows = {
        "rounds": about["rounds"],
        "seconds a round": f"{time['mean']:.4g} [{time['ci95'][0]:.4g}, {time['ci95'][1]:.4g}], p99 {time['p99']:.4g}"
        if time["ci95"][0] is not None
        else f"{time['mean']:.4g}",
        "messages": f"{about['messages']:.2f}",
        "exact": f"{100 * about['exact']:.4g} %",
        "worst relative error": f"{about['worst_error']:.2g}",
        "kilobytes a round": f"{about['bytes'] / 1000:.4g}",
        "late, damaged, double": f"{about['late']:.3g}, {about['damaged']:.3g}, {about['duplicates']:.3g} a round",
        "workers lost at times": ", ".join(map(str, about["lost"])) or "none",
    }
    if "theory" in about:
        rows["theory of the same draws"] = f"{about['theory']:.4g} s, {about['theory_messages']:.2f} messages"
        rows["measured / theory"] = f"{about['ratio']:.4f}"
    table = Table(title=f"{about['code']} on {about['engine']}", show_header=False)
    for name, value in rows.items():
        table.add_row(name, str(value))
    return table


def save(out: Path, about: dict[str, Any], records: list[dict[str, Any]], options: dict[str, Any]) -> None:
    from ... import trace
    from ...trace.formats import chrome
    from ..runs import command_line, write_config

    write_config(out, command_line(), options)
    save_json(out / "summary.json", about)
    (out / "steps.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    chrome.write(out / "chrome.json", trace.read(out / "trace.jsonl"))
