"""The roster: whatever happens in whatever order, the master knows who comes back, and nobody is forgotten."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from unstraggle.runtime.events import Failed, Joined, Lost
from unstraggle.runtime.roster import PAUSE, Place, Roster

HEARTBEAT, START_WITHIN = 8.0, 30.0


def roster_of(n=2, restarts=1):
    """All ready at time 0."""
    roster = Roster(n, restarts=restarts, heartbeat=HEARTBEAT, start_within=START_WITHIN, now=0.0)
    for worker in range(n):
        roster.ready(worker, 0.0)
    return roster


def looks(roster, begin, end):
    """Looks at every second, as a master does that waits."""
    return [event for second in range(begin, end) for event in roster.look(float(second))]


def test_silence_is_a_loss_until_a_sign_of_life():
    roster = roster_of()
    roster.begin(1.0)
    for second in range(20):
        roster.heard(0, float(second))
        if second == 8:
            assert roster.look(8.0) == []
        elif second == 9:
            assert roster.look(9.0) == [Lost(1, 8.0, returns=True)]
        else:
            assert roster.look(float(second)) == []
    assert roster.is_ready(1), "it takes orders, for when it goes on"
    assert roster.heard(1, 8.5) is None, "a sign of life from before it counted as hung"
    assert roster.heard(1, 25.0) == Joined(1, 24.0, fresh=False)
    assert roster.heard(1, 26.0) is None


def test_a_master_that_was_away_gives_everybody_the_time_of_a_heartbeat():
    roster = roster_of()
    assert looks(roster, 0, 3) == [] and roster.look(100.0) == []
    assert looks(roster, 101, 109) == []
    assert [lost.worker for lost in roster.look(109.0)] == [0, 1]


def test_stopped_then_killed_without_a_restart_left_is_lost_for_good():
    roster = roster_of(restarts=0)
    assert [lost.returns for lost in looks(roster, 0, 10)] == [True, True]
    assert roster.died(0, 10.0) == Lost(0, 10.0, returns=False)
    assert roster.due(10.0) == [] and roster.given_up(0)


def test_stopped_then_killed_with_a_restart_is_started_and_not_reported_twice():
    roster = roster_of(restarts=1)
    looks(roster, 0, 10)
    assert roster.died(0, 10.0) is None
    assert roster.due(10.0) == [0] and roster.due(10.0) == []
    assert roster.ready(0, 11.0) == Joined(0, 11.0, fresh=True)


def test_who_is_started_again_and_does_not_get_ready_is_given_up():
    roster = roster_of()
    assert roster.died(0, 1.0) == Lost(0, 1.0, returns=True)
    assert roster.due(1.0) == [0]
    for second in range(2, 32):
        roster.heard(1, float(second))
        assert roster.look(float(second)) == []
    assert roster.look(32.0) == [Lost(0, 32.0, returns=False)]
    assert roster.died(0, 33.0) is None and roster.due(99.0) == []
    assert roster.ready(0, 40.0) == Joined(0, 40.0, fresh=True), "better late than never"


def test_starts_that_fail_wait_before_the_next_one():
    roster = roster_of(restarts=3)
    roster.died(0, 1.0)
    assert roster.due(1.0) == [0]
    assert roster.died(0, 1.0) is None, "the master knows that it may return"
    assert roster.due(1.0 + PAUSE / 2) == [] and roster.due(1.0 + PAUSE) == [0]
    assert roster.died(0, 2.0) is None
    assert roster.due(2.0 + PAUSE) == [] and roster.due(2.0 + 2 * PAUSE) == [0]
    assert roster.died(0, 5.0) == Lost(0, 5.0, returns=False)


def test_an_error_is_told_once_a_round_and_worker():
    roster = roster_of()
    assert roster.failed(0, 3, "first", 1.0) == [Failed(0, 1.0, 3, "first")]
    assert roster.failed(0, 3, "again", 2.0) == [] == roster.failed(0, 2, "late", 2.0)
    assert roster.failed(1, 3, "mine", 2.0) == [Failed(1, 2.0, 3, "mine")]
    assert roster.failed(0, 4, "next", 3.0) == [Failed(0, 3.0, 4, "next")]
    roster.died(0, 4.0)
    roster.due(4.0)
    roster.ready(0, 5.0)
    assert roster.failed(0, 4, "successor", 6.0) == [Failed(0, 6.0, 4, "successor")], "it was asked again, and owes an answer"


def test_an_error_is_a_sign_of_life():
    roster = roster_of()
    looks(roster, 0, 10)
    assert roster.failed(0, 1, "slow and wrong", 12.0) == [Joined(0, 12.0, fresh=False), Failed(0, 12.0, 1, "slow and wrong")]


@dataclass
class Watcher:
    """What a master knows, from events alone: True ready, False lost and may return, None lost for good."""

    known: dict[int, bool | None] = field(default_factory=dict)

    def take(self, event):
        if isinstance(event, Joined):
            assert self.known[event.worker] is not True or event.fresh, "joined without having been lost"
            self.known[event.worker] = True
        elif isinstance(event, Lost):
            told = False if event.returns else None
            assert self.known[event.worker] is not told, "lost twice in a row without cause"
            assert not (self.known[event.worker] is None and told is False), "given up, and then promised"
            self.known[event.worker] = told


STEPS = st.lists(
    st.tuples(st.sampled_from(["heard", "ready", "failed", "died", "due", "look"]), st.integers(0, 2)), max_size=60
)


@settings(max_examples=300, deadline=None)
@given(STEPS, st.lists(st.sampled_from([0.0, 0.1, 1.0, 3.0, 9.0, 40.0]), min_size=60, max_size=60), st.integers(0, 2))
def test_whatever_happens_nobody_is_forgotten(steps, pauses, restarts):
    roster, watcher, now = roster_of(3, restarts), Watcher(dict.fromkeys(range(3), True)), 0.0
    for (what, worker), pause in zip(steps, pauses, strict=False):
        now += pause
        place = roster._entries[worker].place
        if what == "ready" and place not in (Place.STARTING, Place.GONE):
            continue  # a process says so once
        events = {
            "heard": lambda w=worker, t=now: [roster.heard(w, t)],
            "ready": lambda w=worker, t=now: [roster.ready(w, t)],
            "failed": lambda w=worker, t=now: roster.failed(w, 5, "", t),
            "died": lambda w=worker, t=now: [roster.died(w, t)],
            "due": lambda t=now: roster.due(t) and [],
            "look": lambda t=now: roster.look(t),
        }[what]()
        for event in events:
            watcher.take(event)
        agree(roster, watcher)
    end(roster, watcher, now, restarts)


def agree(roster, watcher):
    """Who is ready is known to be; who is neither ready nor returning was reported as lost for good."""
    for worker, entry in enumerate(roster._entries):
        expected = {Place.READY: True, Place.GONE: None}.get(entry.place, False)
        assert watcher.known[worker] is expected, (worker, entry.place)


def end(roster, watcher, now, restarts):
    """Nothing is heard any more, and every process that is started dies or never gets ready: all are given up in the end."""
    for _ in range(4 * (restarts + 2)):
        for worker in range(3):
            if roster.is_ready(worker):
                watcher.take(roster.died(worker, now))
        now += 4.0
        roster.due(now)
        for _ in range(12):
            now += 3.0
            for event in roster.look(now):
                watcher.take(event)
    assert all(known is None for known in watcher.known.values())
