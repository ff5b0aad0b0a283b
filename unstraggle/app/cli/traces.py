"""Traces that commands read: a file, or the folder of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import Invalid
from .output import warnings_as_lines

if TYPE_CHECKING:
    from ...trace import Trace


def read_trace(path: Path, key: str | None = None) -> Trace:
    """The trace in a file or in a run's folder; a torn last line is left out with a line of warning."""
    from ...trace import read

    file = path / "trace.jsonl" if path.is_dir() else path
    if path.is_dir() and not file.exists():
        raise Invalid(f"{path} has no trace.jsonl. Record one: unstraggle measure -o {path}")
    with warnings_as_lines():
        return read(file, key=key)
