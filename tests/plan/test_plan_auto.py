"""plan.auto: ranks beside wait-for-all on held-out rounds, and can say that coding does not help or that it cannot tell."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from unstraggle import Invalid
from unstraggle.latency import Bernoulli, FixedCost, Pareto, ShiftedExponential, TwoSpeed
from unstraggle.plan import auto
from unstraggle.plan.cause import cause
from unstraggle.trace import from_seconds, read

TRACES = Path(__file__).parents[3] / "shared" / "data" / "traces" / "bytedance"


def rng(seed=0):
    return np.random.default_rng(seed)


def changing(rounds=200, n=6, tasks=1, slow=8.0, p=0.15):
    """In every round other workers are slow, in all their tasks."""
    random = rng(1)
    speed = np.where(random.random((rounds, n, 1)) < p, slow, 1.0)
    return from_seconds(speed * (1 + 0.02 * random.random((rounds, n, tasks))) / tasks, work=1 / tasks)


def by_data(rounds=200, n=6, tasks=4):
    """Every task has its own size; workers are equal."""
    return from_seconds(rng(2).lognormal(0, 0.6, (rounds, n, tasks)) / tasks, work=1 / tasks)


def persistent(rounds=200, n=4):
    """Worker 2 is always slow."""
    return from_seconds(
        (1 + 0.05 * rng(3).random((rounds, n, 2))) * np.where(np.arange(n) == 2, 1.4, 1.0)[:, None] / 2, work=0.5
    )


def test_causes_are_told_apart():
    assert cause(persistent()).kind == "persistent" and cause(persistent()).slowest == 2
    assert cause(changing(tasks=4)).kind == "changing" and cause(changing(tasks=4)).tasks < 0.1
    assert cause(changing(tasks=1)).kind == "changing" and cause(changing(tasks=1)).tasks is None
    assert cause(by_data()).kind == "tasks"
    assert cause(from_seconds(1 + 0.001 * rng().random((50, 5)))).kind == "even"
    mixed = from_seconds(rng(4).lognormal(0, 0.2, (400, 5, 1)) * np.array([1.0, 1.0, 1.0, 1.0, 1.5])[:, None])
    assert cause(mixed).kind == "mixed"
    for trace in (persistent(), changing(), by_data(), mixed):
        assert len(str(cause(trace))) > 30


def test_workers_that_take_turns_in_being_slow_are_worth_coding():
    advice = auto(changing())
    assert advice.verdict.startswith("Use ") and advice.held_out and advice.chosen.exact
    assert advice.chosen.saving_ci95[0] > 0.1 and advice.chosen.saving_ci95[1] < 1
    names = [candidate.name for candidate in advice.candidates]
    assert {"wait for all", "ignore the slowest", "fractional_repetition(6, s=1)"} <= set(names)
    assert [c.time for c in advice.candidates] == sorted(c.time for c in advice.candidates)
    waiting = next(c for c in advice.candidates if c.name == "wait for all")
    assert waiting.saving == 0 and waiting.time == pytest.approx(changing().seconds[100:].max(axis=1).mean())
    assert not next(c for c in advice.candidates if c.name == "ignore the slowest").exact


def test_data_that_differ_are_scored_as_data():
    """Taken for worker speeds the same times promise more: a copy of slow data is as slow elsewhere."""
    advice, fooled = auto(by_data()), auto(from_seconds(by_data().seconds))
    assert any("data are the cause" in reason for reason in advice.reasons)
    assert any("balance the batches" in reason for reason in advice.reasons)

    def best(answer):
        return max(c.saving for c in answer.candidates if c.exact and c.plan.code.handing is None)

    assert best(advice) < 0.7 * best(fooled)
    assert advice.chosen.plan.code.handing is not None, "slow data can be done elsewhere while their worker does the rest"
    repetition = next(c for c in advice.candidates if c.name == "fractional_repetition(6, s=1)")
    assert repetition.saving < -0.5, "both workers of a group wait for the same data"


def test_one_slow_worker_is_named():
    advice = auto(persistent())
    assert any("replace worker 2" in reason for reason in advice.reasons) and advice.cause.slowest_share == 1


def test_traces_that_drift_or_do_not_scale_are_not_predicted():
    drifting = changing().seconds * np.linspace(1, 3, 200)[:, None]
    assert auto(from_seconds(drifting)).verdict.startswith("Cannot predict: the trace drifts")
    curved = from_seconds(rng(5).lognormal(0, 0.05, (60, 4, 3)) * np.array([1.0, 2.0, 3.0]), work=1 / 3)
    assert "not proportional to work" in auto(curved).verdict
    assert auto(curved).chosen is None


def test_equal_workers_need_no_code():
    for source in (from_seconds(np.ones((40, 5))), from_seconds(1 + 0.01 * rng().random((40, 5)))):
        assert auto(source).verdict == "Coding does not help here: wait for all."
    assert auto(ShiftedExponential(rate=100, shift=1), n=6, rounds=400).chosen is None


def test_models_with_rare_slow_workers():
    advice = auto(TwoSpeed(fast=1, slow=20, p=0.1), n=8, rounds=300)
    assert advice.chosen.saving > 0.4 and not advice.held_out and advice.cause is None
    assert "saves" in str(advice) and "scheme" in str(advice)


def test_workers_that_may_never_answer():
    advice = auto(Bernoulli(p=0.05), n=4, rounds=300)
    assert advice.chosen.plan.code.load == 4, "waiting for all never ends; only codes on which any one worker suffices do"
    heavy = auto(Pareto(shape=0.9), n=6, rounds=300)
    assert heavy.chosen is not None


def test_a_slow_link_prefers_fewer_messages():
    latency = ShiftedExponential(rate=10, shift=0.01)
    free = auto(latency, n=6, rounds=300)
    slow = auto(latency, n=6, rounds=300, dim=1_000_000, bandwidth=8e6)

    def best(advice):
        fixed = [c for c in advice.candidates if c.exact and c.plan.code.handing is None]  # others send one sum a worker
        return next(c for c in fixed if len(c.plan.code.blocks) == 1)

    assert best(free).messages > 4 and best(slow).messages < 4
    assert slow.candidates[0].time > free.candidates[0].time + 0.3, "one gradient takes half a second"
    small = auto(latency, n=6, rounds=300, dim=1000, max_bytes=6 * 4000)
    assert all(c.volume <= 6 for c in small.candidates) and any(c.name == "wait for all" for c in small.candidates)


def test_one_worker():
    advice = auto(ShiftedExponential(rate=1), n=1, rounds=500)
    assert advice.verdict == "Coding does not help here: wait for all." and len(advice.candidates) == 1


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: auto(ShiftedExponential(1)), "number of workers"),
        (lambda: auto(changing(), n=7), "6 workers"),
        (lambda: auto("trace.jsonl", n=3), "but got 'trace.jsonl'"),
        (lambda: auto(np.ones((5, 3))), "20 rounds"),
        (lambda: auto(np.full((50, 3), np.nan)), "nan"),
        (lambda: auto(np.empty((0, 3))), ""),
        (lambda: auto(ShiftedExponential(1), n=3, bandwidth=1e6), "dim"),
        (lambda: auto(ShiftedExponential(1), n=3, dim=10, bandwidth=0), "bandwidth > 0"),
        (lambda: auto(ShiftedExponential(1), n=3, max_load=0), "max_load >= 1"),
        (lambda: auto(ShiftedExponential(1), n=3, worth=1.0), "0 <= worth < 1"),
    ],
    ids=range(10),
)
def test_bad_input(call, words):
    with pytest.raises(Invalid) as caught:
        call()
    assert words in str(caught.value)


def best_of(advice, start):
    return min((c for c in advice.candidates if c.name.startswith(start)), key=lambda c: c.seen)


def test_work_conserving_rounds_are_ranked_and_said_to_win():
    advice = auto(ShiftedExponential(rate=10, shift=0.01), n=6, rounds=300)
    assert advice.chosen.name.startswith("work_conserving(6, load=4, pieces=")
    assert any("nothing is computed twice" in reason and "best fixed scheme" in reason for reason in advice.reasons)
    assert advice.line.startswith('unstraggle run "work_conserving(6')
    assert best_of(advice, "sums_on_request").time > advice.chosen.time
    assert advice.chosen.messages <= 6, "one sum a worker"


def test_long_round_trips_speak_against_handing_out():
    advice = auto(ShiftedExponential(rate=10, shift=0.01), n=6, rounds=300, round_trip=0.3)
    assert advice.chosen.plan.code.handing is None
    assert any("words are dear: a round trip of 0.3 s" in reason for reason in advice.reasons)
    short = auto(ShiftedExponential(rate=10, shift=0.01), n=6, rounds=300, round_trip=0.004)
    assert short.chosen.plan.code.handing.reserve == 1, "a piece ahead hides a short one"


def test_a_fixed_cost_speaks_against_small_pieces():
    advice = auto(FixedCost(ShiftedExponential(rate=10, shift=0.01), 0.2), n=6, rounds=300)
    assert advice.chosen is None
    assert any("small pieces are dear: each has a fixed cost of 0.2 s" in reason for reason in advice.reasons)
    assert best_of(advice, "work_conserving").plan.code.k == 6, "whole shares"


def test_a_worker_that_stays_slow_needs_helpers():
    times = np.exp(0.02 * rng(6).standard_normal((60, 8))) * np.where(np.arange(8) == 3, 20.0, 1.0)
    advice = auto(times)
    assert any("helpers are needed" in reason and "times as long" in reason for reason in advice.reasons)
    untold = "counts as nothing, and shares are cut into 4 at most: measure it"
    assert any(untold in reason for reason in advice.reasons), "one size of tasks tells no fixed cost"
    assert all(c.plan.code.k <= 4 * 8 for c in advice.candidates if c.plan.code.handing), (
        "a sixteenth may cost more than it saves"
    )
    alone = next(c for c in advice.candidates if "helpers=False" in c.name)
    assert alone.time > 1.2 * best_of(advice, "work_conserving").time


def test_the_least_gain_worth_having():
    """The same verdict from the planner, the diagnosis and a run that plans for itself."""
    from unstraggle import diagnose
    from unstraggle.torch.scheme import resolve

    times = changing(rounds=60)
    for worth, helps in ((0.05, True), (0.9, False)):
        advice, found = auto(times, worth=worth), diagnose(times, worth=worth)
        assert (advice.chosen is not None) == helps == (found.answer == "scheme")
        assert found.advice.verdict == advice.verdict
    assert any("not surely 90 %" in reason for reason in auto(times, worth=0.9).reasons)
    assert resolve("auto", 6, times, 10)[0].name == auto(times, dim=10).chosen.name


@pytest.mark.skipif(not TRACES.exists(), reason="the ByteDance traces are not beside this repository")
def test_real_traces():
    """Sequence lengths (SE): the data, changing. One slow worker (AR): persistent. Stage imbalance (ST): workers alike.

    The savings are those of rounds that start with free workers.
    """
    se, ar, st = (auto(read(TRACES / "compute_seconds.npz", key=f"{job}_mb"), carry=False) for job in ("SE", "AR", "ST"))
    assert se.cause.kind == "tasks" and se.held_out and any("balance the batches" in r for r in se.reasons)
    assert ar.cause.kind == "persistent" and ar.cause.slowest == 0 and any("replace worker 0" in r for r in ar.reasons)
    assert st.cause.kind == "even" and st.chosen is None
    for advice, fixed_at_most, least in ((ar, 0.2, 0.1), (se, 0.1, 0.05)):
        exact = [c for c in advice.candidates if c.exact and c.name != "wait for all"]
        fixed = min((c for c in exact if c.plan.code.handing is None), key=lambda c: c.time)
        assert 0 < fixed.saving_ci95[0] < fixed.saving < fixed.saving_ci95[1] < fixed_at_most, "little, and only by blocks"
        handed = min((c for c in exact if c.plan.code.handing is not None), key=lambda c: c.time)
        assert handed.saving_ci95[0] > max(least, fixed.saving_ci95[1]), "pieces that are handed out use all partial work"
    assert next(c for c in se.candidates if c.name == "fractional_repetition(32, s=1)").saving < -0.5


def test_links_decide_whether_messages_are_fetched():
    """On a slow link of the master, copies that are not used queue before others; without links nothing is gained."""
    setting = {"n": 6, "rounds": 300, "max_load": 2, "carry": False}
    found = auto(ShiftedExponential(rate=10, shift=0.01), dim=1000, master=1e5, **setting)
    by_name = {candidate.name: candidate for candidate in found.candidates}
    pulled = by_name["uncoded_mmc(6, load=2)"]
    assert pulled.transfer == "pull" == pulled.to_dict()["transfer"] and pulled.messages == 6
    assert by_name["wait for all"].transfer == "push" and "uncoded_mmc(6, load=2)  (pull)" in str(found)
    assert '"uncoded_mmc(6, load=2)" --transfer pull' in replace(found, chosen=pulled).line
    free = auto(ShiftedExponential(rate=10, shift=0.01), **setting)
    assert {candidate.transfer for candidate in free.candidates} == {"push"}
