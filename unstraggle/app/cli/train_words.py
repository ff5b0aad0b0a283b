"""What train and demo print: at once what they are about to do, and at the end a table and what it says."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from ...threads import cores
from .output import console

BUSY = 0.75
"""Running processes per core before the start, over the last minute, from which on a machine counts as busy."""
STRETCHED = 1.2
"""Tasks that last this many times as long as they are made to say that the machine was busy."""


def announce(about: dict[str, Any], quiet: bool) -> dict[str, Any]:
    """Say what comes, before anything large is imported, and whether the machine is busy; gives its load."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    if not quiet:
        _say(f"Training on {about['task']} with {about['workers']} workers, {_who(about)}. Loading PyTorch ...")
        if load is not None and load > BUSY * cores():
            _say(f"This machine is busy: {load:.1f} processes run on {cores()} cores. Times will be longer, and differ less.")
    return {"load": load, "cores": cores()}


def print_results(about: dict[str, Any], out: Path | None) -> None:
    """The table, and what it says."""
    console().print(_table(about))
    _say_how_real_it_was(about["stretch"], about["most_stretch"])
    for line in about.get("conclusion", {}).get("lines", []):
        _say(line)
    if out:
        print(f"Written to {out}: loss.png, summary.json, and a folder for each scheme. Took {about['took']:.0f} s.")


def _say_how_real_it_was(waiting: float | None, most: float | None) -> None:
    """waiting, most: how many times as long as it was made to a task took, where all wait for whole shares, and at most."""
    if waiting is not None and waiting > STRETCHED:
        longer = f"tasks took {waiting:.1f} times as long as they were made to"
        _say(f"The machine was busy: {longer}. Run it again on a quiet one before you believe these times.")
    elif most is not None and most > STRETCHED:
        _say(f"With one scheme tasks took {most:.1f} times as long as they were made to: these cores are too few to play it.")


def _say(line: str) -> None:
    console().print(line, markup=False)


def _who(about: dict[str, Any]) -> str:
    if not about["slow"]:
        return "none is slow"
    which = "a different one" if about["changing"] else "the same one"
    if about["slow"] > 1:
        which = f"{about['slow']} {'different ones' if about['changing'] else 'of them, always the same'},"
    return f"{which} slow each step ({about['factor']:g} x)"


def _table(about: dict[str, Any]) -> Table:
    title = f"{about['task']}, {about['workers']} workers, {about['steps']} steps: {_who(about)}"
    caption = f"± 95 % over {about['repeats']} runs; target loss {about['target']:.3f}; MB per step"
    shown = Table(title=title, caption=caption, box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    shown.add_column("scheme", overflow="fold", min_width=18)
    for column in ("ms/step", "s to target", "speed-up", "final loss", "exact", "MB"):
        shown.add_column(column, justify="right", no_wrap=True)
    for row in about["rows"]:
        reached = _with_half(row["to_target"], 1) if row["to_target"] else "never"
        faster = f"{_with_half(row['speedup'], 1)} x" if row["speedup"] else "-"
        loss = _with_half(row["loss"], 3)
        exact = f"{100 * row['exact']:.3g} %"
        shown.add_row(row["scheme"], f"{1e3 * row['wall'][0]:.0f}", reached, faster, loss, exact, f"{row['megabytes']:.2f}")
    return shown


def _with_half(interval: tuple[float, float], digits: int) -> str:
    """A mean and half the width of its interval, where there is one: it takes two runs, and nothing is faster than itself."""
    mean, half = (f"{value:.{digits}f}" for value in interval)
    return mean if half == "nan" or interval[1] == 0 else f"{mean} ± {half}"
