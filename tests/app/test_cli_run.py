"""`unstraggle run`: real workers, real faults."""

import json

import pytest

from unstraggle import trace

from ..commands import run

PAPER = "ShiftedExponential(rate=20, shift=0.01)"


def test_run_on_local_workers(tmp_path):
    out = tmp_path / "out"
    done = run("run", "cyclic_repetition(4, s=1)", "--latency", PAPER, "--rounds", "6", "-o", str(out))
    assert "100 %" in done.stdout and "measured / theory" in done.stdout
    assert max(map(len, done.stdout.splitlines()[:-1])) <= 80
    assert len(trace.read(out / "trace.jsonl")) == 6
    assert len((out / "steps.jsonl").read_text().splitlines()) == 6
    events = json.loads((out / "chrome.json").read_text())["traceEvents"]
    assert {event["args"]["name"] for event in events if event["ph"] == "M"} == {"master", *(f"worker {w}" for w in range(4))}
    assert sum(event["name"] == "message" for event in events) >= 18
    assert json.loads((out / "summary.json").read_text())["ratio"] >= 1


@pytest.mark.parametrize("code", ["lagrange(6, load=3)", "uncoded_mmc(4, load=2)", "optimally_structured([0.1, 0.3])"])
def test_run_on_a_sampled_clock_as_json(code):
    data = json.loads(run("run", code, "--engine", "virtual", "--rounds", "5", "--deadline", "100", "--json").stdout)
    assert (data["code"], data["rounds"], data["engine"]) == (code, 5, "virtual")


def test_wall_clock_and_wait_are_two_columns(tmp_path):
    table = run("run", "uncoded(2)", "--rounds", "3", "-o", str(tmp_path)).stdout
    assert "seconds per step" in table and "wait for the round" in table and "mean worker idle" in table
    steps = [json.loads(line) for line in (tmp_path / "steps.jsonl").read_text().splitlines()]
    assert all(step["wall"] > step["wait"] > 0 and step["split"]["outside"] == pytest.approx(0, abs=1e-9) for step in steps)
    assert all(sum(step["split"].values()) == pytest.approx(step["wall"]) for step in steps)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["wall"]["mean"] > summary["wait"]["mean"]


def test_messages_that_vanish_turn_patience_on():
    done = run("run", "uncoded(3)", "--engine", "virtual", "--chaos", "drop=0.4", "--rounds", "8", "--json")
    data = json.loads(done.stdout)
    assert data["exact"] == 1.0 and data["patience"] == 10 and data["rounds"] == 8
    assert "unstraggle: Round 0 still waits after 1 s for workers" in done.stderr
    assert json.loads(run("run", "uncoded(3)", "--engine", "virtual", "--rounds", "1", "--json").stdout)["patience"] is None


def test_run_with_chaos():
    faults = "drop=0.05,corrupt=0.2,duplicate=0.2,kill=0.05"
    options = ("--rounds", "60", "--chaos", faults, "--patience", "5", "--problem", "least_squares", "--json")
    data = json.loads(run("run", "cyclic_repetition(4, s=2)", *options).stdout)
    assert data["exact"] == 1.0 and data["worst_error"] < 1e-9
    assert data["damaged"] > 0 and data["duplicates"] > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--engine", "cloud"], "Unknown engine 'cloud'. Known: local, ray, mpi, virtual."),
        (["--engine", "lokal"], "Unknown engine 'lokal'. Did you mean local?"),
        (["--problem", "chess"], "Unknown problem 'chess'. Known: logistic, least_squares."),
        (["--chaos", "drop=lots"], "--chaos takes NAME=NUMBER"),
        (["--chaos", "dropp=0.1"], "Unknown fault 'dropp'. Did you mean drop?"),
        (["--rounds", "0"], "--rounds must be at least 1"),
        (["--samples", "1"], "a sample for each of 2 partitions"),
        (["--workers", "5"], "has 2 workers, but --workers is 5"),
        (["--on-shortfall", "hope", "--engine", "virtual"], "on_shortfall is"),
    ],
)
def test_bad_options(options, message):
    done = run("run", "uncoded(2)", *options, check=False)
    assert done.returncode == 2
    assert message in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_run_can_be_repeated_from_its_config(tmp_path):
    first = ("run", "cyclic_repetition(4, s=1)", "--engine", "virtual", "--latency", PAPER, "--rounds", "4", "--seed", "5")
    data = json.loads(run(*first, "--on-shortfall", "skip", "-o", str(tmp_path), "--json").stdout)
    assert json.loads((tmp_path / "config.json").read_text())["options"]["on-shortfall"] == "skip"
    assert json.loads(run("--config", str(tmp_path / "config.json"), "run", "--json").stdout) == data


def test_a_run_that_cannot_finish_exits_with_one():
    faults = ("--chaos", "corrupt=1", "--on-shortfall", "raise", "--rounds", "2")
    done = run("run", "uncoded(2)", *faults, "--engine", "virtual", check=False)
    assert done.returncode == 1 and "do not determine the gradient" in done.stderr


def test_messages_are_fetched():
    given = ("uncoded_mmc(4, load=3)", "--engine", "virtual", "--latency", PAPER, "--rounds", "4", "--json")
    pushed, pulled = (json.loads(run("run", *given, "--transfer", how).stdout) for how in ("push", "pull"))
    assert pulled["transfer"] == "pull" and pulled["messages"] == 4 <= pushed["messages"]
    found = json.loads(run("simulate", "uncoded_mmc(4, load=3)", "--rounds", "50", "--transfer", "pull", "--json").stdout)
    assert found["results"][0]["messages"]["mean"] == 4 < found["results"][0]["notes"]["mean"]
    assert "push" in run("run", *given, "--transfer", "carry", check=False).stderr
