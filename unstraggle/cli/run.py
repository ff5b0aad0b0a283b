"""unstraggle run: rounds of a code on real workers."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from .app import AsJson, Folder, Seed, app
from .run_rounds import descend, save, summary, table

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
    live: Annotated[bool, typer.Option("--live", help="Serve a page that shows the run as it goes.")] = False,
    live_port: Annotated[int | None, typer.Option(help="Port of that page, which is for this machine only; 0: any.")] = None,
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
    with (
        _page(live, live_port, parsed.name) as page,
        _master(parsed, machine, deadline, trace, on_shortfall, patience) as master,
    ):
        records = descend(master, data, rounds, as_json, page)
    about = summary(parsed, records, {"engine": engine, "problem": problem, "latency": latency, "seed": seed, "chaos": chaos})
    if out:
        options = {"rounds": rounds, "dim": dim, "samples": samples, "on_shortfall": on_shortfall, "patience": patience}
        save(out, about, records, options | {"deadline": deadline})
    if as_json:
        print(json.dumps(about))
        return
    Console().print(table(about))
    if out:
        files = "config.json, summary.json, steps.jsonl, trace.jsonl, chrome.json (open it in Perfetto)"
        print(f"Written to {out}: {files}. For a page of it: unstraggle report {out}")


@contextmanager
def _page(live: bool, port: int | None, title: str) -> Iterator[Any]:
    """The live page, if it is wanted; its address goes to the error stream, so that --json stays JSON."""
    if not live and port is None:
        yield None
        return
    from ..live import LivePage

    with LivePage(port or 0, title=title) as page:
        print(f"Live at {page.url}", file=sys.stderr, flush=True)
        yield page


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
