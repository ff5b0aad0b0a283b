"""Rounds that hand out tasks, without engines: workers that are late, lost, back or lying never make a wrong gradient."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from unstraggle import (
    Arrived,
    Code,
    Dropped,
    Elapsed,
    Failed,
    Finished,
    Invalid,
    Joined,
    Lost,
    Recovered,
    Round,
    State,
    Tell,
    Terms,
)
from unstraggle.codes import sums_on_request, work_conserving
from unstraggle.runtime.handout import Handout
from unstraggle.scheme.code import Messages, Tasks
from unstraggle.scheme.handing import OVERDUE, Handing, OnRequest


@dataclass
class Worker:
    """What a worker knows: its queue, what it has finished, and what its sum holds."""

    epoch: int = 0
    todo: list[int] = field(default_factory=list)
    waiting: set[int] = field(default_factory=set)
    total: list[int] = field(default_factory=list)

    def hear(self, word: Tell) -> tuple[int, list[int]] | None:
        """Follow a word; gives the ticket and what the sum holds where it is asked for."""
        if word.epoch != self.epoch:
            self.epoch, self.todo, self.waiting, self.total = word.epoch, [], set(), []
        if word.done >= 0 and word.done in self.waiting:
            self.waiting.discard(word.done)
            self.total += [word.done] if word.counts else []
        if word.task >= 0:
            self.todo.append(word.task)
        if not word.ticket:
            return None
        assert word.count == len(self.total), "the master knows what a sum holds"
        return word.ticket, list(self.total)


class Play:
    """A round with workers that do what they are told, in any order. sums: what the last accepted sum of each worker holds."""

    def __init__(self, code: Code, rng: np.random.Generator, terms: Terms | None = None) -> None:
        self.code, self.rng, self.clock = code, rng, 0.0
        self.round = Round(code, Recovered(), terms=terms or Terms(on_shortfall="wait"))
        self.workers = [Worker() for _ in range(code.n)]
        self.mail: list[tuple[int, int, list[int]]] = []
        self.sums: dict[int, list[int]] = {}
        self.given: list[tuple[int, int]] = []
        self.follow(self.round.begin())

    def follow(self, instructions: tuple[object, ...]) -> None:
        for one in instructions:
            if isinstance(one, Tell):
                if one.task >= 0:
                    self.given.append((one.worker, int(self.code.tasks.part[one.task])))
                answer = self.workers[one.worker].hear(one)
                if answer is not None:
                    self.mail.append((one.worker, *answer))

    def feed(self, *events: object) -> None:
        self.follow(self.round.feed(*events))

    def finish(self, worker: int) -> None:
        """A worker does its next task."""
        mine = self.workers[worker]
        task = mine.todo.pop(0)
        mine.waiting.add(task)
        self.clock += float(self.rng.exponential())
        self.feed(Finished(worker, task, self.clock, 0, mine.epoch))

    def deliver(self) -> None:
        """One of the sums that are on their way arrives."""
        worker, ticket, tasks = self.mail.pop(int(self.rng.integers(len(self.mail))))
        instructions = self.round.feed(Arrived(worker, self.clock, 0, ticket))
        if self.round.taken:
            self.sums[worker] = tasks
        self.follow(instructions)

    def active(self) -> list[int]:
        lost = self.round.lost.keys() | self.round.failures.keys()
        return [worker for worker, mine in enumerate(self.workers) if mine.todo and worker not in lost]

    def run(self, faults: float = 0.0) -> None:
        """Until it is over."""
        for _ in range(10_000):
            if not self.round.open:
                return
            if self.rng.random() < faults:
                self.fault()
            elif self.mail and (not self.active() or self.rng.random() < 0.3):
                self.deliver()
            elif self.active():
                self.finish(int(self.rng.choice(self.active())))
            else:
                self.clock += 1.0
                self.feed(Elapsed(self.clock))
        raise AssertionError("the round does not end")

    def fault(self) -> None:
        """A worker dies, comes back, lies, repeats itself, or its sum is damaged."""
        worker, kind = int(self.rng.integers(self.code.n)), self.rng.integers(6)
        if kind == 0 and len(self.round.lost) < self.code.load - 1:
            self.mail = [letter for letter in self.mail if letter[0] != worker]
            self.feed(Lost(worker, self.clock, returns=True))
        elif kind == 1 and self.round.lost:
            back = sorted(self.round.lost)[0]
            fresh = bool(self.rng.integers(2))
            if fresh:
                self.workers[back] = Worker(epoch=self.workers[back].epoch)
            self.feed(Joined(back, self.clock, fresh))
        elif kind == 2:
            self.feed(Finished(worker, int(self.rng.integers(len(self.code.tasks))), self.clock, 0, 99))
        elif kind == 3 and not self.workers[worker].todo:
            self.feed(Finished(worker, int(self.rng.integers(len(self.code.tasks))), self.clock, 0, self.workers[worker].epoch))
        elif kind == 4:
            self.feed(Arrived(worker, self.clock, 0, int(self.rng.integers(1, 5)) + 10_000))
        elif kind == 5 and self.mail:
            letter = self.mail.pop()
            self.feed(Dropped(letter[0], self.clock, damaged=True))

    def check(self) -> None:
        """Every partition is in one of the sums that count."""
        weights = self.round.decoded.weights[0]
        held = [self.code.tasks.part[task] for worker, tasks in self.sums.items() if weights[worker] for task in tasks]
        assert sorted(held) == list(range(self.code.k)) and self.round.exact


CODES = (
    work_conserving(5, load=3, pieces=3),
    work_conserving(4, load=4, pieces=2, helpers=False),
    work_conserving(6, load=2, pieces=4, reserve=2),
    sums_on_request(5, load=3, pieces=2),
)


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_any_order_of_events_and_faults_gives_every_partition_once(code: Code) -> None:
    for seed in range(60):
        play = Play(code, np.random.default_rng(seed))
        play.run(faults=0.0 if seed < 10 else 0.15)
        assert play.round.state is State.DONE, seed
        play.check()


def test_nothing_is_given_twice_while_anything_is_fresh() -> None:
    play = Play(work_conserving(5, load=5, pieces=4), np.random.default_rng(0))
    play.run()
    first = [part for _, part in play.given[: play.code.k]]
    assert sorted(first) == list(range(play.code.k))


def test_a_worker_takes_its_own_partitions_first_and_then_those_of_who_has_the_most_left() -> None:
    play = Play(work_conserving(3, load=3, pieces=3), np.random.default_rng(0))
    for _ in range(4):
        play.finish(0)
    assert [part for worker, part in play.given if worker == 0] == [
        0,
        1,
        2,
        5,
        8,
    ]  # from the end, of the next, then of the other


def test_without_helpers_each_partition_is_given_once() -> None:
    play = Play(work_conserving(4, load=4, pieces=3, helpers=False), np.random.default_rng(3))
    play.run()
    assert len(play.given) == play.code.k


def test_what_is_overdue_is_given_to_a_helper_when_it_takes_longer_than_the_helper_would() -> None:
    round = Round(work_conserving(2, load=2, pieces=1), Recovered())
    assert [word.task for word in round.begin() if isinstance(word, Tell)] == [0, 2]
    said = round.feed(Finished(0, 0, 1.0))
    assert [word for word in said if isinstance(word, Tell) and word.task >= 0] == []
    alarm = [one.time for one in said if hasattr(one, "time")]
    assert alarm == [OVERDUE]  # worker 0 took 1.0, so what was given at 0 is overdue then
    assert [word.task for word in round.feed(Elapsed(OVERDUE)) if isinstance(word, Tell)] == [1]


def test_a_worker_that_dies_after_finishing_and_before_its_sum_came_gives_its_work_back() -> None:
    play = Play(work_conserving(2, load=2, pieces=2), np.random.default_rng(0))
    while play.active():
        play.finish(play.active()[0])
    assert play.mail and play.round.open
    lost = play.mail[0][0]
    play.mail = [letter for letter in play.mail if letter[0] != lost]
    play.feed(Lost(lost, play.clock))
    play.run()
    assert {worker for worker in play.sums if play.round.decoded.weights[0, worker]} == {1 - lost}
    play.check()


def test_a_sum_that_is_here_outlives_its_worker() -> None:
    play = Play(work_conserving(2, load=2, pieces=2), np.random.default_rng(0))
    while play.active():
        play.finish(play.active()[0])
    first = play.mail[0][0]
    while first not in play.sums:
        play.deliver()
    given = len(play.given)
    play.feed(Lost(first, play.clock))
    play.run()
    play.check()
    assert len(play.given) == given


def test_lies_are_not_believed() -> None:
    play = Play(work_conserving(2, load=1, pieces=2), np.random.default_rng(0))
    before = len(play.given)
    for lie in (
        Finished(0, 3, 0.1),
        Finished(1, 0, 0.1),
        Finished(0, 1, 0.1),
        Finished(0, 0, 0.1, epoch=7),
        Finished(0, 0, 0.1, round=-3),
    ):
        play.feed(lie)
    assert len(play.given) == before  # not its own, not its turn, not of its epoch, not of this round
    play.feed(Arrived(0, 0.2, 0, ticket=1))
    assert not play.round.got.any()


def test_a_finished_task_counts_once() -> None:
    play = Play(work_conserving(2, load=1, pieces=3), np.random.default_rng(0))
    play.finish(0)
    play.feed(Finished(0, 0, play.clock))
    assert play.workers[0].total == [0] and play.workers[0].todo == [1]


def test_who_is_still_at_an_old_task_gets_nothing_before_it_says_so() -> None:
    play = Play(work_conserving(2, load=2, pieces=2), np.random.default_rng(0), Terms(busy=(1,)))
    assert {worker for worker, _ in play.given} == {0} and play.round.busy == (0, 1)
    play.feed(Finished(1, 5, 0.3, round=-1))
    assert {worker for worker, _ in play.given} == {0, 1}


def test_an_error_of_the_problem_makes_a_worker_a_straggler() -> None:
    play = Play(work_conserving(3, load=2, pieces=2), np.random.default_rng(0))
    play.feed(Failed(1, 0.1, 0, "ZeroDivisionError"))
    play.run()
    assert play.round.missed == {1}
    play.check()


def test_a_round_that_nobody_can_complete_is_given_up() -> None:
    round = Round(work_conserving(3, load=1, pieces=2), Recovered())
    round.begin()
    round.feed(Lost(1, 0.5))
    assert round.state is State.FAILED


def test_damaged_sums_are_asked_for_again_and_at_last_given_to_others() -> None:
    play = Play(work_conserving(2, load=2, pieces=1), np.random.default_rng(0))
    play.finish(0)
    play.finish(1)
    for _ in range(3):
        worker = next(letter for letter in play.mail if letter[0] == 1)
        play.mail.remove(worker)
        play.feed(Dropped(1, play.clock, damaged=True))
    play.run()
    assert {worker for worker in play.sums if play.round.decoded.weights[0, worker]} == {0}
    play.check()


def test_settling_takes_the_sums_of_what_is_done() -> None:
    play = Play(work_conserving(2, load=1, pieces=2), np.random.default_rng(0), Terms(on_shortfall="approximate"))
    play.finish(0)
    play.feed(Lost(1, play.clock))
    play.run()
    assert play.round.state is State.APPROXIMATED
    assert play.round.decoded.residual == pytest.approx(np.sqrt(0.5)) and not play.round.exact


def test_other_stop_rules_are_refused_with_the_way_out() -> None:
    from unstraggle import Deadline
    from unstraggle.scheme.stop import code_and_stop

    with pytest.raises(Invalid, match="Leave the stop rule out"):
        code_and_stop(work_conserving(2, load=1, pieces=2), Deadline(1.0))


def test_handing_needs_a_table_that_can_be_handed_out() -> None:
    from dataclasses import replace

    code = work_conserving(3, load=2, pieces=2)
    assert code.handing is not None
    with pytest.raises(Invalid, match="a worker for each of 6 partitions"):
        replace(code, handing=replace(code.handing, owner=(0, 1)))
    with pytest.raises(Invalid, match="all that it owns"):
        replace(code, handing=replace(code.handing, owner=(1, 1, 2, 2, 0, 0)))


def test_handout_knows_who_is_occupied() -> None:
    handout = Handout(work_conserving(2, load=1, pieces=1), 0, busy=(1,))
    handout.join(0, 0.0)
    handout.join(1, 0.0)
    assert handout.occupied == {0, 1}
    handout.finished(0, 0, 0, 1.0)
    assert handout.occupied == {1}


def test_who_takes_from_another_holds_all_that_it_owns():
    """Else a worker would be told to do what it does not have: worker 1 holds one of the two partitions of worker 0."""
    tasks = Tasks(np.array([0, 0, 1, 1]), np.array([0, 1, 2, 1]), work=1.0)
    coef = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]])
    messages = Messages(np.arange(2), np.full(2, 2), coef)
    code = Code("partly", 2, tasks, messages, OnRequest(messages.coef), handing=Handing((0, 0, 1), in_order=True))
    assert code.handing.in_order, "who is told nothing takes nothing"
    with pytest.raises(Invalid, match=r"worker 1 holds some of the partitions that worker 0 owns, but not \[0\]"):
        Code("partly", 2, tasks, messages, OnRequest(messages.coef), handing=Handing((0, 0, 1)))
