"""Round: the master without I/O, against late, duplicate, lost and simultaneous events."""

import numpy as np
import pytest

from unstraggle import (
    Announced,
    Arrived,
    Cancel,
    Count,
    Deadline,
    Elapsed,
    Fail,
    Failed,
    First,
    Invalid,
    Linger,
    Lost,
    Recovered,
    Round,
    State,
    Terms,
    codes,
)
from unstraggle.runtime.message import Message


def came(index, time=0.1, round=0, ticket=0):
    return Message(index, index, round, time, np.zeros(8, np.uint8), ticket=ticket)


def test_a_round_says_which_messages_counted_so_that_only_their_payloads_are_added():
    """Those of the last feed: not twice, not of another round, and not what was fed before."""
    round = Round(codes.cyclic_repetition(4, s=1), Recovered(), number=7)
    first, other, again, second = came(0, round=7), came(1, round=6), came(0, 0.2, round=7), came(2, 0.3, round=7)
    round.feed(first, other, again)
    assert round.taken == [first] and (round.late, round.duplicates, round.clock) == (1, 1, 0.2)
    round.feed(came(0, round=7), second)
    assert round.taken == [second] and round.got.tolist() == [True, False, True, False]
    round.feed(Elapsed(0.4))
    assert round.taken == []


def test_a_message_that_a_worker_announces_again_after_an_error_has_to_be_asked_for_again():
    """All of it in one feed: what came was asked for when it was sent, but is not any more."""
    round = Round(codes.uncoded(1), Recovered(), terms=Terms(transfer="pull", on_shortfall="wait"))
    round.begin()
    (asked,) = round.feed(Announced(0, 0, 0.1))
    sent = came(0, 0.3, ticket=asked.ticket)
    round.feed(Failed(0, 0.2), sent, Announced(0, 0, 0.4))
    assert round.taken == [] and round.duplicates == 1 and round.open


def test_messages_of_other_rounds_and_after_the_end_are_counted_and_never_used():
    round = Round(codes.cyclic_repetition(4, s=1), Recovered(), number=7)
    round.feed(Arrived(0, 0.1, round=6), Arrived(1, 0.2, round=7))
    assert round.late == 1 and round.got.tolist() == [False, True, False, False]
    round.feed(Arrived(2, 0.3, 7))
    assert round.feed(Arrived(3, 0.4, 7)) == (Cancel((0,), 7),)
    assert round.feed(Arrived(0, 0.5, 7)) == ()
    assert (round.late, round.time, round.clock, round.state) == (2, 0.4, 0.4, State.DONE)
    assert not round.got[0] and round.decoded.weights[0, 0] == 0


def test_duplicates_count_once():
    round = Round(codes.cyclic_repetition(4, s=1), Recovered())
    round.feed(Arrived(0, 0.1), Arrived(0, 0.1), Arrived(0, 0.2), Arrived(1, 0.2))
    assert round.duplicates == 2 and round.open


def test_messages_that_arrive_together_all_count():
    round = Round(codes.fractional_repetition(4, s=1), Recovered())
    round.feed(*(Arrived(m, 1.0) for m in range(4)))
    assert round.got.all() and round.decoded.weights[0] == pytest.approx([0.5, 0.5, 0.5, 0.5])


def test_a_lost_worker_within_the_tolerance_does_not_matter():
    round = Round(codes.cyclic_repetition(4, s=1), Recovered())
    assert round.feed(Lost(2, 0.1)) == () and round.open
    assert round.feed(*(Arrived(m, 0.5) for m in (0, 1, 3))) == ()
    assert round.state is State.DONE and round.decoded.residual < 1e-12


@pytest.mark.parametrize("by", ["rule", "span"])
def test_one_lost_worker_too_many_fails_at_once(by):
    round = Round(codes.cyclic_repetition(5, s=1), Recovered(by))
    round.feed(Arrived(0, 0.1))
    round.feed(Lost(2, 0.2))
    assert round.open
    fail, cancel = round.feed(Lost(3, 0.3))
    assert isinstance(fail, Fail) and "workers [2, 3] are lost" in fail.why and cancel == Cancel((1, 4), 0)
    assert round.state is State.FAILED and round.time == 0.3


