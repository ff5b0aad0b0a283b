"""`unstraggle bench`: ratios within one run. That there are numbers and what they are of, not how high they are."""

import json
from types import SimpleNamespace

import pytest

from unstraggle.app.bench import BENCHES, Result, exchange, kernels, rounds, timing
from unstraggle.app.bench.timing import best_of, best_times, processor

from ..commands import run


def test_a_ratio_is_speed_over_that_of_the_yardstick():
    assert Result("ours", 0.5, "theirs", 2.0).ratio == 4.0


@pytest.mark.parametrize("best", [lambda run: best_times({"a": run}, repeats=3)["a"], best_of])
def test_the_first_turn_is_left_out_and_the_best_is_kept(best, monkeypatch):
    clock, seconds = SimpleNamespace(now=0.0), [1.0, 4.0, 3.0, 5.0]

    def turn():
        clock.now += seconds.pop(0)

    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: clock.now, thread_time=lambda: clock.now))
    assert best(turn) == 3.0 and seconds == []


def test_processor_time_counts_where_it_is_shorter(monkeypatch):
    walls, processors = iter([0.0, 1.0, 2.0, 5.0]), iter([0.0, 1.0, 1.0, 3.0])
    clock = SimpleNamespace(perf_counter=lambda: next(walls), thread_time=lambda: next(processors))
    monkeypatch.setattr(timing, "time", clock)
    assert best_times({"a": lambda: None}, repeats=1) == {"a": 2.0} and processor()


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
