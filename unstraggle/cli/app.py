"""The command line's application, the options that all commands share, and progress bars."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress, TaskID

app = typer.Typer(
    help="Gradient coding: synchronous training that does not wait for its slowest worker.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)

PAPER_LATENCY = "ShiftedExponential(rate=10, shift=0.01)"


Seed = Annotated[int, typer.Option(help="Seed of the random draws; equal seeds give equal results.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Folder = Annotated[Path | None, typer.Option("-o", "--out", help="Folder for results and pictures.")]


@contextmanager
def progress_bars(quiet: bool) -> Iterator[Callable[[str, int, int], None]]:
    """Progress bars on the error stream, one a label; gives the function that moves them."""
    console = Console(stderr=True)
    tasks: dict[str, TaskID] = {}
    with Progress(console=console, transient=True, disable=quiet or not console.is_terminal) as bars:

        def move(label: str, done: int, total: int) -> None:
            if label not in tasks:
                tasks[label] = bars.add_task(label[:40], total=total)
            bars.update(tasks[label], completed=done, total=total)

        yield move
