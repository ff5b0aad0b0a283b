"""unstraggle run: rounds of a code on real workers."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from .app import AsJson, Folder, Seed, app, progress_bars

ENGINES = {"local": "Local", "ray": "Ray", "mpi": "MPI", "virtual": "Virtual"}
CHAOS = ("drop", "duplicate", "corrupt", "hold", "kill", "pause", "hold_seconds", "pause_seconds", "within")


@app.command()
def run(
    code: Annotated[str, typer.Argument(metavar="CODE", help="A code, such as 'cyclic_repetition(8, s=2)'.")],
    problem: Annotated[str, typer.Option(help="'logistic' or 'least_squares', on random data.")] = "logistic",
    engine: Annotated[str, typer.Option(help=f"Where the workers are: {', '.join(ENGINES)}.")] = "local",
    workers: Annotated[int | None, typer.Option(help="Checked against the code's number of workers.")] = None,
    latency: Annotated[str | None, typer.Option(help="Latency model: workers wait as long as it says.")] = None,
    rounds: Annotated[int, typer.Option(help="Rounds, each a step of gradient descent.")] = 20,
    dim: Annotated[int, typer.Option(help="Coordinates of the gradient.")] = 100,
    samples: Annotated[int, typer.Option(help="Samples of the data set.")] = 4000,
    on_shortfall: Annotated[str, typer.Option(help="wait, approximate, skip or raise.")] = "wait",
    patience: Annotated[float | None, typer.Option(help="Shortfall after so many times the usual time of a round.")] = None,
    deadline: Annotated[float | None, typer.Option(help="End every round after so many seconds.")] = None,
    chaos: Annotated[str | None, typer.Option(help="Faults, such as 'drop=0.01,corrupt=0.01,kill=0.05'.")] = None,
    seed: Seed = 0,
    as_json: AsJson = False,
    out: Folder = None,
) -> None:
    """Run rounds of a code on real workers, and compare their time with the theory of the same draws.

    Example: unstraggle run "cyclic_repetition(8, s=2)" --latency "ShiftedExponential(rate=10, shift=0.01)" --rounds 50
    """
    from ..expression import parse_code

    parsed = parse_code(code)
    if workers is not None and workers != parsed.n:
        raise typer.BadParameter(f"{parsed.name} has {parsed.n} workers, but --workers is {workers}.")
    data = _problem(problem, parsed, dim, samples, seed)
    machine = _engine(engine, data, latency, _faults(chaos), seed)
    trace = _fresh(out / "trace.jsonl") if out else None
    with _master(parsed, machine, deadline, trace, on_shortfall, patience) as master:
        records = _descend(master, data, rounds, quiet=as_json)
    about = _summary(parsed, records, {"engine": engine, "problem": problem, "latency": latency, "seed": seed, "chaos": chaos})
    if out:
        _save(out, about, records)
    if as_json:
        print(json.dumps(about))
        return
    Console().print(_table(about))
    if out:
        print(f"Written to {out}: summary.json, steps.jsonl, trace.jsonl, chrome.json (open it in Perfetto)")


def _problem(name: str, code: Any, dim: int, samples: int, seed: int) -> Any:
    from ..problems import LeastSquares, Logistic

    if name == "logistic" and code.data is None:
        return Logistic.random(code, dim, samples, rng=seed)
    if name in ("least_squares", "logistic"):
        rng = np.random.default_rng(seed)
        shares = code.shares.tolist() if code.data is None else int(code.data.shape[1])
        return LeastSquares.split(rng.standard_normal((samples, dim)), rng.standard_normal(samples), shares)
    raise typer.BadParameter(f"--problem is 'logistic' or 'least_squares', but got {name!r}.")


def _engine(name: str, problem: Any, latency: str | None, faults: dict[str, float], seed: int) -> Any:
    from .. import engines
    from ..expression import parse_latency
    from ..latency import ShiftedExponential

    if name not in ENGINES:
        raise typer.BadParameter(f"--engine is one of {', '.join(ENGINES)}, but got {name!r}.")
    model = parse_latency(latency) if latency else None
    kind = getattr(engines, ENGINES[name])
    inner = kind(problem, model or ShiftedExponential(rate=1.0), seed) if name == "virtual" else kind(problem)
    if name == "virtual" and not faults:
        return inner
    return engines.Chaos(inner, latency=model if name != "virtual" else None, rng=seed, **faults) if model or faults else inner


def _faults(text: str | None) -> dict[str, float]:
    """'drop=0.1,kill=0.01' to a dictionary."""
    faults = {}
    for item in text.split(",") if text else ():
        name, _, value = item.strip().partition("=")
        try:
            faults[name] = float(value)
        except ValueError:
            faults[name] = float("nan")
        if name not in CHAOS or not faults[name] >= 0:
            raise typer.BadParameter(f"--chaos takes NAME=NUMBER with names {', '.join(CHAOS)}, but got {item!r}.")
    return faults


def _fresh(path: Path) -> Path:
    """A file that does not exist yet: an older run's is replaced."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    return path


@contextmanager
def _master(
    code: Any, engine: Any, deadline: float | None, trace: Path | None, on_shortfall: str, patience: float | None
) -> Any:
    from ..master import Master
    from ..stop import Deadline

    stop = None if deadline is None else Deadline(deadline)
    with Master(code, engine, stop, on_shortfall=on_shortfall, patience=patience, trace=trace) as master:  # type: ignore[arg-type]
        yield master


def _descend(master: Any, problem: Any, rounds: int, quiet: bool) -> list[dict[str, Any]]:
    """Gradient descent; every record says what the round took and how far its gradient was from the true one.

    The error is relative to the first gradient, since later ones approach zero.
    """
    from ..simulation import replay

    params = np.zeros(problem.dim)
    samples = sum(len(y) for _, y in problem.partitions)
    first = float(np.linalg.norm(problem.gradient(params)))
    records = []
    with progress_bars(quiet) as told:
        for step in range(rounds):
            estimate = master.gradient(params)
            error = np.linalg.norm(estimate.gradient - problem.gradient(params)) / first
            record = estimate.to_dict() | {"error": float(error)}
            delays = getattr(master.engine, "delays", None)
            if delays is not None and master.code.decoder.rule is not None:
                theory = replay(master.code, delays[None], master.stop)
                record |= {"theory": theory.time.mean, "theory_messages": theory.messages.mean}
            records.append(record)
            params = params - 1.0 / samples * estimate.gradient
            told(master.code.name, step + 1, rounds)
    return records


def _summary(code: Any, records: list[dict[str, Any]], about: dict[str, Any]) -> dict[str, Any]:
    from ..rounds import Sample

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


def _table(about: dict[str, Any]) -> Table:
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


def _save(out: Path, about: dict[str, Any], records: list[dict[str, Any]]) -> None:
    from .. import trace
    from ..formats import chrome

    (out / "summary.json").write_text(json.dumps(about, indent=1) + "\n")
    (out / "steps.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    chrome.write(out / "chrome.json", trace.read(out / "trace.jsonl"))
