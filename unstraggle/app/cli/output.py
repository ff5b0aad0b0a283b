"""What commands print and write: JSON, tables of 80 columns, progress bars, and warnings as lines."""

from __future__ import annotations

import json
import logging
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

Told = Callable[[str, int, int], None]


def print_json(data: Any) -> None:
    """On one line."""
    print(json.dumps(plain(data), allow_nan=False))


def save_json(path: Path, data: Any) -> None:
    """Write it, with the folder that it needs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(plain(data), indent=1, allow_nan=False) + "\n")


def plain(values: Any) -> Any:
    """For JSON, which has neither nan nor infinity: null stands for both.

    >>> plain({"a": (1.0, float("nan"))})
    {'a': [1.0, None]}
    """
    if isinstance(values, dict):
        return {key: plain(value) for key, value in values.items()}
    if isinstance(values, list | tuple):
        return [plain(value) for value in values]
    return None if isinstance(values, float) and not abs(values) < float("inf") else values


def console() -> Console:
    """For tables: as wide as the terminal, 80 columns where there is none."""
    return Console(highlight=False)


@contextmanager
def progress_bars(quiet: bool) -> Iterator[Told]:
    """Progress bars on the error stream, one for each label; gives the function that moves them. A total of 0: not known.

    What the master warns of, such as whom a round waits for, stands below the bar until it moves; without bars it is a line.
    """
    where = Console(stderr=True)
    tasks: dict[str, TaskID] = {}
    columns = TextColumn("{task.description}"), BarColumn(20), TimeElapsedColumn(), TimeRemainingColumn()
    with Bars(*columns, console=where, transient=True, disable=quiet or not where.is_terminal) as bars, said_to(bars.say):

        def move(label: str, done: int, total: int) -> None:
            if label not in tasks:
                tasks[label] = bars.add_task(label[:36], total=total or None)
            bars.said = ""
            bars.update(tasks[label], completed=done, total=total or None)

        yield move


class Bars(Progress):
    """Progress bars with a line of text below them."""

    said = ""

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        if self.said:
            yield Text(self.said, style="yellow")

    def say(self, text: str) -> None:
        """Show it; where there are no bars to show it with, print it."""
        self.said = text
        if self.disable:
            print(f"unstraggle: {text}", file=sys.stderr)
        else:
            self.refresh()


@contextmanager
def said_to(say: Callable[[str], None]) -> Iterator[None]:
    """Give the warnings of the logger "unstraggle" to a function."""
    handler, log = logging.Handler(logging.WARNING), logging.getLogger("unstraggle")
    handler.emit = lambda record: say(record.getMessage())  # type: ignore[method-assign]
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


@contextmanager
def busy(label: str, quiet: bool) -> Iterator[None]:
    """A bar that moves while something takes as long as it takes."""
    with progress_bars(quiet) as told:
        told(label, 0, 0)
        yield


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Warnings, such as that a trace's last line is incomplete, as one line each on the error stream."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", UserWarning)
        yield
    for text in dict.fromkeys(str(warning.message) for warning in said):
        print(f"unstraggle: {text}", file=sys.stderr)
