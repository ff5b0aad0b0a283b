"""unstraggle check."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from .app import AsJson, Seed, app

CodeText = Annotated[str, typer.Argument(metavar="CODE", help="A code, such as 'cyclic_repetition(40, s=9)'.")]


@app.command()
def check(code: CodeText, seed: Seed = 0, as_json: AsJson = False) -> None:
    """Check that a code keeps its promises: rule against linear algebra, decoding, simulation against replay.

    Example: unstraggle check "reed_solomon(8, s=3)"
    """
    from dataclasses import asdict

    from ..expression import parse_code
    from ..testing import check_code

    parsed = parse_code(code)
    report = check_code(parsed, rng=seed)
    print(json.dumps(asdict(report)) if as_json else report)
