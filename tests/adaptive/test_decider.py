"""The decider of adaptive runs, on sampled clocks: it stays where nothing changes, and finds what suits where much does."""

import numpy as np
import pytest

from unstraggle.adaptive.change import longer_or_shorter, slower_or_faster
from unstraggle.adaptive.decider import LEAST, Decider
from unstraggle.adaptive.predict import candidates, simulated
from unstraggle.adaptive.seen import Seen, cost_of_a_task, speeds
from unstraggle.adaptive.switch import Switch
from unstraggle.codes import uncoded, work_conserving

from .clock import CHANGE, N, best_fixed, pattern, play, waits


def rounds(seconds, wait=1.0, work=1.0, code="uncoded(2)", least=0.0):
    rows = np.atleast_2d(np.asarray(seconds, dtype=float))
    return [Seen(code, work, wait, row, np.broadcast_to(least, row.shape)) for row in rows]


@pytest.mark.parametrize("kind", ["even", "bursty", "persistent", pytest.param("random", marks=pytest.mark.slow)])
def test_stationary_noise_makes_it_neither_flap_nor_trail(kind):
    """Over 1000 rounds it changes the code while it learns, and costs little more than the best fixed code does."""
    seconds = pattern(kind, 1000, np.random.default_rng(1))
    total, found = play(seconds)
    assert len(found) <= 3 and all(number < 500 for number, _, _ in found), [(number, code.name) for number, code, _ in found]
    assert total <= 1.05 * best_fixed(seconds, 0.0)
    if kind == "even":
        assert not found, "nobody straggles, so there is nothing to gain"


@pytest.mark.parametrize("cost", [0.0, 0.02], ids=["free tasks", "tasks with a fixed cost"])
@pytest.mark.parametrize("kind", ["bursty", "persistent"])
def test_after_a_change_it_finds_a_code_within_five_percent_of_the_best(kind, cost):
    rng = np.random.default_rng(5)
    before, after = pattern("even", 60, rng), pattern(kind, 200, rng)
    _, found = play(np.vstack([before, after]), cost)
    assert found[0][0] >= 60 and "times as long" in found[0][2].why, "it stays until something changes, and says what"
    assert waits(found[-1][1], after, cost).sum() <= 1.05 * best_fixed(after, cost)
    assert found[0][0] < 60 + 3 * LEAST


def test_a_run_that_changes_twice_is_within_ten_percent_of_the_oracle():
    rng = np.random.default_rng(3)
    phases = [pattern(kind, 150, rng) for kind in ("even", "bursty", "persistent")]
    total, _ = play(np.vstack(phases))
    assert total <= 1.1 * sum(best_fixed(phase, 0.0) for phase in phases)


def test_a_code_that_turns_out_slower_is_left_again_and_not_tried_at_once():
    """Simulations do not know that words take long here: pieces are tried once, measured, and left."""
    seconds = pattern("bursty", 60, np.random.default_rng(0))
    decider, code, found = Decider(uncoded(N), cost=CHANGE), uncoded(N), []
    for row in seconds:
        wait = float(row.max()) if code.handing is None else 0.8
        decision = decider.feed(Seen(code.name, float(np.median(code.tasks.work)), wait, row, np.zeros(N)))
        found += [one for one in (decision.measured, decision.switch) if one is not None]
        if decision.code is not None:
            code = decision.code
            decider.use(code, decision.switch)
    tried, measured, back = found[:3]
    assert tried.kind == back.kind == "switch" and tried.code.startswith("work_conserving") and tried.predicted > 0.05
    assert measured.kind == "measured" and measured.measured < 0 and measured.predicted == tried.predicted
    assert back.code == "uncoded(8)" and back.why == "it takes longer than before"
    assert not any(one.code == tried.code for one in found[3:])


def test_a_change_must_pay_for_itself_in_as_many_rounds_as_the_pattern_has_lasted():
    slow = np.tile([1.0, 1.0, 1.0, 3.0], (40, 1))

    def first_change(cost):
        decider = Decider(uncoded(4), cost=cost)
        said = [decider.feed(one).code is not None for one in rounds(slow, wait=3.0, code="uncoded(4)")]
        return said.index(True) + 1 if any(said) else None

    assert (first_change(0.0), first_change(20.0), first_change(1000.0)) == (8, 12, None)


def test_late_workers_took_at_least_as_long():
    heard = rounds([[1.0, 2.0], [1.0, 5.0], [1.0, 7.0]])
    late = rounds([[1.0, np.inf], [1.0, np.inf]], least=4.0)
    assert speeds([*heard, *late])[:, 1].tolist() == [2.0, 5.0, 7.0, 7.0, 5.0], "longer times of the same worker stand in"
    assert speeds(late)[:, 1].tolist() == [4.0, 4.0], "where there are none, the least that is known"


def test_the_cost_of_a_task_is_told_from_two_sizes_and_not_from_noise():
    rng = np.random.default_rng(0)
    work = rng.lognormal(0, 0.2, (40, 8))
    whole, pieces = rounds(0.1 + work[:20]), rounds(4 * 0.1 + work[20:], work=0.25)
    assert cost_of_a_task([*whole, *pieces]) == pytest.approx(0.1, rel=0.3)
    assert cost_of_a_task([*rounds(work[:20]), *rounds(work[20:], work=0.25)]) == 0.0
    assert cost_of_a_task(whole) is None
    assert speeds(pieces, 0.1).mean() == pytest.approx(work[20:].mean())


def test_one_long_round_is_no_change_and_a_burst_is_no_slow_worker():
    waits = np.ones(40)
    waits[-1] = 1000.0
    assert longer_or_shorter(waits, 0.05) is None
    assert longer_or_shorter(np.append(waits[:-1], [2.0, 2.0, 2.0]), 0.05).what == "rounds take 2.0 times as long"
    assert longer_or_shorter(np.repeat([2.0, 1.0], [30, 10]), 0.05).what == "rounds take 0.5 times as long"
    seconds = np.ones((60, 4))
    seconds[-15:, 2] = 9.0
    assert slower_or_faster(seconds) is None, "15 of the last 24 rounds are a burst"


def test_codes_that_are_tried_suit_the_batch_and_loads_follow_speeds_that_last():
    even, uneven = np.ones((30, 4)), np.tile([1.0, 1.0, 1.0, 2.0], (30, 1))
    assert all(code.k <= 8 for code in candidates(even, samples=8))
    assert not any(code.name.startswith("heterogeneity") for code in candidates(even, np.inf))
    assert any(code.name.startswith("heterogeneity_aware([1.0, 1.0, 1.0, 0.5]") for code in candidates(uneven, np.inf))
    assert not any(code.name.startswith("heterogeneity") for code in candidates(uneven[:10], np.inf)), "a burst looks like that"
    assert [code.name for code in candidates(np.ones((30, 1)), np.inf)] == ["uncoded(1)"]
    assert simulated(work_conserving(4, load=4, pieces=4), uneven).mean() < 0.7 * simulated(uncoded(4), uneven).mean()


def test_the_record_of_a_change_survives_json():
    switch = Switch("switch", "b(2)", "a(2)", "because", 0.25, 0.75, 1.0, step=7)
    assert Switch.of({**switch.to_dict(), "round": 3}) == switch
    assert str(switch) == "a(2) -> b(2): because; it should save 25 % (1 -> 0.75 s a round)"
    unknown = Decider(uncoded(2)).expect(work_conserving(2, load=2, pieces=2), "as you say")
    assert unknown.to_dict()["predicted"] is None and "an unknown share" in str(Switch.of(unknown.to_dict()))
