"""Run directories: what `unstraggle run -o` and trainings leave behind, read back.

config.json: the command and the environment. summary.json: results. steps.jsonl: a line a step. trace.jsonl: when tasks ended
and messages came. All may be missing but one of the last two.
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import Invalid
from ..study.rounds import Rounds, Sample
from ..trace import TornTrace, Trace, read

PACKAGES = ("numpy", "scipy", "numba", "torch", "ray", "mpi4py")


@dataclass(frozen=True, eq=False)
class Run:
    """One run: its records, a dictionary a step, and its trace, if there is one. notes: what could not be read, in words."""

    path: Path
    config: Mapping[str, Any] = field(default_factory=dict)
    summary: Mapping[str, Any] = field(default_factory=dict)
    steps: tuple[dict[str, Any], ...] = ()
    trace: Trace | None = None
    notes: tuple[str, ...] = ()

    @property
    def code(self) -> str:
        """What it ran, as it calls itself; else the name of its folder."""
        known = self.summary.get("code") or (self.trace.meta.get("code") if self.trace else None)
        return str(known or self.summary.get("scheme") or self.path.resolve().name)

    @property
    def command(self) -> str | None:
        """The line that repeats it."""
        words = self.config.get("command")
        return shlex.join(map(str, words)) if isinstance(words, list) and words else None

    @property
    def rounds(self) -> Rounds:
        """Times, messages and exactness of its steps; of a bare trace, times until the last message."""
        if self.steps:
            names = ("time", "messages", "exact", "residual")
            columns = [[float(step.get(name) or 0) for step in self.steps] for name in names]
            return Rounds(self.code, *(Sample(np.array(column)) for column in columns))
        assert self.trace is not None  # `read_run` refuses directories with neither
        times = self.trace.finish
        heard = np.isfinite(times)
        ends = np.where(heard, times, 0.0).max(axis=1)
        unknown = Sample(np.full(len(ends), np.nan))
        return Rounds(self.code, Sample(ends), Sample(heard.sum(axis=1)), unknown, unknown)

    @property
    def has_loss(self) -> bool:
        return any(step.get("loss") is not None and step.get("wall") is not None for step in self.steps)


def read_run(path: str | os.PathLike[str]) -> Run:
    """The run in a directory; refused where it holds neither steps.jsonl nor trace.jsonl, or one that cannot be read."""
    folder = Path(path)
    if not folder.is_dir():
        raise Invalid(f"A run is a directory, as `unstraggle run -o` writes it, but {folder} is {_what(folder)}.")
    steps, notes = _steps(folder / "steps.jsonl")
    trace, torn = _trace(folder / "trace.jsonl")
    if not steps and trace is None:
        raise Invalid(
            f"A run directory has a steps.jsonl or a trace.jsonl, but {folder} has neither. Make one with `unstraggle run -o`."
        )
    return Run(folder, _json(folder / "config.json"), _json(folder / "summary.json"), tuple(steps), trace, (*notes, *torn))


def write_config(folder: Path, command: list[str], options: Mapping[str, Any]) -> None:
    """Keep the command line, its options and the environment in config.json."""
    about = {"command": command, "options": dict(options), "environment": environment()}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(about, indent=1) + "\n")


def environment() -> dict[str, Any]:
    """Versions and machine, without names of people or hosts."""
    from .. import __version__

    found = {name: _version(name) for name in PACKAGES}
    versions = {"unstraggle": __version__, "python": platform.python_version()} | {k: v for k, v in found.items() if v}
    system = {"system": platform.system(), "machine": platform.machine(), "cores": os.cpu_count()}
    return {"date": datetime.now(UTC).isoformat(timespec="seconds"), **system, "versions": versions}


def command_line() -> list[str]:
    """The command that is running, as one would type it again."""
    return ["unstraggle", *sys.argv[1:]]


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _what(path: Path) -> str:
    return "a file" if path.exists() else "not there"


def _json(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text())
    except ValueError as error:
        raise Invalid(f"{path} is not JSON: {error}. Remove it to go on without it.") from None
    if not isinstance(found, dict):
        raise Invalid(f"{path} must hold a JSON object, but holds {type(found).__name__}. Remove it to go on without it.")
    return found


def _steps(path: Path) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """A record a line; a last line that is torn is left out, as an interrupted run leaves it."""
    lines = path.read_text().splitlines() if path.exists() else []
    found: list[dict[str, Any]] = []
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
        except ValueError:
            if number == len(lines):
                return found, (f"{path.name}: its last line is incomplete and was left out",)
            raise Invalid(f"{path}, line {number} is not JSON, though lines follow. Remove that line.") from None
        found.append(_record(record, f"{path}, line {number}"))
    return found, ()


def _record(record: Any, where: str) -> dict[str, Any]:
    """A step; its seconds are called "time", or "waited" in a training."""
    if not isinstance(record, dict):
        raise Invalid(f"{where}: a step is a JSON object, but got {str(record)[:40]!r}.")
    time = record.get("time", record.get("waited"))
    if isinstance(time, bool) or not isinstance(time, int | float) or not 0 <= time < np.inf:
        raise Invalid(f'{where}: a step needs "time", its seconds >= 0, but got {time!r}.')
    return record | {"time": float(time)}


def _trace(path: Path) -> tuple[Trace | None, tuple[str, ...]]:
    if not path.exists():
        return None, ()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", TornTrace)
        trace = read(path)
    return trace, tuple(str(warning.message).removeprefix(f"{path}: ") for warning in said)
