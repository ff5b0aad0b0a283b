"""The command line's application and the options that all commands share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ... import __version__
from ...errors import Invalid

ORDER = (
    "demo",
    "train",
    "run",
    "measure",
    "diagnose",
    "fit",
    "plan",
    "simulate",
    "compare",
    "report",
    "check",
    "reproduce",
    "bench",
)
"""Of the commands in the help."""


class _InOrder(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(self.commands, key=ORDER.index)


app = typer.Typer(
    cls=_InOrder,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)

PAPER_LATENCY = "ShiftedExponential(rate=10, shift=0.01)"


def one_of(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """For shell completion: those names that begin like what was typed. They are asked for when they are needed."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in names() if name.startswith(incomplete)]

    return complete


def usable(folder: Path | None) -> Path | None:
    """The folder, if results can go there; said before the work rather than after it."""
    if folder is None:
        return None
    there = next(path for path in (folder, *folder.parents, Path()) if path.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise Invalid(f"--out is a folder for results, but {there} is not a folder that can be written to.")
    return folder


def out_option(about: str) -> Any:
    """-o, for commands that have a folder of their own."""
    return typer.Option("-o", "--out", help=about, callback=usable)


Seed = Annotated[int, typer.Option(min=0, help="Seed of the random draws; equal seeds give equal results.")]
Worth = Annotated[float, typer.Option(min=0, max=0.99, help="Least share of the time that a change must save to be advised.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Folder = Annotated[Path | None, out_option("Folder for results and pictures.")]
Key = Annotated[str | None, typer.Option(help="Array of an .npz file.")]
TracePath = Annotated[
    Path, typer.Argument(metavar="TRACE", help="Recorded rounds: .jsonl, .parquet, .npz, or the folder of a run.")
]


def _version(wanted: bool) -> None:
    if wanted:
        print(f"unstraggle {__version__}")
        raise typer.Exit()


@app.callback()
def shared(
    context: typer.Context,
    config: Annotated[
        Path | None, typer.Option(help="Options from a TOML file, a table per command, or from a run's config.json.")
    ] = None,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """Gradient coding: synchronous training that does not wait for its slowest worker.

    Example: unstraggle demo
    """
    if config is not None:
        from .config import defaults

        context.default_map = defaults(config, context.command)


def options_of(context: typer.Context, *, without: Iterable[str] = ("out", "as_json")) -> dict[str, Any]:
    """What a command was given, by the names of a config file, so that the run can be repeated from it."""
    from .config import key_of

    left_out = {*without, "context"}
    chosen = {key_of(param): context.params.get(param.name) for param in context.command.params if param.name not in left_out}
    return {name: str(value) if isinstance(value, Path) else value for name, value in chosen.items() if value is not None}