def test_a_message_that_was_under_way_when_its_worker_died_is_used():
    round = Round(codes.cyclic_repetition(3, s=1), Recovered())
    round.feed(Lost(0, 0.1))
    round.feed(Arrived(0, 0.2))
    round.feed(Arrived(1, 0.3))
    assert round.state is State.DONE and round.got.tolist() == [True, True, False]


def test_everything_arrived_and_still_not_recovered_fails():
    round = Round(codes.uncoded(3), Count(3))
    round.feed(Arrived(0, 0.1), Arrived(1, 0.2))
    round.feed(Lost(2, 0.3))
    assert round.state is State.FAILED


def test_deadline_ends_with_what_is_there():
    round = Round(codes.uncoded(3), Deadline(2.0))
    round.feed(Arrived(1, 0.5))
    assert round.stop.alarm(round) == 2.0 and round.open
    assert round.feed(Elapsed(2.0)) == (Cancel((0, 2), 0),)
    assert round.state is State.DONE and not round.recovered("rule") and round.decoded.residual > 0.5


def test_deadline_ends_early_when_nothing_more_can_come():
    round = Round(codes.uncoded(2), Deadline(9.0))
    round.feed(Arrived(0, 0.5))
    round.feed(Lost(1, 0.6))
    assert round.state is State.DONE and round.time == 0.6


def test_linger_waits_for_more_after_recovery():
    round = Round(codes.cyclic_repetition(4, s=2), Linger(Recovered(), 1.5))
    round.feed(Arrived(0, 1.0))
    assert round.stop.alarm(round) is None
    round.feed(Arrived(1, 2.0))
    assert round.open and round.stop.alarm(round) == 3.0
    round.feed(Arrived(2, 2.5))
    round.feed(Elapsed(3.0))
    assert round.state is State.DONE and round.got.sum() == 3


def test_first_ends_with_the_earliest():
    stop = First(Recovered(), Deadline(1.0))
    late, soon = Round(codes.uncoded(2), stop), Round(codes.uncoded(2), stop)
    late.feed(Arrived(0, 0.5))
    late.feed(Elapsed(1.0))
    soon.feed(Arrived(0, 0.5), Arrived(1, 0.6))
    assert (late.time, soon.time) == (1.0, 0.6)


def test_count_of_workers_is_not_fooled_by_many_messages_of_one():
    round = Round(codes.uncoded_mmc(4, load=3), Count(2))
    round.feed(*(Arrived(m, 0.1) for m in range(3)))
    assert round.open
    round.feed(Arrived(3, 0.2))
    assert round.state is State.DONE


def test_recovered_clusters_are_told_to_stop():
    code = codes.cluster(codes.cyclic_repetition(3, s=1), times=2)
    round = Round(code, Recovered(), terms=Terms(sending="cluster_stop"))
    assert round.feed(Arrived(0, 0.1)) == ()
    assert round.feed(Arrived(1, 0.2)) == (Cancel((2,), 0),)
    assert round.feed(Arrived(3, 0.3)) == ()
    assert round.feed(Arrived(5, 0.4)) == (Cancel((4,), 0),)
    assert round.state is State.DONE


def test_unknown_messages_and_options_are_refused():
    with pytest.raises(Invalid, match=r"has messages 0\.\.2"):
        Round(codes.uncoded(3), Recovered()).feed(Arrived(3, 0.1))
    with pytest.raises(Invalid, match="sending must be"):
        Round(codes.uncoded(3), Recovered(), terms=Terms(sending="some"))
    with pytest.raises(Invalid, match="needs stop=Recovered"):
        Round(codes.uncoded(3), Deadline(1.0), terms=Terms(sending="cluster_stop"))
    with pytest.raises(Invalid, match='by must be "rule"'):
        Round(codes.uncoded(3), Recovered("luck")).feed(Elapsed(1.0))


def test_weights_have_one_row_a_track():
    from dataclasses import replace

    from unstraggle import Fixed

    code = codes.uncoded(3)
    code = replace(code, decoder=Fixed(code.messages.coef, fixed=np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])))
    round = Round(code, Deadline(1.0))
    round.feed(Arrived(0, 0.1), Arrived(2, 0.2))
    round.feed(Elapsed(1.0))
    assert round.decoded.weights.tolist() == [[1.0, 0.0, 3.0], [4.0, 0.0, 6.0]]
