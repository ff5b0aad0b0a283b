"""The page of benchmarks: every number from benchmarks/results/*.json, every description from the module that measured it."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from . import text
from .results import tables

ABOUT = ("benchmark", "repeat", "date", "hardware", "versions")


def write(benchmarks: Path, out: Path) -> None:
    """Write OUT/benchmarks.md, with the raw files beside it."""
    found = sorted((benchmarks / "results").glob("*.json"))
    for file in found:
        text.save(out / "benchmarks" / file.name, file.read_text(encoding="utf-8"))
    text.save(out / "benchmarks.md", page(benchmarks, found))


def page(benchmarks: Path, found: Sequence[Path]) -> str:
    """An overview, and a section a result."""
    results = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in found}
    said = {name: description(benchmarks / f"{name}.py") for name in results}
    rows = [[f"[{name}](#benchmark-{name})", said[name], _day(one), one["hardware"]] for name, one in results.items()]
    overview = text.table(["benchmark", "what", "date", "hardware"], rows)
    return "\n\n".join([overview, *(section(name, one, said[name]) for name, one in results.items())]) + "\n"


def description(module: Path) -> str:
    """The first paragraph of the module's docstring."""
    doc = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
    return " ".join(doc.split("\n\n")[0].split())


def section(name: str, result: Mapping[str, Any], said: str) -> str:
    """Description, how and where it was measured, and all that it holds."""
    versions = ", ".join(f"{package} {version}" for package, version in result.get("versions", {}).items())
    about = [
        f"- repeat: `{result['repeat']}`",
        f"- measured: {_day(result)} on {result['hardware']}" + (f", with {versions}" if versions else ""),
        f"- raw numbers: [{name}.json](generated/benchmarks/{name}.json)",
    ]
    body = {key: value for key, value in result.items() if key not in ABOUT}
    return "\n\n".join([f"(benchmark-{name})=\n## {name}", said, "\n".join(about), *tables(body)])


def _day(result: Mapping[str, Any]) -> str:
    """The date, with hyphens that do not break."""
    return str(result["date"]).replace("-", "\u2011")
