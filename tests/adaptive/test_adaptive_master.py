"""Masters that change their code: the same gradients, one trace, and every change in trace, report, live page and log."""

import json
import logging
import urllib.request

import numpy as np
import pytest

import unstraggle as us
from unstraggle import AdaptiveMaster, Invalid
from unstraggle.app.live import LivePage
from unstraggle.app.report import report
from unstraggle.app.runs import read_run
from unstraggle.problems import LeastSquares

N, SAMPLES = 4, 64
A, Y = np.random.default_rng(0).normal(size=(SAMPLES, 3)), np.arange(float(SAMPLES))


def adaptive(speeds, **options):
    latency = us.latency.Replay(speeds)

    def engine(code):
        return us.engines.Virtual(LeastSquares.split(A, Y, parts=code.k), latency, rng=0, carry=True)

    return AdaptiveMaster(N, engine, samples=SAMPLES, **options)


@pytest.fixture(scope="module")
def changing(tmp_path_factory):
    """A run in which a worker becomes slow at round 24: its folder and its steps."""
    folder = tmp_path_factory.mktemp("changing")
    speeds = np.ones((60, N))
    speeds[24:, 2] = 5.0
    with adaptive(speeds, trace=folder / "trace.jsonl") as master:
        steps = [master.gradient(np.full(3, 0.1 * step)) for step in range(60)]
    (folder / "steps.jsonl").write_text("".join(json.dumps(step.to_dict()) + "\n" for step in steps))
    return folder, steps, master


def test_gradients_stay_those_of_one_process(changing):
    _, steps, master = changing
    whole = LeastSquares.split(A, Y, parts=1)
    for step in steps:
        assert step.exact and step.gradient == pytest.approx(whole.grad(np.full(3, 0.1 * step.step), 0), rel=1e-12)
    assert [step.round for step in steps] == list(range(60)), "rounds go on counting"
    assert steps[0].code == "uncoded(4)" and steps[-1].code == master.code.name and master.code.handing is not None


def test_the_wait_falls_and_each_change_says_what_was_predicted_and_measured(changing):
    _, steps, master = changing
    switch, measured = master.switches[:2]
    assert (steps[23].wait, steps[24].wait) == (1.0, 5.0) and steps[-1].wait < 1.5
    assert 24 < switch.step <= 24 + 16 and switch.was == "uncoded(4)" and "times as long" in switch.why
    assert measured.kind == "measured" and measured.step == switch.step + 8
    assert measured.measured == pytest.approx(switch.predicted, abs=0.1)
    told = {step.step: step.switches for step in steps if step.switches}
    assert [one["kind"] for one in told[switch.step]] == ["switch"] and told[measured.step][0] == measured.to_dict()


def test_the_trace_is_one_file_with_every_change(changing):
    folder, _, master = changing
    trace = us.trace.read(folder / "trace.jsonl")
    assert len(trace) == 60 and trace.numbers.tolist() == list(range(60)) and trace.work.shape == trace.end.shape
    assert [{k: v for k, v in one.items() if k != "round"} for one in trace.meta["switches"]] == [
        one.to_dict() for one in master.switches
    ]
    assert trace.seconds[:24] == pytest.approx(np.ones((24, N)))
    known = trace.seconds[40:][np.isfinite(trace.seconds[40:])]
    assert np.isin(known.round(6), [1.0, 5.0]).all(), "tasks of another size, but as many seconds of a unit of work"
    again = folder / "again.jsonl"
    us.trace.write(again, trace)
    copy = us.trace.read(again)
    assert copy.meta == trace.meta and np.array_equal(copy.work, trace.work) and np.array_equal(copy.seconds, trace.seconds)
    assert trace[50:].work.shape[0] == 10 and us.diagnose(trace, schemes=False).kind


def test_the_report_shows_the_changes_from_steps_or_from_the_trace_alone(changing):
    folder, _, master = changing
    page = report(read_run(folder))
    assert '<section id="switches">' in page and '<section id="schemes">' in page and "adaptive, " in page
    assert page.count(f"<td>{master.code.name}</td>") >= 2 and master.switches[0].why in page
    (folder / "bare").mkdir()
    (folder / "bare/trace.jsonl").write_text((folder / "trace.jsonl").read_text())
    assert '<section id="switches">' in report(read_run(folder / "bare"))


def test_the_live_page_shows_the_changes(changing):
    _, steps, master = changing
    with LivePage() as page:
        for step in steps:
            page.add(step)
        events = [event for event in page.state.snapshot()["events"] if event["kind"] == "switch"]
        assert [event["text"] for event in events] == [str(one) for one in master.switches]
        assert page.state.records[-1]["code"] == master.code.name
        assert 'id="code"' in urllib.request.urlopen(page.url, timeout=600).read().decode()


def test_the_log_says_what_and_how_long(caplog):
    speeds = np.tile([1.0, 1.0, 1.0, 4.0], (20, 1))
    with caplog.at_level(logging.INFO, "unstraggle"), adaptive(speeds) as master:
        for step in range(10):
            master.gradient(np.zeros(3), step)
    said = [record.getMessage() for record in caplog.records if "Planning took" in record.getMessage()]
    assert len(said) == 1 and said[0].startswith(f"Step 8: uncoded(4) -> {master.code.name}: the first rounds; it should save")


def test_one_may_change_the_code_oneself_and_other_workers_are_refused():
    with adaptive(np.ones((20, N))) as master:
        master.gradient(np.zeros(3))
        master.switch(us.codes.fractional_repetition(4, s=1))
        after = master.gradient(np.zeros(3))
        assert after.code == "fractional_repetition(4, s=1)" and after.switches[0]["why"] == "as you say"
        with pytest.raises(Invalid, match="has 4 workers"):
            master.switch(us.codes.uncoded(5))
    with pytest.raises(Invalid, match="worth=2"):
        AdaptiveMaster(4, None, worth=2)


def test_rounds_of_other_work_need_a_change_that_says_so(tmp_path):
    path = tmp_path / "trace.jsonl"
    us.trace.write(path, us.trace.from_seconds([[1.0, 2.0]]))
    with pytest.raises(Invalid, match="share workers and work"):
        us.trace.append(path, us.trace.from_seconds([[1.0, 2.0]], work=0.5))
