"""Rounds that fetch: messages are announced and asked for, by a pure Round, against workers that die, lie or hang."""

import numpy as np
import pytest

from unstraggle import (
    Announced,
    Arrived,
    Ask,
    Cancel,
    Count,
    Deadline,
    Dropped,
    Elapsed,
    Fail,
    Failed,
    Invalid,
    Joined,
    Linger,
    Lost,
    Recovered,
    Round,
    State,
    Tell,
    Terms,
    Until,
    codes,
)
from unstraggle.scheme.fetching import to_fetch


def pulled(code, stop=None, **terms):
    return Round(code, stop or Recovered(), terms=Terms(transfer="pull", **terms))


def told(instructions):
    return [(one.worker, one.message) for one in instructions if isinstance(one, Tell)]


def tickets(instructions):
    return {one.message: one.ticket for one in instructions if isinstance(one, Tell)}


def announce(round, time, *messages):
    senders = round.code.messages.worker
    return round.feed(*(Announced(int(senders[m]), m, time) for m in messages))


def test_one_copy_of_each_message_is_fetched_and_the_round_ends_with_its_payload():
    round = pulled(codes.fractional_repetition(4, s=1))
    assert told(announce(round, 0.5, 1)) == [(1, 1)] and told(announce(round, 0.6, 0)) == []
    asked = announce(round, 0.7, 3)
    assert told(asked) == [(3, 3)] and round.state is State.FETCHING and round.recovered("rule")
    round.feed(Arrived(1, 0.8, ticket=1))
    assert round.feed(Arrived(3, 0.9, ticket=tickets(asked)[3])) == (Cancel((2,), 0),)
    assert (round.state, round.time, round.got.tolist()) == (State.DONE, 0.9, [False, True, False, True])
    assert round.exact and round.decoded.weights.round(9).tolist() == [[0, 1, 0, 1]] and round.notes == 3
    assert round.noted == {1: 0.5, 0: 0.6, 3: 0.7}


def test_where_weights_depend_on_what_came_nothing_is_asked_before_the_rule_is_met():
    round = pulled(codes.cyclic_repetition(4, s=1))
    assert told(announce(round, 0.5, 0, 1)) == []
    asked = announce(round, 0.6, 3)
    wanted = to_fetch(round.code, np.array([[True, True, False, True]]), np.zeros((1, 4)))[0]
    assert [m for _, m in told(asked)] == np.flatnonzero(wanted).tolist()
    for m, ticket in tickets(asked).items():
        assert round.open
        round.feed(Arrived(m, 0.7, ticket=ticket))
    assert round.state is State.DONE and round.exact


def test_who_dies_between_announcing_and_sending_is_replaced():
    round = pulled(codes.fractional_repetition(4, s=1))
    announce(round, 0.5, 1)
    announce(round, 0.6, 0)
    announce(round, 0.7, 3)
    assert told(round.feed(Lost(1, 0.75))) == [(0, 0)]
    round.feed(Arrived(3, 0.8, ticket=2))
    assert round.state is State.FETCHING
    round.feed(Arrived(0, 0.9, ticket=3))
    assert round.state is State.DONE and round.exact and round.got.tolist() == [True, False, False, True]


def test_without_another_copy_the_round_waits_for_the_successor():
    round = pulled(codes.uncoded(2), on_shortfall="wait")
    announce(round, 0.5, 0, 1)
    round.feed(Arrived(0, 0.6, ticket=1))
    round.feed(Lost(1, 0.7, returns=True))
    assert round.state is State.WAITING
    assert Ask((1,), 0) in round.feed(Joined(1, 0.8, fresh=True)) and round.state is State.OPEN
    assert round.feed(Arrived(1, 0.85, ticket=2)) == () and round.duplicates == 1  # nobody has asked the successor
    asked = announce(round, 0.9, 1)
    assert told(asked) == [(1, 1)]
    round.feed(Arrived(1, 1.0, ticket=tickets(asked)[1]))
    assert round.state is State.DONE and round.exact


def test_who_was_thought_lost_has_what_it_announced():
    round = pulled(codes.uncoded(2), on_shortfall="wait")
    announce(round, 0.5, 1)
    round.feed(Lost(1, 0.6, returns=True))
    assert round.state is State.WAITING and not round.got[1]
    asked = round.feed(Joined(1, 0.7, fresh=False))
    assert round.got[1] and told(asked) == [(1, 1)]


