"""unstraggle plan."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from ...checks import require_known
from ...errors import Invalid
from .output import busy, console, print_json, progress_bars, save_json
from .shared import AsJson, Folder, Key, Seed, Worth, app, one_of
from .traces import read_trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HELP = """Choose a code for a cluster, from a trace or a latency model.

Example: unstraggle plan auto out/measure
"""

plan = typer.Typer(help=HELP, no_args_is_help=True)
app.add_typer(plan, name="plan")

Source = Annotated[
    str, typer.Argument(metavar="SOURCE", help="A trace, a run's folder, or a latency model, e.g. 'Exponential(1)'.")
]
Workers = Annotated[int | None, typer.Option("-n", "--workers", help="Number of workers; a trace knows it.")]
Rounds = Annotated[int, typer.Option(help="Rounds to simulate.")]
Carry = Annotated[
    bool, typer.Option("--carry/--fresh", help="Workers finish the task that they are in when a round ends, or start afresh.")
]


def _methods() -> tuple[str, ...]:
    from ...plan.block_sizes import METHODS

    return METHODS


@plan.command("auto")
def automatic(
    source: Source,
    workers: Workers = None,
    key: Key = None,
    dim: Annotated[int | None, typer.Option(help="Coordinates of the gradient.")] = None,
    bandwidth: Annotated[float | None, typer.Option(help="Bytes per second of a worker's link.")] = None,
    round_trip: Annotated[float | None, typer.Option(help="Seconds; by default what a trace tells.")] = None,
    master: Annotated[float | None, typer.Option(help="Bytes per second of the master's link, which all share.")] = None,
    max_bytes: Annotated[float | None, typer.Option(help="Most bytes sent per round.")] = None,
    max_load: Annotated[
        int,
        typer.Option(
            help="Most partitions of a worker in multi-message codes, and shares that it holds where pieces are handed out."
        ),
    ] = 4,
    rounds: Rounds = 20_000,
    carry: Carry = True,
    worth: Worth = 0.05,
    blocks: Annotated[
        bool, typer.Option("--blocks", help="Block codes may be advised: parts can be computed in turn.")
    ] = False,
    seed: Seed = 0,
    as_json: AsJson = False,
    out: Folder = None,
) -> None:
    """Rank all schemes beside waiting for all, and say which to use, or why none.

    Example: unstraggle plan auto out/measure --dim 1000000 --bandwidth 1e9
    """
    from ...plan import auto
    from ..plots import candidates

    network: dict[str, Any] = {"dim": dim, "bandwidth": bandwidth, "round_trip": round_trip, "master": master}
    limits: dict[str, Any] = {"max_bytes": max_bytes, "max_load": max_load, "rounds": rounds, "carry": carry, "worth": worth}
    limits["blocks"] = blocks
    with progress_bars(as_json) as told:
        advice = auto(_source(source, key), workers, **network, **limits, rng=seed, progress=told)
    if not advice.candidates:
        _finish(advice.to_dict(), [advice.verdict, *(f"- {reason}" for reason in advice.reasons)], None, as_json, out)
        return
    table = Table(title=advice.verdict)
    table.add_column("scheme", overflow="fold")
    for column in ("time", "saved", "95 % interval", "volume"):
        table.add_column(column, justify="right", no_wrap=True)
    for c in advice.candidates:
        interval = f"{100 * c.saving_ci95[0]:.1f} to {100 * c.saving_ci95[1]:.1f} %"
        name = c.name if c.exact else f"{c.name} (not exact)"
        table.add_row(name, f"{c.time:.4g}", f"{100 * c.saving:.1f} %", interval, f"{c.volume:.1f}")
    _finish(advice.to_dict(), [*(f"- {reason}" for reason in advice.reasons), table], candidates(advice), as_json, out)
    if advice.line and not as_json:
        print(f"To try it:\n{advice.line}")


@plan.command()
def blocks(
    source: Source,
    dim: Annotated[int, typer.Option(help="Coordinates of the gradient.")],
    workers: Workers = None,
    key: Key = None,
    method: Annotated[
        str,
        typer.Option(help="How: optimal, subgradient, time, frequency, tandon, ...", autocompletion=one_of(_methods)),
    ] = "optimal",
    seed: Seed = 0,
    as_json: AsJson = False,
    out: Folder = None,
) -> None:
    """Split the coordinates into blocks that tolerate different numbers of stragglers.

    Example: unstraggle plan blocks "Exponential(rate=10)" -n 20 --dim 100000
    """
    from ...plan import block_sizes
    from ..plots import block_sizes as picture

    require_known("method", method, _methods())
    latency, n = _latency(source, key, workers)
    with busy("planning", as_json):
        found = block_sizes(latency, n, dim, method, rng=seed)
    sizes = found.params.get("sizes", [])
    bound = "" if found.bound is None else f", no block sizes can take less than {found.bound:.5g}"
    lines: list[Any] = [f"{found.name}: expected time of a round {found.cost:.5g}{bound}"]
    lines += [f"  {size:>10} coordinates tolerate {s} stragglers" for s, size in enumerate(sizes) if size]
    row = {"method": method, "runtime": found.cost, **{f"s={s}": size for s, size in enumerate(sizes)}}
    _finish(found.to_dict(), lines, picture([row]) if sizes else None, as_json, out)


@plan.command()
def orders(
    source: Source,
    load: Annotated[int, typer.Option(help="Most partitions a worker computes.")],
    workers: Workers = None,
    key: Key = None,
    max_messages: Annotated[float | None, typer.Option(help="Most messages per round, on average.")] = None,
    rounds: Rounds = 40_000,
    carry: Carry = True,
    seed: Seed = 0,
    as_json: AsJson = False,
    out: Folder = None,
) -> None:
    """Search multi-message codes: the front of expected time against messages per round.

    Example: unstraggle plan orders "Exponential(rate=10)" -n 12 --load 4
    """
    from ...plan import orders as search
    from ..plots import front

    latency, n = _latency(source, key, workers)
    with progress_bars(as_json) as told:
        found = search(latency, n, load, max_messages=max_messages, rounds=rounds, rng=seed, progress=told, carry=carry)
    _finish(found.to_dict(), [str(found)], front(found), as_json, out)


@plan.command()
def redundancy(
    source: Source,
    workers: Workers = None,
    key: Key = None,
    carry: Carry = True,
    seed: Seed = 0,
    as_json: AsJson = False,
    out: Folder = None,
) -> None:
    """Choose how many stragglers a one-message code should tolerate.

    Example: unstraggle plan redundancy "Pareto(shape=2)" -n 20
    """
    from ...plan import redundancy as search
    from ..plots import redundancy_curve

    latency, n = _latency(source, key, workers)
    with busy("planning", as_json):
        found = search(latency, n, rng=seed, carry=carry)
    lines: list[Any] = [f"Use {found.name}: expected time of a round {found.cost:.5g}"]
    _finish(found.to_dict(), lines, redundancy_curve(found), as_json, out)


def _source(text: str, key: str | None) -> Any:
    """A trace from a file, or a latency model from an expression."""
    from ...study.expression import parse_latency

    if "(" in text:
        return parse_latency(text)
    if not Path(text).exists():
        raise Invalid(f"SOURCE is a trace file or a latency model such as 'Exponential(1)', but there is no file {text!r}.")
    return read_trace(Path(text), key)


def _latency(text: str, key: str | None, workers: int | None) -> tuple[Any, int]:
    """A latency model and the number of workers; the rounds of a trace are replayed."""
    from ...latency import Replay
    from ...trace import Trace

    source = _source(text, key)
    if isinstance(source, Trace):
        if workers not in (None, source.n):
            raise Invalid(f"The trace has {source.n} workers, but got --workers {workers}. Leave it out.")
        return Replay(source.seconds), source.n
    if workers is None:
        raise Invalid("A latency model does not say how many workers there are. Give --workers.")
    return source, workers


def _finish(data: dict[str, Any], lines: list[Any], picture: Figure | None, as_json: bool, out: Path | None) -> None:
    """Print the answer and, where a folder is given, write plan.json and plan.png."""
    if out:
        save_json(out / "plan.json", data)
        if picture:
            picture.savefig(out / "plan.png", dpi=150)
    if as_json:
        print_json(data)
        return
    for line in lines:
        console().print(line, markup=False)
    if out:
        print(f"Written to {out}: plan.json" + (", plan.png" if picture else ""))
