"""The command line, run as a process."""

import json
import subprocess
import sys

import numpy as np
import pytest

GC = "cyclic_repetition(12, s=3)"


def run(*args, check=True):
    done = subprocess.run([sys.executable, "-m", "unstraggle.cli", *args], capture_output=True, text=True, timeout=120)
    if check:
        assert done.returncode == 0, done.stderr
    return done


def test_simulate_as_table_and_as_json():
    table = run("simulate", GC, "--rounds", "2000").stdout
    assert "cyclic_repetition(12" in table and "100 %" in table and max(map(len, table.splitlines())) <= 80
    data = json.loads(run("simulate", GC, "uncoded(12)", "--rounds", "2000", "--seed", "3", "--json").stdout)
    assert [row["code"] for row in data["results"]] == [GC, "uncoded(12)"]
    assert data["results"][0]["messages"]["mean"] == 9 and data["results"][0]["rounds"] == 2000


def test_simulate_writes_its_results(tmp_path):
    run("simulate", GC, "--rounds", "500", "--by", "span", "--latency", "Exponential(rate=1)", "-o", str(tmp_path / "new"))
    assert json.loads((tmp_path / "new/summary.json").read_text())["by"] == "span"
    assert np.load(tmp_path / "new/rounds.npz")["time_0"].shape == (500,)
    assert (tmp_path / "new/times.png").stat().st_size > 10_000


def test_simulate_stops_early_when_precise():
    data = json.loads(run("simulate", GC, "--rounds", "1000000", "--precision", "0.01", "--json").stdout)
    assert data["results"][0]["rounds"] < 1_000_000


def test_check_accepts_good_codes():
    assert "keeps its promises" in run("check", GC).stdout
    assert json.loads(run("check", GC, "--json").stdout)["worst_error"] < 1e-9


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
        (("reproduce", "fig99"), "Unknown figure 'fig99'. Known: mmc-fig1"),
        (("simulate", GC, "--rounds", "10", "-o", "/dev/null/x"), "Not a directory"),
        (("check", "fractional_repetition(40, s=8)"), "Use s=7 or s=9"),
        (("plan", "auto", "no-such-trace.jsonl"), "there is no file"),
        (("plan", "blocks", "Exponential(1)", "--dim", "10"), "Give --workers"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_bad_input_exits_with_two_and_one_line(args, words):
    done = run(*args, check=False)
    assert done.returncode == 2 and words in done.stderr and "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


MODEL = "ShiftedExponential(rate=10, shift=0.01)"


@pytest.mark.parametrize(
    "args, words",
    [
        (("auto", MODEL, "-n", "4", "--rounds", "500"), "wait for all"),
        (("blocks", MODEL, "-n", "6", "--dim", "1000"), "coordinates tolerate"),
        (("orders", MODEL, "-n", "6", "--load", "3", "--rounds", "500"), "messages"),
        (("redundancy", MODEL, "-n", "6"), "Use fractional_repetition"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_plan_prints_a_table_and_writes_a_picture(args, words, tmp_path):
    done = run("plan", *args, "-o", str(tmp_path))
    assert words in done.stdout
    assert json.loads((tmp_path / "plan.json").read_text()) and (tmp_path / "plan.png").stat().st_size > 8_000
    assert json.loads(run("plan", *args, "--json").stdout) == json.loads((tmp_path / "plan.json").read_text())


def test_plan_from_a_trace(tmp_path):
    from unstraggle.trace import from_seconds, write

    path = tmp_path / "trace.jsonl"
    write(path, from_seconds(np.random.default_rng(1).exponential(size=(40, 4)) + 0.5))
    assert json.loads(run("plan", "auto", str(path), "--json").stdout)["held_out"]
    assert json.loads(run("plan", "blocks", str(path), "--dim", "100", "--json").stdout)["bound"] > 0
    wrong = run("plan", "blocks", str(path), "--dim", "100", "-n", "5", check=False)
    assert wrong.returncode == 2 and "The trace has 4 workers" in wrong.stderr


def test_help_has_an_example_for_every_command():
    for command in ("simulate", "check", "reproduce", "fit"):
        assert "Example:" in run(command, "--help").stdout
    for command in ("auto", "blocks", "orders", "redundancy"):
        assert "Example:" in run("plan", command, "--help").stdout
    assert run(check=False).stdout.count("Simulate rounds") == 1


def test_import_is_quick_and_compiles_nothing():
    code = "import sys, unstraggle; print('numba' in sys.modules, 'matplotlib' in sys.modules, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["False", "False", "False"]
