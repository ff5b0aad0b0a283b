"""The command line: simulate, reproduce, plan, and what is said to bad input."""

import json

import numpy as np
import pytest

from ..commands import run, run_process

GC = "cyclic_repetition(12, s=3)"


def test_simulate_as_table_and_as_json():
    table = run("simulate", GC, "--rounds", "2000").stdout
    assert "cyclic_repetition(12" in table and "100 %" in table and max(map(len, table.splitlines())) <= 80
    data = json.loads(run("simulate", GC, "uncoded(12)", "--rounds", "2000", "--seed", "3", "--json").stdout)
    assert [row["code"] for row in data["results"]] == [GC, "uncoded(12)"]
    assert data["results"][0]["messages"]["mean"] == 9 and data["results"][0]["rounds"] == 2000


def test_simulate_stops_early_when_precise():
    data = json.loads(run("simulate", GC, "--rounds", "1000000", "--precision", "0.01", "--json").stdout)
    assert data["results"][0]["rounds"] < 1_000_000


def test_reproduce_lists_and_writes(tmp_path):
    assert "mmc-fig1" in run("reproduce", "list").stdout
    assert "mmc-fig1" in json.loads(run("reproduce", "--json").stdout)
    done = run("reproduce", "mmc-fig1", "-o", str(tmp_path), "--rounds", "300")
    assert "GC-MMC-1 by span" in done.stdout
    assert {path.name for path in tmp_path.iterdir()} == {f"mmc-fig1.{ending}" for ending in ("png", "pdf", "csv", "json")}


@pytest.mark.parametrize(
    "args, words",
    [
        (("simulate", "cyclic_repetion(12, s=3)"), "Did you mean cyclic_repetition?"),
        (("simulate", GC, "--latency", "ShiftedExponential(rate=-1)"), "rate=-1"),
        (("simulate", GC, "--by", "luck"), 'by must be "rule"'),
        (("simulate", GC, "--rounds", "0"), "rounds >= 1"),
        (("simulate", GC, "--latency", "Expnential(1)"), "Unknown latency model 'Expnential'. Did you mean Exponential?"),
        (("reproduce", "fig99"), "Unknown figure 'fig99'. Known: mmc-fig1"),
        (("reproduce", "mc-fig1"), "Did you mean mmc-fig1?"),
        (("reproduce", "cagc-fig2", "--quick", "--full"), "needs --quick or --full"),
        (("bench", "quantize"), "Unknown benchmark 'quantize'. Did you mean quantise?"),
        (("plan", "blocks", "Exponential(1)", "-n", "4", "--dim", "10", "--method", "optmal"), "Did you mean optimal?"),
        (("fit", "."), "has no trace.jsonl. Record one: unstraggle measure"),
        (("simulate", GC, "--rounds", "10", "-o", "/dev/null/x"), "/dev/null is not a folder"),
        (("check", "fractional_repetition(40, s=8)"), "Use s=7 or s=9"),
        (("plan", "auto", "no-such-trace.jsonl"), "there is no file"),
        (("plan", "auto", "."), "has no trace.jsonl"),
        (("plan", "blocks", "Exponential(1)", "--dim", "10"), "Give --workers"),
        (("plan", "bits", "Exponential(1)", "-n", "4", "--dim", "10", "--budget", "20"), "needs --tau"),
        (("plan", "bits", "0.1,0.5", "--tau", "1", "--dim", "10", "--budget", "20"), "leave out --tau"),
        (("plan", "bits", "0.1,0.5", "--gamma", "much", "--dim", "10", "--budget", "20"), "--gamma needs numbers"),
        (("plan", "convergence", "0.1,0.5", "--target", "1", "--loss", "convex"), "strongly convex"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_bad_input_exits_with_two_and_one_line(args, words):
    done = run(*args, check=False)
    assert done.returncode == 2 and words in done.stderr and len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "args, code",
    [
        (("simulate", "cyclic_repetion(12, s=3)"), 2),
        (("simulate", "--nonsense"), 2),
        (("run", "uncoded(2)", "--engine", "virtual", "--chaos", "corrupt=1", "--on-shortfall", "raise"), 1),
        (("simulate", "uncoded(2)", "--rounds", "10"), 0),
        (("--version",), 0),
    ],
    ids=lambda value: "-".join(value[:2]) if isinstance(value, tuple) else "",
)
def test_a_process_ends_as_the_function_does(args, code):
    """So that the other tests may call the function."""
    done = run_process(*args, check=False)
    assert done.returncode == code and "Traceback" not in done.stderr
    assert done == run(*args, check=False)


def test_plan_from_a_trace(tmp_path):
    from unstraggle.trace import from_seconds, write

    path = tmp_path / "trace.jsonl"
    write(path, from_seconds(np.random.default_rng(1).exponential(size=(40, 4)) + 0.5))
    assert json.loads(run("plan", "auto", str(path), "--json").stdout)["held_out"]
    assert json.loads(run("plan", "blocks", str(path), "--dim", "100", "--json").stdout)["bound"] > 0
    wrong = run("plan", "blocks", str(path), "--dim", "100", "-n", "5", check=False)
    assert wrong.returncode == 2 and "The trace has 4 workers" in wrong.stderr
