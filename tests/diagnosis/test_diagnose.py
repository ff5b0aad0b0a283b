"""diagnose: the right verdict on labelled traces, what would help instead of or beside coding, and honest answers otherwise."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import unstraggle as us
from unstraggle import Invalid, diagnose
from unstraggle.trace import Trace, from_seconds, read, write

from ..commands import run
from ..straggling import cases

TRACES = Path(__file__).parents[3] / "shared" / "data" / "traces" / "bytedance"
CASES = cases()


def rng(seed=0):
    return np.random.default_rng(seed)


def noise(rounds=60, n=4, seed=0):
    return np.exp(0.02 * rng(seed).standard_normal((rounds, n)))


def test_the_labelled_set_is_large_and_even():
    counts = Counter(case.label for case in CASES)
    assert len(CASES) >= 40 and set(counts) == {"transient", "persistent", "data", "healthy"} and min(counts.values()) >= 10


@pytest.mark.parametrize("case", CASES, ids=str)
def test_labelled_traces(case):
    found = diagnose(case.trace, schemes=False)
    assert found.kind == case.label, str(found)
    assert found.idle_share_ci95[0] <= found.idle_share <= found.idle_share_ci95[1]
    if case.workers:
        assert found.workers == case.workers


@pytest.mark.skipif(not TRACES.exists(), reason="the ByteDance traces are not beside this repository")
def test_real_traces():
    se, ar, st = (diagnose(read(TRACES / "compute_seconds.npz", key=f"{job}_mb")) for job in ("SE", "AR", "ST"))
    assert (se.kind, se.answer) == ("data", "instead") and "balance the batches" in se.verdict.lower()
    assert (ar.kind, ar.workers, ar.answer) == ("persistent", (0,), "instead") and "replace worker 0" in ar.verdict.lower()
    assert (st.kind, st.answer) == ("healthy", "nothing") and "Nothing to do" in st.verdict
    assert 0.2 < se.idle_share < 0.27 and 0.17 < ar.idle_share < 0.21 and st.idle_share < 0.01


def test_what_is_lost_is_the_time_spent_waiting():
    found = diagnose(np.tile([1.0, 1.0, 1.0, 2.0], (30, 1)), schemes=False)
    assert found.idle_share == pytest.approx(1 - 1.25 / 2) and found.workers == (3,)
    assert [row.factor for row in found.table] == pytest.approx([1, 1, 1, 2]) and found.table[3].slowest == 1


def test_transient_stragglers_are_worth_coding():
    slow = np.where(rng(1).random((200, 6)) < 0.1, 8.0, 1.0) * noise(200, 6)
    found = diagnose(slow)
    assert (found.kind, found.answer) == ("transient", "scheme") and f"use {found.advice.chosen.name}" in found.action
    assert found.advice.held_out and found.advice.chosen.saving_ci95[0] > 0.3  # carry-over counted: by handing out pieces only
    fixed = [one.saving_ci95[0] for one in found.advice.candidates if one.exact and one.plan.code.handing is None]
    assert 0.1 < max(fixed) < 0.3, "a slow task that is not needed any more goes on into the next rounds, eight of them here"
    assert any(found.advice.chosen.name == row[0] for row in found.options())


def test_one_slow_machine_is_cheaper_to_replace_than_to_code_around():
    found = diagnose(noise() * [1.0, 1.0, 1.8, 1.0])
    assert found.answer == "instead" and "Replace worker 2" in found.verdict
    best, chosen = found.remedies[0], found.advice.chosen
    assert best.name == "replace" and best.saving == pytest.approx(1 - 1 / 1.8, abs=0.03)
    assert f"as it is, use {chosen.name}" in found.verdict and 0.3 < chosen.saving < best.saving
    coded = [one.saving for one in found.advice.candidates if not one.name.startswith("ignore")]
    assert best.saving > max(coded)
    fixed = [one for one in found.advice.candidates if one.exact and one.plan.code.handing is None]
    equal = [one.saving for one in fixed if not one.name.startswith("heterogeneity_aware")]
    assert max(equal) < 0.05, (
        "nobody gains who gives all the same: the slow worker is in a task of an earlier round all the time"
    )


def test_rebalancing_is_learned_on_other_rounds_than_it_is_scored_on():
    """Speeds that swap in the middle of the trace make it a bad idea; a remedy fitted to all rounds would not notice."""
    times = noise(100) * np.where(np.arange(100)[:, None] < 50, [1.0, 1.0, 1.0, 2.0], [2.0, 1.0, 1.0, 1.0])
    from unstraggle.diagnosis.remedies import remedies

    rebalance = next(remedy for remedy in remedies(times, "mixed", ()) if remedy.name == "rebalance")
    assert rebalance.saving < 0


def test_mixed_hardware_gets_data_in_proportion():
    found = diagnose(noise(80, 8) * np.repeat([1.0, 1.0, 2.0], [2, 1, 5]))
    assert found.kind == "persistent" and found.answer == "instead" and "in proportion to its speed" in found.action


def test_uneven_batches_are_balanced_instead():
    found = diagnose(from_seconds(rng(2).lognormal(0, 0.6, (80, 6, 4)) / 4, work=0.25))
    assert (found.kind, found.answer) == ("data", "instead") and found.remedies[0].bound
    assert "at most" in found.verdict and found.workers == ()


def test_where_no_code_helps_larger_steps_may():
    found = diagnose(1 + 0.05 * rng(3).standard_normal((120, 16)))
    assert (found.kind, found.answer) == ("transient", "instead")
    assert "No code helps: give workers 4 times the work" in found.verdict


def test_a_drifting_trace_is_not_predicted():
    drifting = np.where(rng(1).random((200, 6)) < 0.1, 8.0, 1.0) * np.linspace(1, 3, 200)[:, None]
    found = diagnose(drifting)
    assert found.answer == "cannot tell" and "drifts" in found.verdict


def test_slow_links_are_told_from_slow_machines():
    end = noise(40)
    way = 0.01 + np.where(np.arange(4) == 1, 1.0, 0.0) * (1 + 0.05 * rng(5).random((40, 4)))
    trace = Trace(np.zeros((40, 4, 1)), end[:, :, None], (end + way)[:, :, None], 4000.0)
    found = diagnose(trace, schemes=False)
    assert (found.kind, found.where, found.workers) == ("persistent", "link", (1,))
    assert any("links are the cause" in reason for reason in found.reasons)
    assert diagnose(Trace(trace.start, trace.end), schemes=False).kind == "healthy"


def test_slowness_that_lasts_is_said_to_last():
    slow = np.repeat(rng(1).random((30, 5)) < 0.15, 10, axis=0)
    found = diagnose(np.where(slow, 3.0, 1.0) * noise(300, 5), schemes=False)
    assert found.kind == "transient" and any("several rounds at a time" in reason for reason in found.reasons)


def test_a_worker_that_vanishes_now_and_then_is_reported():
    times = noise(100)
    times[::25, 2] = np.inf
    found = diagnose(times, schemes=False)
    assert found.kind == "healthy" and found.table[2].unfinished == 0.04
    assert any("finished nothing" in reason for reason in found.reasons)


def test_rounds_of_a_code_do_not_tell_how_late_anyone_is():
    times = noise(60, 5)
    times[:, 4] = np.inf
    times[np.arange(60), rng().integers(0, 4, 60)] = np.inf
    found = diagnose(from_seconds(times, meta={"code": "cyclic_repetition(5, s=2)"}))
    assert (found.kind, found.answer, found.workers) == ("unknown", "cannot tell", (4,))
    assert "uncoded(5)" in found.verdict and any("cyclic_repetition(5, s=2)" in reason for reason in found.reasons)
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["idle_share"] is None


def test_workers_that_are_cut_off_after_some_tasks_can_still_be_compared():
    end = np.cumsum(np.repeat(noise(40)[:, :, None] * np.array([1.0, 1.0, 1.0, 2.0])[:, None], 3, axis=2), axis=2)
    end[end > 3.2] = np.inf  # the slow one gets one task done
    found = diagnose(Trace(np.concatenate([np.zeros((40, 4, 1)), end[:, :, :-1]], axis=2), end), schemes=False)
    assert (found.kind, found.workers) == ("persistent", (3,))


def test_short_traces_get_a_kind_but_no_schemes():
    found = diagnose(noise(8) * [1.0, 1.0, 3.0, 1.0])
    assert found.kind == "persistent" and found.advice is None and "Codes were not tried" in found.verdict
    lone = diagnose(np.array([[1.0, 1.0, 2.0]]))
    assert lone.answer == "cannot tell" and "at least 5 rounds" in lone.verdict


def test_one_worker_cannot_be_compared():
    with pytest.raises(Invalid, match="at least 2"):
        diagnose(np.ones((30, 1)))


def test_command(tmp_path):
    path = tmp_path / "trace.jsonl"
    write(path, from_seconds(noise() * [1.0, 1.0, 1.8, 1.0]))
    done = run("diagnose", str(path), "-o", str(tmp_path / "out"))
    assert (
        "Persistent stragglers (worker 2)" in " ".join(done.stdout.split())
        and max(map(len, done.stdout.splitlines()[:-1])) <= 80
    )
    data = json.loads(run("diagnose", str(path), "--json").stdout)
    assert data == json.loads((tmp_path / "out/diagnosis.json").read_text()) and data["workers"] == [2]
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"diagnosis.json", "lateness.png", "schemes.png"}
    assert (tmp_path / "out/lateness.png").stat().st_size > 8_000
    missing = run("diagnose", str(tmp_path / "none.jsonl"), check=False)
    assert missing.returncode == 2 and "none.jsonl" in missing.stderr and "Traceback" not in missing.stderr
    assert "Example:" in run("diagnose", "--help").stdout


def test_it_is_public():
    assert us.diagnose is diagnose and us.Diagnosis.__name__ == "Diagnosis"


@pytest.mark.parametrize("rounds", [1, 2, 4])
def test_few_rounds_name_no_kind(rounds):
    found = diagnose(np.tile([1.0, 1.0, 1.0, 2.0], (rounds, 1)))
    assert (found.kind, found.answer, found.workers) == ("unknown", "cannot tell", ()) and found.advice is None
    assert found.verdict == (
        "Cannot tell what kind of stragglers there are, if any. Record at least 5 rounds that wait for all, and diagnose those."
    )
    assert f"in {rounds} round{'s' * (rounds > 1)} the workers were idle for 37.5 % of their time" in str(found)
    assert diagnose(np.tile([1.0, 1.0, 1.0, 2.0], (5, 1))).kind == "persistent"


def test_words_for_stragglers_that_change():
    slow = np.where(rng(1).random((200, 6)) < 0.1, 8.0, 1.0) * noise(200, 6)
    assert any(reason.startswith("a different worker is slow each round") for reason in diagnose(slow, schemes=False).reasons)
