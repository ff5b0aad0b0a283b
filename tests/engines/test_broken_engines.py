"""The contract of an engine finds engines that do not keep it: each one here breaks one promise, on purpose."""

import importlib.util
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from unstraggle import Announced, Invalid, Master, codes, latency
from unstraggle.engines import Chaos, Failed, Finished, Joined, Local, Lost, Message, Virtual, WorkerFailed
from unstraggle.testing import BrokenEngine, check_engine

from ..problems import Constant

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "own_engine.py"
WITHIN = 4.0
"""Seconds after which what has not happened never will, for engines of which nothing else is expected. They are quick."""
LONG = 120.0
"""The same for those of which something else is: a busy machine must not be taken for them."""


def _threads():
    spec = importlib.util.spec_from_file_location("own_engine", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Threads


Threads = _threads()


def without(engine, until, hidden):
    """What comes, less what is hidden; waits on where that was all."""
    while True:
        events = [one for one in engine(until) if not hidden(one)]
        if events or (until is not None and engine.__self__.clock() >= until):
            return events


class IgnoresCancel(Threads):
    def cancel(self, round, workers):
        pass


class RepeatsOrdersToEverybody(Threads):
    def start(self, order):
        super().start(replace(order, workers=None))


class LosesWhatComesWithAnOrder(Threads):
    def start(self, order):
        super().start(replace(order, context=b""))


class WaitsPastUntil(Threads):
    def next(self, until):
        return super().next(None)


class JumpsPastUntil(Virtual):
    def next(self, until):
        return super().next(1e9 if until is None else until + 1000)


class ComesBackTooEarly(Threads):
    def next(self, until):
        return super().next(0.0)


class DropsEverySecondMessage(Threads):
    def next(self, until):
        return without(super().next, until, lambda one: isinstance(one, Message) and one.index % 2)


class RenumbersLateMessages(Threads):
    def next(self, until):
        return [replace(one, round=self._round) if isinstance(one, Message) else one for one in super().next(until)]


class BeginsLateAndRenumbers(RenumbersLateMessages):
    """The same where worker 0 begins after the others have sent everything, as on a busy machine."""

    def _work(self, share, job):
        if share.worker == 0:
            time.sleep(0.1)
        super()._work(share, job)


class DeliversPayloadsOfTheLastRound(Virtual):
    """Two rounds share a buffer, and the new payload comes too late."""

    def next(self, until):
        events, last = [], getattr(self, "last", {})
        for one in super().next(until):
            if isinstance(one, Message):
                events.append(replace(one, payload=last.get(one.index, one.payload), checksum=None))
                last[one.index] = one.payload
            else:
                events.append(one)
        self.last = last
        return events


class SwapsTwoWorkers(Threads):
    """Their messages come as each other's."""

    def next(self, until):
        swapped = {0: 1, 1: 0}
        for one in (events := super().next(until)):
            if isinstance(one, Message):
                one.worker = swapped.get(one.worker, one.worker)
        return events


class SwapsTwoPayloads(Virtual):
    """The bytes of one message come as another's, with a checksum that fits."""

    def next(self, until):
        events = super().next(until)
        for one in events:
            if isinstance(one, Message) and one.index in (0, 1):
                held, self.held = getattr(self, "held", one), one
                one.payload, one.checksum = held.payload, held.checksum
        return events


class RaisesInsteadOfFailed(Threads):
    def next(self, until):
        events = super().next(until)
        for one in events:
            if isinstance(one, Failed):
                raise WorkerFailed(one.worker, one.details)
        return events


class HidesErrors(Threads):
    def next(self, until):
        return without(super().next, until, lambda one: isinstance(one, Failed))


class ReportsAnErrorTwice(Threads):
    def next(self, until):
        return [copy for one in super().next(until) for copy in ([one, one] if isinstance(one, Failed) else [one])]


class ReusesThePayloadBuffer(Threads):
    """One place for each message, which is written again when a worker is asked again."""

    def next(self, until):
        self.rooms = getattr(self, "rooms", {})
        for one in (events := super().next(until)):
            if isinstance(one, Message) and one.round == self._round:
                room = self.rooms.setdefault((one.index, len(one.payload)), np.empty(len(one.payload), np.uint8))
                room[:] = one.payload
                one.payload = room.view()
                one.payload.flags.writeable = False
        return events


class GivesPayloadsThatCanBeWritten(Threads):
    def next(self, until):
        for one in (events := super().next(until)):
            if isinstance(one, Message):
                one.payload = one.payload.copy()
        return events


class ClockThatNeverRestarts(Threads):
    BEGAN = time.monotonic() - 1000.0

    def clock(self):
        return time.monotonic() - self.BEGAN


class ClockInMilliseconds(Threads):
    def next(self, until):
        for one in (events := super().next(until)):
            one.time *= 1000
        return events


class SharesTheParameters(Threads):
    """Workers read them in place, while the caller changes them."""

    def start(self, order):
        class Same:
            def __init__(self, params):
                self.copy = lambda: params

        super().start(replace(order, params=Same(order.params)))


class OpensTwice(Threads):
    def open(self, code):
        self._orders = []
        super().open(code)


class WrongChecksum(Threads):
    def next(self, until):
        for one in (events := super().next(until)):
            if isinstance(one, Message):
                one.checksum = (one.checksum or 0) ^ 1
        return events


class ClosesOnce(Threads):
    closed = False

    def close(self):
        if self.closed:
            raise OSError("closed")
        super().close()
        self.closed = True


THREADS = {
    LosesWhatComesWithAnOrder: "another round's context",
    IgnoresCancel: "was cancelled after the first message, but workers did",
    RepeatsOrdersToEverybody: "an order for worker 1 was repeated, but the others computed",
    WaitsPastUntil: r"next\(.*\) did not return within 4 s",
    ComesBackTooEarly: "brings nothing, and the time has not come",
    DropsEverySecondMessage: "a round without faults did not happen",
    RenumbersLateMessages: "another one's payload",
    BeginsLateAndRenumbers: "another one's payload",
    SwapsTwoWorkers: "comes as one of worker",
    RaisesInsteadOfFailed: "next raises WorkerFailed",
    HidesErrors: "the report of an error did not happen",
    ReportsAnErrorTwice: "once, but reported were",
    ReusesThePayloadBuffer: "changed while it could be read",
    GivesPayloadsThatCanBeWritten: "a payload can be written to",
    ClockThatNeverRestarts: "has just started, but its clock shows",
    ClockInMilliseconds: "is dated",
    SharesTheParameters: "another one's payload|tasks each, but computed",
    OpensTwice: "can be opened twice",
    WrongChecksum: "is not that of its payload",
    ClosesOnce: "the second close raises",
}
SAMPLED = {
    JumpsPastUntil: "waits until",
    DeliversPayloadsOfTheLastRound: "another one's payload",
    SwapsTwoPayloads: "another one's payload",
}


class NeverReportsLost(Local):
    def next(self, until):
        return without(super().next, until, lambda one: isinstance(one, Lost))


class ForgetsThatOrdersAreGone(Local):
    """It says that a worker goes on, but that is another process."""

    def next(self, until):
        return [replace(one, fresh=False) if isinstance(one, Joined) else one for one in super().next(until)]


# Words, which are for codes that hand out tasks: others go by another way through this engine


class LosesEverySecondWord(Virtual):
    heard = 0

    def tell(self, word):
        self.heard += 1
        if self.heard % 2:
            super().tell(word)


class RepeatsWords(Virtual):
    def tell(self, word):
        super().tell(word)
        super().tell(word)


class SwapsWords(Virtual):
    """Every other one waits for the next."""

    held = None

    def tell(self, word):
        if self.held is None and word.task >= 0:
            self.held = word
            return
        super().tell(word)
        if self.held is not None:
            held, self.held = self.held, None
            super().tell(held)


class TellsAnotherWorker(Virtual):
    def tell(self, word):
        super().tell(replace(word, worker=(word.worker + 1) % 3))


class CountsEverything(Virtual):
    def tell(self, word):
        super().tell(replace(word, counts=True))


class HeedsWordsOfEarlierRounds(Virtual):
    newest = 0

    def start(self, order):
        self.newest = order.round
        super().start(order)

    def tell(self, word):
        super().tell(replace(word, round=self.newest))


class ForgetsEpochs(Virtual):
    def tell(self, word):
        super().tell(replace(word, epoch=0))


class RaisesWhereAWordComesLate(HeedsWordsOfEarlierRounds):
    def tell(self, word):
        if word.round != self.newest:
            raise KeyError(word.round)
        Virtual.tell(self, word)


class LosesWhatIsFinished(Virtual):
    def next(self, until):
        return without(super().next, until, lambda one: isinstance(one, Finished) and one.worker == 1)


class RepeatsWhatIsFinished(Virtual):
    def next(self, until):
        return [copy for one in super().next(until) for copy in ([one, one] if isinstance(one, Finished) else [one])]


class RenumbersWhatIsFinishedLate(HeedsWordsOfEarlierRounds):
    def tell(self, word):
        Virtual.tell(self, word)

    def next(self, until):
        return [replace(one, round=self.newest) if isinstance(one, Finished) else one for one in super().next(until)]


class LosesTickets(Virtual):
    def next(self, until):
        return [replace(one, ticket=0) if isinstance(one, Message) and one.ticket else one for one in super().next(until)]


class SendsSumsUnasked(Virtual):
    """A sum that is asked for again is that of the first time."""

    def next(self, until):
        events, self.first = [], getattr(self, "first", {})
        for one in super().next(until):
            if isinstance(one, Message) and one.ticket:
                first = self.first.setdefault((one.worker, one.round), one)
                one = replace(one, payload=first.payload, checksum=first.checksum)
            events.append(one)
        return events


WORDS = {
    LosesEverySecondWord: "did not happen",
    RepeatsWords: r"but say that they have done \[\[0, 0, 5, 5\]|but began",
    SwapsWords: "but say that they have done|did not happen",
    TellsAnotherWorker: "but say that they have done|did not happen",
    CountsEverything: "asked for a sum of 1 results, but has 2 that count",
    HeedsWordsOfEarlierRounds: "one of this for 3, but begun is",
    ForgetsEpochs: "asked for a sum of 1 results, but has 2 that count",
    RaisesWhereAWordComesLate: "tell raises KeyError",
    LosesWhatIsFinished: "what workers were told to do did not happen",
    RepeatsWhatIsFinished: "but say that they have done",
    RenumbersWhatIsFinishedLate: r"did \[6\] in the round before and \[8\] in this, but says \[\] and",
    LosesTickets: "for ticket 0, unasked",
    SendsSumsUnasked: "0 and 9 count, but its sum holds",
}


class SendsAnyway(Virtual):
    def start(self, order):
        super().start(replace(order, pull=False))


class LosesAnnouncements(Virtual):
    def next(self, until):
        return without(super().next, until, lambda one: isinstance(one, Announced) and one.worker == 1)


class AnnouncesTwice(Virtual):
    def next(self, until):
        return [copy for one in super().next(until) for copy in ([one, one] if isinstance(one, Announced) else [one])]


class SendsAnother(Virtual):
    def tell(self, word):
        super().tell(replace(word, message=word.message ^ 1) if word.message >= 0 else word)


class SendsWhatIsNotThere(Virtual):
    def tell(self, word):
        if word.message >= 0:
            self._made.add(word.message)
        super().tell(word)


FETCHES = {
    SendsAnyway: "comes unasked",
    LosesAnnouncements: "the announcement of all messages did not happen",
    AnnouncesTwice: "worker 0 has messages .* but announced",
    SendsAnother: "comes unasked",
    SendsWhatIsNotThere: "word that a message is not there did not happen",
}


def sampled(kind, carry=False):
    return lambda problem: kind(problem, latency.ShiftedExponential(rate=10.0, shift=0.1), rng=0, carry=carry)


def test_the_engine_that_they_are_made_of_keeps_its_promises():
    report = check_engine(Threads, within=LONG)
    assert report.codes == 14 and "repeated" in report.faults and "told" not in report.faults
    assert {"repeated", "asked_meanwhile"} <= set(check_engine(sampled(Virtual), within=LONG).faults)
    report = check_engine(sampled(Virtual, carry=True), within=LONG)
    assert report.codes == 16 and "left_behind" in report.faults


@pytest.mark.parametrize("kind", THREADS, ids=lambda kind: kind.__name__)
def test_broken_threads(kind):
    within = WITHIN if "did not" in THREADS[kind] else LONG
    with pytest.raises(BrokenEngine, match=THREADS[kind]):
        check_engine(kind, [], within=within)


@pytest.mark.parametrize("kind", SAMPLED, ids=lambda kind: kind.__name__)
def test_broken_sampled_engines(kind):
    with pytest.raises(BrokenEngine, match=SAMPLED[kind]):
        check_engine(sampled(kind), [], within=LONG)


@pytest.mark.parametrize("kind", WORDS, ids=lambda kind: kind.__name__)
def test_broken_words(kind):
    with pytest.raises(BrokenEngine, match=WORDS[kind]):
        check_engine(sampled(kind, carry=True), [], within=LONG)


@pytest.mark.parametrize("kind", FETCHES, ids=lambda kind: kind.__name__)
def test_broken_fetches(kind):
    with pytest.raises(BrokenEngine, match=FETCHES[kind]):
        check_engine(sampled(kind), [], within=LONG)


def test_engines_without_words_are_not_asked_for_them():
    with pytest.raises(Invalid, match="workers keep messages"):
        Master(codes.uncoded(3), Chaos(Threads(Constant(3))), transfer="pull")
    with pytest.raises(Invalid, match="for which an engine needs `tell`"):
        check_engine(lambda problem: Chaos(Threads(problem)), [codes.work_conserving(3, load=2, pieces=2)], faults=False)


@pytest.mark.parametrize("kind", [NeverReportsLost, ForgetsThatOrdersAreGone], ids=lambda kind: kind.__name__)
def test_broken_processes(kind):
    with pytest.raises(BrokenEngine, match="did not happen"):
        check_engine(lambda problem: kind(problem, heartbeat=1.0), [], within=WITHIN)


def test_chaos_is_an_engine_like_others():
    """With what the contract allows: messages that come twice, late, and out of order."""
    report = check_engine(
        lambda problem: Chaos(Threads(problem), duplicate=0.2, hold=0.2, rng=0), [codes.cyclic_repetition(3, s=1)], within=LONG
    )
    assert "late" in report.faults
