"""unstraggle fit."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from .app import AsJson, Folder, Seed, app


@app.command()
def fit(
    trace: Annotated[Path, typer.Argument(metavar="TRACE", help="Recorded rounds: .jsonl, .parquet or .npz.")],
    key: Annotated[str | None, typer.Option(help="Array of an .npz file.")] = None,
    seed: Seed = 0,
    as_json: AsJson = False,
    out: Folder = None,
) -> None:
    """Fit latency models to recorded rounds, and say how uneven they are and whether any model fits.

    Example: unstraggle fit trace.jsonl -o out
    """
    from ..latency import fit as run
    from ..trace import read

    with Console(stderr=True, quiet=as_json).status(f"Fitting {trace}"), warnings.catch_warnings(record=True) as said:
        recorded = read(trace, key=key)
        summary, found = recorded.summary(), run(recorded, rng=seed)
    for warning in said:  # such as a last line that is incomplete
        print(f"unstraggle: {warning.message}", file=sys.stderr)
    about = {"trace": str(trace), "key": key, "seed": seed, "summary": summary.to_dict(), "fit": found.to_dict()}
    if out:
        out.mkdir(parents=True, exist_ok=True)
        (out / "fit.json").write_text(json.dumps(about, indent=1) + "\n")
        found.plot().savefig(out / "fit.png", dpi=150)
    print(json.dumps(about) if as_json else f"{summary}\n\n{found}")
    if out and not as_json:
        print(f"Written to {out}: fit.json, fit.png")
