"""Every command, once as a process and once more in this one: what it prints as a table and as JSON, and what it writes."""

import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from unstraggle import Invalid
from unstraggle.app.cli import app
from unstraggle.app.cli.reproduce import _table
from unstraggle.papers import FIGURES
from unstraggle.trace import from_seconds, write

from ..commands import run, run_launched
from ..pictures import is_a_picture
from .test_cli import GC
from .test_cli_tree import leaves

ROOT = Path(__file__).parents[2]
MODEL = "ShiftedExponential(rate=10, shift=0.01)"


class Case(NamedTuple):
    """Arguments, words of the table, keys of the JSON, the files of -o; same: the file that holds what --json prints."""

    args: tuple[str, ...]
    words: str
    keys: set[str]
    files: set[str]
    same: str | None = None


PLAN = {"plan.json", "plan.png"}
CASES = {
    "simulate": Case(
        ("simulate", GC, "--rounds", "500"), "100 %", {"results"}, {"summary.json", "rounds.npz", "times.png"}, "summary.json"
    ),
    "check": Case(("check", GC), "keeps its promises", {"worst_error"}, {"check.json"}),
    "plan auto": Case(("plan", "auto", MODEL, "-n", "4", "--rounds", "500"), "wait for all", {"verdict"}, PLAN, "plan.json"),
    "plan blocks": Case(
        ("plan", "blocks", MODEL, "-n", "6", "--dim", "1000"), "coordinates tolerate", {"bound"}, PLAN, "plan.json"
    ),
    "plan orders": Case(
        ("plan", "orders", MODEL, "-n", "6", "--load", "3", "--rounds", "500"), "messages", set(), PLAN, "plan.json"
    ),
    "plan redundancy": Case(("plan", "redundancy", MODEL, "-n", "6"), "Use fractional_repetition", {"cost"}, PLAN, "plan.json"),
    "plan bits": Case(
        ("plan", "bits", "0.1,0.5,0.9", "--budget", "18", "--dim", "1000"), "p = 0.1: 10 bits", {"bits", "p"}, PLAN, "plan.json"
    ),
    "plan deadline": Case(
        ("plan", "deadline", MODEL, "-n", "4", "--dim", "100", "--budget", "24"), "strongly convex", {"cost"}, {"plan.json"}
    ),
    "plan convergence": Case(
        ("plan", "convergence", MODEL, "-n", "4", "--tau", "0.1", "--target", "0.01"), "steps to 0.01", {"steps"}, {"plan.json"}
    ),
    "fit": Case(("fit", "a"), "idle, waiting for it", {"summary", "fit"}, {"fit.json", "fit.png"}, "fit.json"),
    "diagnose": Case(
        ("diagnose", "a"), "stragglers", {"verdict"}, {"diagnosis.json", "lateness.png", "schemes.png"}, "diagnosis.json"
    ),
    "run": Case(
        ("run", "uncoded(2)", "--engine", "virtual", "--rounds", "4"),
        "seconds per step",
        {"code", "wall", "wait"},
        {"config.json", "summary.json", "steps.jsonl", "trace.jsonl", "chrome.json"},
        "summary.json",
    ),
    "measure": Case(
        ("measure", "-n", "2", "--rounds", "6", "--seed", "3"),
        "Next:  unstraggle diagnose",
        {"idle_share", "table", "next"},
        {"config.json", "summary.json", "trace.jsonl"},
    ),
    "report": Case(("report", "a"), "Written", {"report"}, {"report.html"}),
    "compare": Case(("compare", "a", "b"), "time / first", {"runs", "page"}, {"compare.html"}),
    "reproduce": Case(
        ("reproduce", "bcgc-fig3", "--quick"),
        "optimal block sizes",
        set(),
        {f"bcgc-fig3.{e}" for e in ("png", "pdf", "csv", "json")},
    ),
    "bench": Case(("bench", "decode"), "sum 8 messages", {"results", "environment"}, {"bench.json"}),
}
ELSEWHERE = {"train", "demo"}  # they take longer: tests/app/test_cli_train.py


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two runs, as folders with a trace."""
    folder = tmp_path_factory.mktemp("runs")
    for name, scale in (("a", 1.0), ("b", 2.0)):
        seconds = scale * (np.random.default_rng(1).exponential(0.1, (40, 4)) + 0.05)
        write(folder / name / "trace.jsonl", from_seconds(seconds, meta={"code": f"uncoded(4) {name}"}))
    return folder


def test_no_command_is_forgotten():
    assert CASES.keys() | ELSEWHERE == {" ".join(path) for path, _ in leaves(app)}


@pytest.mark.parametrize("name", CASES)
def test_table_json_and_files(name, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    case = CASES[name]
    done = run_launched(*case.args, "-o", str(tmp_path / "new/out"))
    assert case.words in done.stdout and done.stderr == ""
    paste = "unstraggle "  # a command to paste stands on one line, however long
    table = [line for line in done.stdout.splitlines() if str(tmp_path) not in line and not line.startswith(paste)]
    assert max(map(len, table), default=0) <= 80
    assert {path.name for path in (tmp_path / "new/out").iterdir()} == case.files
    assert all(is_a_picture(path) for path in (tmp_path / "new/out").glob("*.png"))
    written = {path.name: json.loads(path.read_text()) for path in (tmp_path / "new/out").glob("*.json")}
    done = run(*case.args, "--json", *(() if case.same else ("-o", str(tmp_path / "again"))))
    data = json.loads(done.stdout)
    assert done.stderr == "" and data and (not case.keys or case.keys <= set(data))
    assert case.same is None or data == written[case.same]


@pytest.mark.parametrize("name", CASES)
def test_a_folder_that_cannot_be_made_is_refused_before_the_work(name, folder, monkeypatch):
    monkeypatch.chdir(folder)
    done = CliRunner().invoke(app, [*CASES[name].args, "-o", "/dev/null/x"])
    assert isinstance(done.exception, Invalid) and "/dev/null is not a folder" in str(done.exception)


@pytest.mark.parametrize("name", FIGURES)
def test_the_table_of_every_figure_fits_80_columns(name):
    """From the rows that papers/ holds, since some figures take minutes."""
    rows = json.loads(next(ROOT.glob(f"papers/*/{name}.json")).read_text())["rows"]
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(_table(FIGURES[name].table(rows), FIGURES[name].title))
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 80 and "…" not in text


def test_pictures_of_coco_are_asked_for_by_the_figure_that_shows_them(tmp_path):
    def refused(*args):
        return str(CliRunner().invoke(app, ["reproduce", *args, "-o", str(tmp_path / "out")]).exception)

    assert "Leave --coco out, or ask for cagc-fig4" in refused("mmc-fig1", "--coco", str(tmp_path))
    assert "has no" in refused("cagc-fig4", "--coco", str(tmp_path)) and not (tmp_path / "out").exists()


def test_long_work_shows_a_bar_on_a_terminal():
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "unstraggle", "simulate", GC, "--rounds", "400000"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, text=True, env=os.environ | {"TERM": "xterm"})
    os.close(theirs)
    shown = os.read(ours, 100_000).decode()
    os.close(ours)
    assert done.returncode == 0 and "━" in shown and GC in shown and "100 %" in done.stdout
