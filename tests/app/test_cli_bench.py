"""`unstraggle bench`: ratios within one run. That there are numbers and what they are of, not how high they are."""

import json

import pytest

from unstraggle.app.bench import BENCHES, Result, exchange, kernels, rounds
from unstraggle.app.bench.timing import best_of, best_times, processor

from .test_cli import run


def test_a_ratio_is_speed_over_that_of_the_yardstick():
    assert Result("ours", 0.5, "theirs", 2.0).ratio == 4.0


def test_best_times_leaves_the_first_turn_out_and_keeps_the_best():
    turns = []

    def slow_once_and_at_first():
        turns.append(sum(range(10**6 if len(turns) in (0, 2) else 10)))

    assert best_times({"a": slow_once_and_at_first}, repeats=3)["a"] < 1e-3 and len(turns) == 4
    assert best_of(lambda: None) < 1e-3 and processor()


def test_list():
    listing = run("bench", "list").stdout
    assert [line.split()[0] for line in listing.splitlines()] == list(BENCHES) and max(map(len, listing.splitlines())) <= 80
    assert json.loads(run("bench", "list", "--json").stdout).keys() == BENCHES.keys()


@pytest.mark.parametrize("name", ["quantise", "accumulate", "decode", "simulate", "local"])
def test_each_measures_something(name, monkeypatch):
    monkeypatch.setattr(kernels, "LENGTH", 10**5)
    monkeypatch.setattr(rounds, "CHUNKS", 2)
    monkeypatch.setattr(exchange, "ROUNDS", 20)
    found = BENCHES[name].run(seed=1)
    assert found and all(one.seconds > 0 and one.yardstick_seconds > 0 and one.what and one.yardstick for one in found)


def test_results_have_date_hardware_and_versions(tmp_path):
    data = json.loads(run("bench", "decode", "--json", "-o", str(tmp_path)).stdout)
    assert json.loads((tmp_path / "bench.json").read_text()) == data
    assert {"date", "processor", "cores", "versions"} <= data["environment"].keys()
    assert [row["benchmark"] for row in data["results"]] == ["decode"] and data["results"][0]["ratio"] > 0
    assert data["command"][:3] == ["unstraggle", "bench", "decode"]


@pytest.mark.slow
def test_ranks_and_actors():
    data = json.loads(run("bench", "mpi", "ray", "--json").stdout)
    assert [row["benchmark"] for row in data["results"]] == ["mpi", "ray"]