def test_a_damaged_payload_is_asked_for_again_and_then_replaced():
    round = pulled(codes.fractional_repetition(4, s=1))
    announce(round, 0.5, 0, 1)
    announce(round, 0.6, 2)
    assert told(round.feed(Dropped(0, 0.7, damaged=True))) == [(0, 0)]
    assert told(round.feed(Dropped(0, 0.8, damaged=True))) == [(0, 0)]
    assert told(round.feed(Dropped(0, 0.9, damaged=True))) == [(1, 1)] and round.damaged == 3
    round.feed(Arrived(2, 1.0, ticket=2), Arrived(1, 1.0, ticket=9))
    assert round.state is State.DONE and round.got.tolist() == [False, True, True, False]


def test_a_payload_that_never_comes_is_asked_for_again_and_others_stand_in():
    round = pulled(codes.fractional_repetition(4, s=1), on_shortfall="wait", limit=1.0)
    announce(round, 0.5, 0, 2)
    announce(round, 0.6, 1)
    round.feed(Arrived(2, 0.7, ticket=2))
    assert told(round.feed(Elapsed(1.0))) == [(0, 0), (1, 1)]
    round.feed(Arrived(1, 1.1, ticket=9))
    assert round.state is State.DONE and round.exact and round.usual == 0.7


def test_a_note_that_vanished_is_made_up_for_by_asking_again():
    round = pulled(codes.uncoded(2), on_shortfall="wait", limit=1.0)
    announce(round, 0.5, 0)
    round.feed(Arrived(0, 0.6, ticket=1))
    assert Ask((1,), 0) in round.feed(Elapsed(1.0))


def test_whoever_announces_what_it_has_not_never_makes_a_gradient():
    """Of another's message, twice, of another round, and one that it cannot send when it is asked."""
    round = pulled(codes.fractional_repetition(4, s=1))
    round.feed(Announced(0, 2, 0.1), Announced(3, 0, 0.1), Announced(0, 0, 0.1, round=7), Announced(0, 9, 0.1))
    assert not round.got.any()
    announce(round, 0.2, 0, 0, 3)
    announce(round, 0.3, 1)
    assert told(round.feed(Failed(0, 0.4, 0, "it has no such message"))) == [(1, 1)] and not round.got[0]
    round.feed(Arrived(0, 0.5, ticket=1))
    assert round.duplicates == 1 and round.open
    round.feed(Arrived(3, 0.6, ticket=2), Arrived(1, 0.6, ticket=3))
    assert round.state is State.DONE and round.exact


def test_unasked_payloads_do_not_count():
    round = pulled(codes.uncoded(2))
    round.feed(Arrived(0, 0.1), Arrived(1, 0.1, ticket=1))
    assert round.duplicates == 2 and round.open and not round.got.any()


def test_what_a_worker_announced_before_it_failed_can_be_had():
    round = pulled(codes.cyclic_repetition(3, s=1))
    announce(round, 0.1, 0)
    round.feed(Failed(0, 0.2, 0, "in a later task"))
    assert round.got[0], "it is alive, and was asked for nothing yet"


def test_rules_that_take_what_came_fetch_what_was_announced_by_then():
    code = codes.ignore_stragglers(4)
    round = pulled(code, Count(2))
    announce(round, 0.1, 2)
    asked = announce(round, 0.2, 0)
    announce(round, 0.3, 1)
    round.feed(Arrived(2, 0.4, ticket=1), Arrived(0, 0.4, ticket=tickets(asked)[0]))
    assert round.state is State.DONE and round.got.tolist() == [True, False, True, False] and round.time == 0.4
    round = pulled(code, Deadline(1.0))
    announce(round, 0.1, 2)
    asked = round.feed(Elapsed(1.0))
    assert round.state is State.FETCHING and Until(None) in asked, "an alarm that is past would ring for ever"
    round.feed(Arrived(2, 1.2, ticket=1))
    assert round.state is State.DONE and round.time == 1.2
    round = pulled(code, Deadline(1.0))
    round.feed(Elapsed(1.0))
    assert round.state is State.DONE and not round.got.any(), "nothing to fetch"


def test_a_loss_while_lingering_is_no_recovery():
    """The rule was met, by what is lost by now."""
    round = pulled(codes.uncoded(2), Linger(Recovered(), 2.0), on_shortfall="wait")
    announce(round, 0.5, 0, 1)
    round.feed(Lost(1, 0.6, returns=True))
    round.feed(Elapsed(1.0))
    assert round.state is State.WAITING


