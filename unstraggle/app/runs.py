"""Run directories: what `unstraggle run -o` and trainings leave behind, read back.

config.json: the command and the environment. summary.json: results. steps.jsonl: a line for each step (see `steps`).
trace.jsonl: when tasks ended and messages came. All may be missing but one of the last two.
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
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ..adaptive.switch import Switch
from ..checks import parsed_json
from ..errors import Invalid
from ..study.rounds import Rounds, Sample
from ..trace import TornTrace, Trace, read
from .steps import read_steps

PACKAGES = ("numpy", "scipy", "numba", "torch", "ray", "mpi4py")


@dataclass(frozen=True, eq=False)
class Run:
    """One run: its steps by the names of `Step`, and its trace, if there is one. notes: what could not be read, in words."""

    path: Path
    config: Mapping[str, Any] = field(default_factory=dict)
    summary: Mapping[str, Any] = field(default_factory=dict)
    steps: tuple[dict[str, Any], ...] = ()
    trace: Trace | None = None
    notes: tuple[str, ...] = ()

    @property
    def code(self) -> str:
        """What it ran, as it calls itself; else the name of its folder."""
        if self.switches:
            return f"adaptive, {len({one.code for one in self.switches} | {one.was for one in self.switches})} codes"
        known = self.summary.get("code") or (self.trace.meta.get("code") if self.trace else None)
        return str(known or self.summary.get("scheme") or self.path.resolve().name)

    @cached_property
    def switches(self) -> tuple[Switch, ...]:
        """Changes of code, and what they gained, as the steps tell, or else the trace."""
        lists = [step.get("switches") for step in self.steps]
        found = [one for some in lists if isinstance(some, list) for one in some if isinstance(one, dict)]
        return tuple(map(Switch.of, found or (self.trace.meta.get("switches", ()) if self.trace else ())))

    @property
    def command(self) -> str | None:
        """The line that repeats it."""
        words = self.config.get("command")
        return shlex.join(map(str, words)) if isinstance(words, list) and words else None

    @property
    def clock(self) -> Literal["wall", "wait"]:
        """What its times are: wall-clock times of steps, or waits for rounds where these alone were recorded."""
        return "wall" if self.steps and all("wall" in step for step in self.steps) else "wait"

    @property
    def rounds(self) -> Rounds:
        """Times by its clock, messages and exactness of its steps, NaN where unknown."""
        return self.timed_by(self.clock)

    def timed_by(self, clock: Literal["wall", "wait"]) -> Rounds:
        """The same by the clock that is asked for; a bare trace knows the waits only, until the last message."""
        if self.steps:
            names = (clock, "messages", "exact", "residual")
            columns = [[np.nan if step.get(name) is None else float(step[name]) for step in self.steps] for name in names]
            return Rounds(self.code, *(Sample(np.array(column)) for column in columns))
        assert self.trace is not None  # `read_run` refuses directories with neither
        times = self.trace.finish
        heard = np.isfinite(times)
        ends = np.where(heard, times, 0.0).max(axis=1)
        unknown = Sample(np.full(len(ends), np.nan))
        return Rounds(self.code, Sample(ends), Sample(heard.sum(axis=1)), unknown, unknown)

    @property
    def has_loss(self) -> bool:
        """Whether its loss can be drawn against the clock."""
        return self.clock == "wall" and any(step.get("loss") is not None for step in self.steps)


def read_run(path: str | os.PathLike[str]) -> Run:
    """The run in a directory; refused where it holds neither steps.jsonl nor trace.jsonl, or one that cannot be read."""
    folder = Path(path)
    if not folder.is_dir():
        raise Invalid(f"A run is a directory, as `unstraggle run -o` writes it, but {folder} is {_what(folder)}.")
    steps, notes = read_steps(folder / "steps.jsonl")
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
        found = parsed_json(path.read_text())
    except ValueError as error:
        raise Invalid(f"{path} is not JSON: {error}. Remove it to go on without it.") from None
    if not isinstance(found, dict):
        raise Invalid(f"{path} must hold a JSON object, but holds {type(found).__name__}. Remove it to go on without it.")
    return found


def _trace(path: Path) -> tuple[Trace | None, tuple[str, ...]]:
    if not path.exists():
        return None, ()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", TornTrace)
        trace = read(path)
    return trace, tuple(str(warning.message).removeprefix(f"{path}: ") for warning in said)
