"""unstraggle check."""

from __future__ import annotations

from typing import Annotated

import typer

from .output import busy, console, print_json, save_json
from .shared import AsJson, Folder, Seed, app

CodeText = Annotated[
    str, typer.Argument(metavar="CODE", help="A code, such as 'cyclic_repetition(40, s=9)', or a file of Code.save.")
]


@app.command()
def check(code: CodeText, seed: Seed = 0, as_json: AsJson = False, out: Folder = None) -> None:
    """Check that a code keeps its promises: rule against linear algebra, decoding, simulation against replay.

    Exit code 1 means that it does not.

    Example: unstraggle check "reed_solomon(8, s=3)"
    """
    from dataclasses import asdict

    from ...study.expression import find_code
    from ...testing.codes import check_code

    parsed = find_code(code)
    with busy(f"checking {parsed.name}", as_json):
        report = check_code(parsed, rng=seed)
    if out:
        save_json(out / "check.json", {"code": parsed.name, "seed": seed, **asdict(report)})
    if as_json:
        print_json(asdict(report))
        return
    console().print(str(report), markup=False)
    if out:
        print(f"Written to {out}: check.json")