@pytest.mark.parametrize("late", [False, True])
def test_policies_take_what_could_be_had(late):
    """Too many are lost, or patience is over: what was announced is fetched, and then taken."""
    round = pulled(codes.cyclic_repetition(3, s=1), on_shortfall="approximate", limit=1.0)
    announce(round, 0.2, 0)
    asked = round.feed(Elapsed(1.0)) if late else round.feed(Lost(1, 0.3), Lost(2, 0.3))
    assert told(asked) == [(0, 0)] and round.state is State.FETCHING
    round.feed(Arrived(0, 1.1, ticket=1))
    assert round.state is State.APPROXIMATED and round.got.tolist() == [True, False, False]
    round = pulled(codes.cyclic_repetition(3, s=1), on_shortfall="approximate", limit=1.0)
    announce(round, 0.2, 0, 1)
    round.feed(Elapsed(1.0))
    assert round.state is State.APPROXIMATED and not round.got.any(), "patience was over before a payload came"


def test_other_policies_end_as_when_messages_are_sent():
    for policy, state in (("skip", State.SKIPPED), ("raise", State.FAILED)):
        round = pulled(codes.uncoded(2), on_shortfall=policy, limit=1.0)
        announce(round, 0.2, 0, 1)
        round.feed(Elapsed(1.0))
        assert round.state is state
    round = pulled(codes.uncoded(2), suspects=frozenset({1}))
    announce(round, 0.2, 0, 1)
    assert any(isinstance(one, Fail) for one in round.feed(Failed(1, 0.3, 0, "again")))
    with pytest.raises(Invalid, match="cluster_stop"):
        pulled(codes.uncoded(2), Deadline(1.0), sending="cluster_stop")


def clustered(inner, **terms):
    return pulled(codes.cluster(inner, times=2), sending="cluster_stop", **terms)


def cancelled(instructions):
    return [worker for one in instructions if isinstance(one, Cancel) for worker in one.workers]


def test_a_cluster_fetches_what_it_needs_and_is_let_go_when_that_is_here():
    """Weights depend on what came, but not on what came from other clusters."""
    round = clustered(codes.cyclic_repetition(3, s=1))
    announce(round, 0.1, 0, 3)
    asked = announce(round, 0.2, 1)
    assert told(asked) == [(0, 0), (1, 1)] and round.state is State.OPEN and not cancelled(asked)
    assert round.feed(Arrived(0, 0.3, ticket=1)) == (), "one of the two is not here"
    assert round.feed(Arrived(1, 0.4, ticket=2)) == (Cancel((2,), 0),)
    asked = announce(round, 0.5, 4)
    assert told(asked) == [(3, 3), (4, 4)] and round.state is State.FETCHING
    assert round.feed(Arrived(3, 0.6, ticket=3), Arrived(4, 0.6, ticket=4)) == (Cancel((5,), 0),)
    assert round.state is State.DONE and round.exact and round.got.tolist() == [True, True, False, True, True, False]


def test_who_dies_before_its_cluster_is_served_is_replaced_by_one_that_was_not_let_go():
    round = clustered(codes.cyclic_repetition(3, s=1), on_shortfall="wait")
    announce(round, 0.1, 0, 1)
    round.feed(Arrived(0, 0.2, ticket=1))
    assert not told(round.feed(Lost(1, 0.3, returns=True))) and round.state is State.OPEN
    assert told(announce(round, 0.4, 2)) == [(2, 2)]
    assert round.feed(Arrived(2, 0.5, ticket=3)) == (), "nobody is left that would compute in vain"
    announce(round, 0.6, 3, 5)
    round.feed(Arrived(3, 0.7, ticket=4), Arrived(5, 0.7, ticket=5))
    assert round.state is State.DONE and round.exact and round.got.tolist() == [True, False, True, True, False, True]


def test_of_a_cluster_that_is_served_nothing_is_missed():
    """A note that its rule counted goes with its worker, but nobody needs it; and nobody is left that would make it good."""
    round = clustered(codes.cyclic_repetition(4, s=1))
    asked = announce(round, 0.1, 0, 1, 2)
    assert told(asked) == [(0, 0), (2, 2)]
    assert cancelled(round.feed(Arrived(0, 0.2, ticket=1), Arrived(2, 0.2, ticket=2))) == [3]
    round.feed(Lost(1, 0.3), Lost(3, 0.3), Failed(0, 0.3, 0, "in a later task"), Dropped(1, 0.3, damaged=True))
    assert round.state is State.OPEN
    asked = announce(round, 0.4, 4, 5, 6)
    assert told(asked) == [(4, 4), (6, 6)]
    round.feed(Arrived(4, 0.5, ticket=3), Arrived(6, 0.5, ticket=4))
    assert round.state is State.DONE and round.exact and np.flatnonzero(round.got).tolist() == [0, 2, 4, 6]


