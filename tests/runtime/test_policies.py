"""What a round does when things go wrong: all of it without an engine, on the pure machine."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unstraggle import (
    Arrived,
    Ask,
    Cancel,
    Dropped,
    Elapsed,
    Fail,
    Failed,
    Joined,
    Lost,
    Recovered,
    Round,
    Say,
    State,
    Terms,
    Until,
    codes,
)
from unstraggle.runtime.round import ATTEMPTS
from unstraggle.runtime.states import OVER, SHORT, TRANSITIONS, Signal


def a_round(code=None, **terms):
    return Round(code or codes.cyclic_repetition(4, s=1), Recovered(), terms=Terms(**terms))


def of(kind, instructions):
    return [one for one in instructions if isinstance(one, kind)]


def test_who_waits_asks_again_for_dropped_messages_a_few_times_and_then_gives_up():
    round = a_round(codes.uncoded(2), on_shortfall="wait")
    round.feed(Arrived(0, 0.1))
    for attempt in range(ATTEMPTS):
        assert round.feed(Dropped(1, 0.2 + attempt)) == (Ask((1,), 0),)
    assert of(Fail, round.feed(Dropped(1, 9.0))) and round.state is State.FAILED


def test_a_dropped_message_that_is_not_needed_is_not_asked_for():
    round = a_round(on_shortfall="wait")
    assert round.feed(Dropped(1, 0.1)) == ()
    assert round.feed(Dropped(2, 0.2)) == (Ask((1, 2), 0),)


def test_who_waits_waits_for_workers_that_return():
    round = a_round(on_shortfall="wait")
    round.feed(Lost(0, 0.1), Lost(1, 0.1, returns=True))
    assert round.state is State.WAITING
    assert of(Ask, round.feed(Joined(1, 0.5))) == [Ask((1,), 0)] and round.state is State.OPEN
    round.feed(*(Arrived(m, 0.9) for m in (1, 2, 3)))
    assert round.state is State.DONE and round.missed == {0, 1}


def test_who_waits_gives_up_when_nobody_returns_any_more():
    round = a_round(on_shortfall="wait")
    round.feed(Lost(0, 0.1), Lost(1, 0.1, returns=True))
    (fail,) = of(Fail, round.feed(Lost(1, 0.5)))
    assert round.state is State.FAILED and "workers [0, 1] are lost" in fail.why and fail.worker is None


def test_a_message_counts_although_its_worker_is_thought_to_be_lost():
    """As of one that held the interpreter lock for longer than the heartbeat."""
    round = a_round(codes.uncoded(2), on_shortfall="wait")
    round.feed(Arrived(0, 0.1))
    round.feed(Lost(1, 10.0, returns=True))
    assert round.state is State.WAITING
    assert round.feed(Joined(1, 14.0, fresh=False), Arrived(1, 14.0)) == () and round.state is State.DONE


def test_who_comes_back_with_its_order_is_not_asked_again():
    round = a_round(on_shortfall="wait")
    round.feed(Lost(0, 0.1, returns=True))
    assert round.feed(Joined(0, 0.2, fresh=False)) == ()
    assert round.pending.all()


def test_approximating_takes_what_still_comes():
    round = a_round(on_shortfall="approximate")
    assert round.feed(Lost(0, 0.1), Lost(1, 0.1)) == () and round.state is State.SETTLING
    round.feed(Arrived(2, 0.5))
    assert round.state is State.SETTLING
    round.feed(Arrived(3, 0.6))
    assert round.state is State.APPROXIMATED and round.got.sum() == 2 and not round.exact


def test_approximating_is_exact_after_all_when_a_worker_comes_back():
    round = a_round(on_shortfall="approximate")
    round.feed(Lost(0, 0.1), Lost(1, 0.1, returns=True))
    assert of(Ask, round.feed(Joined(1, 0.2))) == [Ask((1,), 0)]
    round.feed(*(Arrived(m, 0.5) for m in (1, 2, 3)))
    assert round.state is State.DONE and round.exact


@pytest.mark.parametrize(
    "policy, state", [("skip", State.SKIPPED), ("raise", State.FAILED), ("approximate", State.APPROXIMATED)]
)
def test_patience_ends_a_round(policy, state):
    round = a_round(on_shortfall=policy, limit=2.0)
    assert round.begin() == (Until(2.0),)
    round.feed(Arrived(0, 0.5))
    assert of(Cancel, round.feed(Elapsed(2.0))) == [Cancel((1, 2, 3), 0)]
    assert round.state is state and round.time == 2.0


def test_patience_of_who_waits_asks_again_and_says_so():
    round = a_round(codes.uncoded(3), on_shortfall="wait", limit=2.0)
    round.feed(Arrived(0, 0.5))
    say, ask, until = round.feed(Elapsed(2.0))
    assert say == Say("Round 0 still waits after 2 s for workers [1, 2].") and ask == Ask((1, 2), 0) and until == Until(4.0)
    assert round.state is State.OPEN


def test_the_usual_time_is_that_of_what_came_unasked():
    """To learn from rounds in which messages had to be asked for again made each later round wait longer before it asked."""
    round = a_round(codes.uncoded(2), on_shortfall="wait", limit=2.0)
    round.feed(Arrived(0, 0.5))
    round.feed(Elapsed(2.0))
    round.feed(Arrived(1, 2.4))
    assert round.time == 2.4 and round.usual == 0.5
    round = a_round(codes.uncoded(2), on_shortfall="wait", limit=2.0)
    round.feed(Arrived(0, 0.5), Arrived(1, 0.6))
    assert round.time == round.usual == 0.6


def test_without_patience_people_are_told_and_nobody_is_asked():
    round = a_round(codes.uncoded(3), on_shortfall="wait", remind=30.0)
    assert round.begin() == (Until(30.0),)
    assert round.feed(Elapsed(30.0)) == (Say("Round 0 still waits after 30 s for workers [0, 1, 2]."), Until(60.0))
    round = a_round(codes.uncoded(2), on_shortfall="wait", remind=30.0)
    round.feed(Arrived(0, 0.1), Lost(1, 0.2, returns=True))
    assert of(Say, round.feed(Elapsed(30.0))) == [Say("Round 0 still waits after 30 s for lost workers [1] to come back.")]
    assert round.state is State.WAITING


def test_one_workers_error_is_a_straggler_and_two_are_too_many():
    round = a_round(on_shortfall="wait")
    (say,) = round.feed(Failed(2, 0.1, details="Traceback\nZeroDivisionError: no"))
    assert "Worker 2 failed in round 0: ZeroDivisionError: no" in say.text
    for m in (0, 1, 3):
        round.feed(Arrived(m, 0.5))
    assert round.state is State.DONE and round.missed == {2}
    round = a_round(on_shortfall="skip")
    round.feed(Failed(2, 0.1, details="first"))
    (fail,) = of(Fail, round.feed(Failed(0, 0.2, details="second")))
    assert round.state is State.FAILED and (fail.worker, fail.details) == (2, "first")


def test_a_worker_that_failed_and_is_heard_of_again_is_not_waited_for():
    round = a_round(on_shortfall="wait")
    round.feed(Failed(1, 0.2, details="no"))
    round.feed(Lost(1, 0.3, returns=True))
    round.feed(Joined(1, 0.4, fresh=False))
    assert not round.pending[1]
    assert of(Ask, round.feed(Joined(1, 0.5, fresh=True))) == [Ask((1,), 0)] and round.pending[1]


def test_an_error_that_repeats_ends_the_run_although_the_code_would_tolerate_it():
    round = a_round(on_shortfall="wait", suspects=frozenset({2}))
    (fail,) = of(Fail, round.feed(Failed(2, 0.1, details="again")))
    assert (fail.worker, fail.details) == (2, "again")


def test_errors_of_rounds_that_are_over_are_counted():
    round = Round(codes.uncoded(2), Recovered(), number=7, terms=Terms("wait"))
    assert round.feed(Failed(0, 0.1, round=5, details="old")) == () and round.late == 1 and not round.failures


def test_a_rule_that_is_met_but_cannot_be_decoded_waits_for_more():
    """The decoder has the last word: a rule that promises too much ends in an exact gradient or a shortfall, never in a lie."""
    from dataclasses import replace

    from unstraggle import Need, Span

    code = codes.uncoded(3)
    liar = replace(code, decoder=Span(code.messages.coef, Need(2, (0, 1, 2))))
    round = Round(liar, Recovered(), terms=Terms("raise"))
    round.feed(Arrived(0, 0.1), Arrived(1, 0.2))
    assert round.recovered("rule") and round.open
    round.feed(Arrived(2, 0.3))
    assert round.state is State.DONE and round.exact


def test_workers_lost_before_the_round_are_not_waited_for():
    round = a_round(lost=((0, False),), on_shortfall="raise")
    round.begin()
    round.feed(*(Arrived(m, 0.5) for m in (1, 2, 3)))
    assert round.state is State.DONE and round.missed == {0}


EVENTS = st.one_of(
    st.builds(Arrived, st.integers(0, 5), st.just(0.0), st.sampled_from([0, 0, 0, 1])),
    st.builds(Dropped, st.integers(0, 5), st.just(0.0)),
    st.builds(Lost, st.integers(0, 5), st.just(0.0), st.booleans()),
    st.builds(Joined, st.integers(0, 5), st.just(0.0), st.booleans()),
    st.builds(Failed, st.integers(0, 5), st.just(0.0), st.sampled_from([0, 1])),
    st.builds(Elapsed, st.just(0.0)),
)


@settings(max_examples=300)
@given(st.sampled_from(sorted(SHORT)), st.lists(st.lists(EVENTS, max_size=3), max_size=40), st.booleans())
def test_whatever_happens_a_round_keeps_its_word(policy, batches, patient):
    """Ends are final, nobody lost is told anything, and who may still come is known: a round never waits for nobody."""
    code = codes.cyclic_repetition(6, s=2)
    round = Round(code, Recovered(), terms=Terms(policy, limit=20.0 if patient else None))
    round.begin()
    for number, batch in enumerate(batches):
        for event in batch:
            event.time = float(number)
        before = round.state
        told = round.feed(*batch, Elapsed(float(number)))
        if before in OVER:
            assert round.state is before and told == ()
        assert not {w for one in of(Ask, told) for w in one.workers} & round.lost.keys()
        assert not round.pending[round.got].any()
        assert bool(of(Fail, told)) == (round.state is State.FAILED and before not in OVER)
        if round.state is State.DONE:
            assert round.exact
        elif round.open:
            assert round.pending.any() or any(round.lost.values())


def test_the_table_is_whole():
    """From every state that is not an end some signal leads to an end, and from ends nothing leads away."""
    assert not {state for state, _ in TRANSITIONS} & OVER
    assert {state for state, _ in TRANSITIONS} | OVER == set(State)
    assert {signal for _, signal in TRANSITIONS} == set(Signal)
    for start in set(State) - OVER:
        assert {end for (state, _), end in TRANSITIONS.items() if state is start} & OVER


def test_trackers_are_prepared_once_a_code():
    from unstraggle.scheme.recovery import recovery_of

    code = codes.cyclic_repetition(5, s=2)
    first, second = (Round(code, Recovered()) for _ in range(2))
    first.feed(Arrived(0, 0.1))
    second.feed(Arrived(0, 0.1))
    assert recovery_of(code, "rule") is recovery_of(code, "rule")
    first.feed(Arrived(1, 0.2), Arrived(2, 0.2))
    assert first.state is State.DONE and second.open and np.count_nonzero(second.got) == 1
