"""What a reproduction leaves behind: picture, table and data with the command that repeats it."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def save(out: Path, name: str, rows: Sequence[dict[str, Any]], figure: Figure, about: dict[str, Any]) -> None:
    """Write NAME.png, .pdf, .csv and .json into a folder."""
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.json").write_text(json.dumps({"figure": name, **about, "rows": list(rows)}, indent=1) + "\n")
    with (out / f"{name}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    for ending in ("png", "pdf"):
        figure.savefig(out / f"{name}.{ending}", dpi=200)
