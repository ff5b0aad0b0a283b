"""The demo as a new user meets it: what it says at once, on a busy machine, and at the end."""

import pickle
import time

import numpy as np
import pytest

import unstraggle as us
from unstraggle.app import comparison
from unstraggle.app.cli import train
from unstraggle.app.machines import Machines, OnMachines
from unstraggle.app.verdict import conclude
from unstraggle.errors import Invalid
from unstraggle.trace import from_seconds

from ..commands import run

MACHINES = Machines(8, unit=0.03, slow=1, factor=10.0)


def recorded(machines, rounds=60):
    """The rounds of waiting for all, as a quiet machine would record them."""
    return from_seconds([[machines.seconds(worker, step) for worker in range(machines.n)] for step in range(rounds)])


def row(scheme, code, seconds, to_target, exact=1.0):
    return {"scheme": scheme, "code": code, "wall": (seconds, 0.0), "to_target": to_target, "exact": exact}


def test_it_speaks_before_it_loads_anything_large(monkeypatch):
    def stop():
        raise Invalid("loading now")

    monkeypatch.setattr(train, "modules", stop)
    monkeypatch.setattr("os.getloadavg", lambda: (1000.0, 0.0, 0.0))
    done = run("demo", check=False)
    assert done.returncode == 2 and done.stderr.strip().endswith("loading now")
    said = " ".join(done.stdout.split())
    assert "8 workers, a different one slow each step (10 x). Loading PyTorch" in said
    assert "This machine is busy: 1000.0 processes run on" in said
    monkeypatch.setattr("os.getloadavg", lambda: (0.0, 0.0, 0.0))
    assert "busy" not in run("demo", check=False).stdout


def test_a_different_worker_is_slow_each_step_for_all_schemes():
    slow = [MACHINES.busy(step) for step in range(400)]
    assert slow == [pickle.loads(pickle.dumps(MACHINES)).busy(step) for step in range(400)]
    counts = np.bincount([worker for (worker,) in slow], minlength=8)
    assert counts.min() > 25 and counts.max() < 75
    same = Machines(8, unit=0.03, slow=2, factor=10.0, changing=False)
    assert {same.busy(step) for step in range(9)} == {(2, 6)}
    assert MACHINES.seconds(slow[0][0], 0) > 10 * 0.8 * 0.03


def test_a_late_worker_cannot_leave_its_task(monkeypatch):
    """The wait is within `grad`: there is nothing that a worker could be told meanwhile."""
    slept = []
    monkeypatch.setattr(time, "sleep", slept.append)
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)

    class Ones:
        k, dim, dtype = 8, 4, np.dtype(float)
        batches = type("Batches", (), {"sizes": (5,) * 8})

        def share(self, worker, parts):
            return self

        def grad(self, params, part, where, step):
            return np.ones(4)[where]

        def accumulate(self, params, part, where, step, coef, total):
            return coef * np.ones(4)[where]

    for worker in range(8):
        mine = OnMachines(Ones(), MACHINES).share(worker, {worker})
        mine.grad(np.zeros(4), worker, slice(0, 2), 7)
        mine.accumulate(np.zeros(4), worker, slice(None), 7, 2.0, None)
    whole = [MACHINES.seconds(worker, 7) for worker in range(8)]
    np.testing.assert_allclose(slept, [share * seconds for seconds in whole for share in (0.5, 1.0)])
    assert max(whole) > 5 * sorted(whole)[-2]


def test_the_library_says_of_the_demo_what_the_demo_says():
    """Old demo: the same two workers were slow in every step, and the diagnosis was to replace them."""
    found = us.diagnose(recorded(MACHINES))
    assert found.kind == "transient" and found.answer == "scheme" and found.workers == ()
    plan = us.plan.auto(recorded(MACHINES))
    assert plan.chosen is not None and plan.verdict == found.advice.verdict
    rows = [row("wait for all", "uncoded(8)", 0.3, (12.0, 1.0)), row("as advised", plan.chosen.name, 0.04, (4.0, 0.5))]
    agreed = conclude(rows, found)
    assert agreed.agree and agreed.lines[-1] == "They agree: coding is right here."
    assert agreed.lines[0] == f"diagnose:  {found.verdict}" and agreed.lines[1] == f"plan auto: {plan.verdict}"
    assert "87 % of a step saved" in agreed.lines[3] and "still in its old task" not in agreed.lines[3]  # it was predicted
    late = [rows[0], rows[1] | {"wall": (0.2, 0.01)}]
    assert (
        "33 % of a step saved" in conclude(late, found).lines[3] and "still in its old task" in conclude(late, found).lines[3]
    )
    rows[1]["to_target"] = (11.5, 1.0)
    assert conclude(rows, found).lines[-1] == "The advice is: code. What was measured does not resolve it."
    rows[1]["to_target"] = (18.0, 1.0)
    assert not conclude(rows, found).agree and conclude(rows, found).measured == "no code"


def test_no_agreement_where_the_same_workers_are_slow():
    same = us.diagnose(recorded(Machines(8, unit=0.03, slow=2, factor=10.0, changing=False)), schemes=False)
    rows = [row("wait for all", "uncoded(8)", 0.3, (12.0, 1.0)), row("repetition", "", 0.1, (4.0, 0.5))]
    rows.append(row("ignore", "", 0.01, (1.0, 0.1), exact=0.0))  # faster, but not a code with exact gradients
    told = conclude(rows, same)
    assert told.said == "no code" and told.measured == "code"
    assert told.lines[-1].startswith("They do not agree") and "repetition reaches" in " ".join(told.lines)


def test_a_busy_machine_shows_in_the_trace():
    trace = recorded(MACHINES)
    assert MACHINES.stretch(trace) == pytest.approx(1.0, abs=0.05)
    assert MACHINES.stretch(from_seconds(1.5 * trace.seconds)) > 1.4


def test_what_is_advised_is_trained_last_unless_it_was(monkeypatch, tmp_path):
    monkeypatch.setattr(train, "read_trace", lambda folder: recorded(MACHINES))
    chosen = comparison.entries(8, 1)
    about = {}
    rows = list(train._with_advice(list(chosen), about, tmp_path, lambda *_: None))
    advised = about["found"].advice.chosen
    assert rows[:-1] == list(chosen) and rows[-1].name == "as advised" and rows[-1].scheme is advised.plan
    assert rows[-1].code == advised.name and rows[-1].folder == "as-advised"
    known = [chosen[0], comparison.Entry("mine", advised.name)]
    assert list(train._with_advice(known, {}, tmp_path, lambda *_: None)) == known


def test_advice_needs_a_trace():
    done = run("train", "--advise", check=False)
    assert done.returncode == 2 and "--advise reads the trace" in done.stderr