def test_who_was_let_go_is_not_asked_to_stand_in():
    """Also if its last note was on its way: it need not answer any more."""
    round = clustered(codes.cyclic_repetition(4, s=1), on_shortfall="wait", limit=1.0)
    announce(round, 0.1, 0, 1, 2)
    assert cancelled(round.feed(Arrived(0, 0.2, ticket=1), Arrived(2, 0.2, ticket=2))) == [3]
    announce(round, 0.3, 3)
    announce(round, 0.4, 4, 5, 6)
    announce(round, 0.5, 7)
    round.feed(Arrived(4, 0.6, ticket=3))
    assert told(round.feed(Elapsed(1.0))) == [(5, 5), (6, 6), (7, 7)]
    round.feed(Arrived(5, 1.1, ticket=4), Arrived(7, 1.1, ticket=6))
    assert round.state is State.DONE and round.exact


def test_parts_are_judged_one_by_one_where_clusters_stop():
    code, could = (
        codes.cluster(codes.cyclic_repetition(4, s=1), times=2),
        np.array([[True, True, True, False, True] + 3 * [False]]),
    )
    apart, whole = (to_fetch(code, could, np.zeros((1, 8)), apart=how)[0] for how in (True, False))
    assert np.flatnonzero(apart).tolist() == [0, 2, 4] and np.flatnonzero(whole).tolist() == [0, 1, 2, 4]


def test_patience_asks_those_that_announced_nothing_though_a_payload_is_late():
    """One cluster waits for a payload, the other for a note that vanished: the payload has its turn in the end."""
    round = clustered(codes.fractional_repetition(2, s=1), on_shortfall="wait", limit=1.0)
    assert told(announce(round, 0.1, 0)) == [(0, 0)]
    announce(round, 0.2, 1)
    assert Ask((2, 3), 0) in round.feed(Elapsed(1.0))
    asked = announce(round, 1.5, 3)
    round.feed(Arrived(3, 1.6, ticket=tickets(asked)[3]))
    assert told(round.feed(Elapsed(2.0))) == [(0, 0), (1, 1)]
    round.feed(Arrived(1, 2.1, ticket=9))
    assert round.state is State.DONE and round.exact and round.got.tolist() == [False, True, False, True]


@pytest.mark.parametrize(
    "expression",
    [
        "cyclic_repetition(5, s=2)",
        "fractional_repetition(6, s=2)",
        "uncoded_mmc(4, load=3)",
        "cluster(cyclic_repetition(3, s=1), times=2)",
        "cluster(uncoded_mmc(3, load=2), times=2)",
        "cluster(cyclic_repetition(4, s=1), times=2)",
    ],
)
@pytest.mark.parametrize("sending", ["all", "cluster_stop"])
def test_whatever_happens_no_gradient_is_wrong_and_none_is_missed(expression, sending):
    """Workers announce, answer, vanish, hang, come back, lie and damage at random; in the end all do what they should. Who is
    cancelled says nothing more until it is asked again."""
    code = eval(expression, {**vars(codes)})
    for seed in range(60):
        rng, round = np.random.default_rng(seed), pulled(code, on_shortfall="wait", limit=50.0, sending=sending)
        instructions, clock, kept, requests, idle = list(round.begin()), 0.0, set(), [], set()
        senders = code.messages.worker
        for step in range(400):
            calm, clock = step > 60, clock + 1.0
            for one in instructions:
                if isinstance(one, Tell):
                    requests.append((one.message, one.ticket))
                elif isinstance(one, Ask):
                    idle -= set(one.workers)
                elif isinstance(one, Cancel):
                    idle |= set(one.workers)
            events, chance = [], rng.random()
            worker, m = int(rng.integers(code.n)), int(rng.integers(len(code.messages)))
            if not calm and chance < 0.1:
                kept -= set(np.flatnonzero(senders == worker).tolist())
                events = [Lost(worker, clock, True), Joined(worker, clock, fresh=True)]
            elif not calm and chance < 0.15:
                events = [Lost(worker, clock, True), Joined(worker, clock, fresh=False)]
            elif not calm and chance < 0.2:
                events = [Announced(worker, m, clock)]  # a lie, unless it is true
            elif requests and chance < 0.6:
                m, ticket = requests.pop(int(rng.integers(len(requests))))
                damaged = not calm and rng.random() < 0.3
                if m in kept and int(senders[m]) not in idle:
                    events = [Dropped(m, clock, True) if damaged else Arrived(m, clock, ticket=ticket)]
            elif int(senders[m]) not in idle:
                kept.add(m)
                events = [Announced(int(senders[m]), m, clock)]
            instructions = list(round.feed(*events or [Elapsed(clock)]))
            if round.over:
                break
        assert round.state is State.DONE and round.exact, (expression, seed)
