"""`unstraggle measure`: a trace that the next commands read, on every engine, and what is left after Ctrl+C."""

import inspect
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from unstraggle import trace
from unstraggle.engines.mpi import command

from ..commands import run

ONE_SLOW = "Heterogeneous([ShiftedExponential(1e4, 0.001), ShiftedExponential(1e4, 0.001), ShiftedExponential(1e4, 0.1)])"


def test_a_rehearsal_is_recorded_diagnosed_and_planned_for(tmp_path):
    out = str(tmp_path / "out")
    table = run("measure", "-n", "3", "--rounds", "30", "--latency", ONE_SLOW, "-o", out).stdout
    assert f"Trace: {out}/trace.jsonl\nNext:  unstraggle diagnose {out}" in table
    recorded = trace.read(f"{out}/trace.jsonl")
    assert len(recorded) == 30 and recorded.n == 3 and recorded.meta["code"] == "uncoded(3)"
    assert np.isfinite(recorded.arrival).all() and recorded.numbers[0] == 1  # the first round is not kept
    about = json.loads((tmp_path / "out/summary.json").read_text())
    first = about["table"][0]
    assert first["worker"] == 2 and first["slowest"] > 0.8 and first["factor"] > 2  # by 100, were nothing else running here
    assert 0.099 < first["median"] == pytest.approx(np.median(recorded.seconds[:, 2]))
    found = json.loads(run("diagnose", out, "--json").stdout)
    assert found["kind"] == "persistent" and found["workers"] == [2]
    assert (found["idle_share"], found["idle_share_ci95"]) == (about["idle_share"], about["idle_share_ci95"])
    assert json.loads(run("plan", "auto", out, "--json").stdout)["held_out"]


@pytest.mark.parametrize("command", [["measure", "-n", "3"], ["run", "uncoded(3)"]], ids=["measure", "run"])
def test_an_older_trace_outlives_what_cannot_start_and_is_replaced_by_what_can(command, tmp_path):
    trace.write(tmp_path / "trace.jsonl", trace.from_seconds(np.ones((5, 4))))
    before = (tmp_path / "trace.jsonl").read_text()
    assert run(*command, "--engine", "mpi", "-o", str(tmp_path), check=False).returncode == 2
    assert (tmp_path / "trace.jsonl").read_text() == before
    run(*command, "--rounds", "3", "-o", str(tmp_path))
    assert trace.read(tmp_path / "trace.jsonl").n == 3


@pytest.mark.slow
def test_images_are_trained_on_with_torch(tmp_path):
    data = json.loads(run("measure", "--task", "digits", "-n", "2", "--rounds", "4", "-o", str(tmp_path), "--json").stdout)
    assert data["rounds"] == 4 and data["workers"] == 2 and len(trace.read(tmp_path / "trace.jsonl")) == 4
    assert json.loads((tmp_path / "config.json").read_text())["options"]["task"] == "digits"


def test_ranks_of_an_mpi_job(tmp_path):
    options = ["measure", "--engine", "mpi", "-n", "2", "--rounds", "10", "-o", str(tmp_path), "--json"]
    line = command(2, "-m", "unstraggle", *options)
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rounds"] == 10 and len(trace.read(tmp_path / "trace.jsonl")) == 10


@pytest.mark.slow
def test_ray_actors(tmp_path):
    data = json.loads(run("measure", "--engine", "ray", "-n", "2", "--rounds", "10", "-o", str(tmp_path), "--json").stdout)
    assert data["rounds"] == 10 and len(trace.read(tmp_path / "trace.jsonl")) == 10


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_what_was_recorded_stays_when_it_is_interrupted(tmp_path, number, code):
    words = ["measure", "-n", "2", "--rounds", "100000", "--latency", "ShiftedExponential(1000, 0.002)", "-o", str(tmp_path)]
    started = subprocess.Popen([sys.executable, "-m", "unstraggle", *words], stderr=subprocess.PIPE, text=True)
    wait_until(lambda: any(file.stat().st_size for file in tmp_path.glob("trace.jsonl")))
    os.kill(started.pid, number)
    said = started.communicate()[1]
    rounds = len(trace.read(tmp_path / "trace.jsonl"))
    assert started.returncode == code and rounds >= 49
    assert said == f"unstraggle: interrupted; {rounds} rounds are recorded. Next: unstraggle diagnose {tmp_path}\n"
    assert json.loads(run("fit", str(tmp_path), "--json").stdout)["summary"]["workers"] == 2


def test_rounds_are_written_after_some_seconds_even_if_they_are_few(tmp_path, monkeypatch):
    from unstraggle import Master, codes, engines, latency, problems
    from unstraggle.runtime import recorder

    problem = problems.LeastSquares.split(np.eye(2), np.ones(2), parts=2)
    with Master(
        codes.uncoded(2), engines.Virtual(problem, latency.Exponential(1.0), rng=0), trace=tmp_path / "t.jsonl"
    ) as master:
        master.gradient(np.zeros(2))
        assert not (tmp_path / "t.jsonl").exists()
        monkeypatch.setattr(recorder, "SECONDS", 0.0)
        master.gradient(np.zeros(2))
        assert len(trace.read(tmp_path / "t.jsonl")) == 2


def test_tasks_last_long_enough_to_measure_the_machine(monkeypatch):
    """They took 0.05 ms, which measures the operating system."""
    from unstraggle import problems
    from unstraggle.app.cli.measure import measure
    from unstraggle.problems import repeated

    assert inspect.signature(measure).parameters["task_ms"].default == 20
    problem = problems.LeastSquares.split(np.eye(2), np.ones(2), parts=2)
    clock = iter(np.arange(100) * 5e-5)
    monkeypatch.setattr(repeated.time, "process_time", lambda: float(next(clock)))
    longer = repeated.lasting(problem, 0.02)
    assert longer.times == 400 and longer.only({1}).times == 400
    assert longer.grad(np.zeros(2), 1).tolist() == problem.grad(np.zeros(2), 1).tolist()
    assert repeated.lasting(problem, 0.0) is problem


def test_times_that_are_too_short_are_said_to_be(tmp_path, capsys):
    from unstraggle.app.cli.measure import _finish

    for seconds, said in ((5e-5, True), (5e-3, False)):
        times = seconds * (1 + np.random.default_rng(0).random((30, 3)))
        trace.write(tmp_path / "trace.jsonl", trace.from_seconds(times))
        _finish(tmp_path, {}, as_json=False)
        assert ("time is that of the operating system" in capsys.readouterr().out) is said


def wait_until(met):
    """However long it takes: pytest ends what hangs."""
    while not met():
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--task", "chess"], "Unknown task 'chess'. Known: logistic, least_squares, digits, mnist."),
        (["--engine", "virtual"], "Unknown engine 'virtual'."),
        (["-n", "1"], "--workers >= 2"),
        (["--rounds", "0"], "--rounds >= 1"),
        (["--latency", "Expnential(1)"], "Did you mean Exponential?"),
        (["--engine", "mpi"], "mpiexec -n 5 python -m unstraggle.engines.mpi"),
    ],
)
def test_bad_options(options, message, tmp_path):
    done = run("measure", *options, "-o", str(tmp_path), check=False)
    assert done.returncode == 2 and message in done.stderr and len(done.stderr.splitlines()) == 1
