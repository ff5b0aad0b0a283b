"""Round: the whole master during one gradient, without I/O. Events in, instructions out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..doors import door
from ..errors import Invalid
from ..scheme.code import Code
from ..scheme.decoders import Decoded
from ..scheme.recovery import By
from ..scheme.stop import Stop
from .events import Announced, Arrived, Dropped, Elapsed, Event, Failed, Finished, Joined, Lost
from .instructions import Ask, Cancel, Fail, Instruction, Say, Until
from .message import Message
from .on_request import intake_of
from .states import LATE, OVER, SHORT, TRANSITIONS, Signal, State
from .terms import Terms, require_sending, require_stop_by

ATTEMPTS = 3
"""How often workers are asked again, while none is lost or joins, for messages that came damaged."""


@door
class Round:
    """One gradient at the master: feed it events, follow its instructions, and ask it for weights when it is over.

    It does no I/O and reads no clock, so that simulations, replays and live engines share it, and a recorded one can be
    decided again. Its transitions stand in `states.TRANSITIONS`.

    >>> from unstraggle import Recovered
    >>> from unstraggle.codes import fractional_repetition
    >>> round = Round(fractional_repetition(4, s=1), Recovered())
    >>> round.feed(Arrived(0, time=0.5))
    ()
    >>> round.feed(Arrived(3, time=0.7))
    (Cancel(workers=(1, 2), round=0),)
    >>> round.state, round.time, round.decoded.weights.round(6).tolist()
    (<State.DONE: 'done'>, 0.7, [[1.0, 0.0, 0.0, 1.0]])
    """

    def __init__(self, code: Code, stop: Stop, number: int = 0, terms: Terms | None = None) -> None:
        self.code, self.stop, self.number, self.terms = code, stop, number, terms or Terms()
        self.state, self.over, self.clock, self.time = State.OPEN, False, 0.0, None  # type: tuple[State, bool, float, float | None]
        early = require_sending(self.terms.sending) == "cluster_stop"
        self._early = require_stop_by(stop) if early else None
        self._intake = intake_of(code, number, self.terms, self._early)
        self.got, self.pending, self._senders = self._intake.got, self._intake.pending, self._intake.senders
        self.taken: list[Any] = []
        """The messages that counted, of the events that it was fed last: as they were fed, so that payloads are not lost."""
        self.lost: dict[int, bool] = {}
        self.missed: set[int] = set()
        self.failures: dict[int, str] = {}
        self.late = self.duplicates = self.damaged = self.notes = 0
        self._then = Signal.MET
        self._limit, self._remind = self.terms.limit, self.terms.remind
        self._since: dict[tuple[Stop, int], float] = {}
        self._attempts = 0
        self._unasked, self._asked_again = 0.0, False
        self._until: float | None = None
        self._idle: set[int] = set()
        self._newcomers: set[int] = set()
        self._out: list[Instruction] = []
        for worker, returns in self.terms.lost:
            self._lose(Lost(worker, 0.0, returns))

    # What people ask

    @property
    def open(self) -> bool:
        return not self.over

    @property
    def usual(self) -> float | None:
        """How long it took, as far as nobody was asked again: to learn from the rest makes later rounds wait longer still."""
        return self._unasked or None if self._asked_again else self.time

    @property
    def gone(self) -> bool:
        """Whether there are messages that will not come by themselves."""
        return bool(self.lost or self.failures or self._intake.dropped)

    @property
    def busy(self) -> tuple[int, ...]:
        """Where tasks are handed out: who is at one."""
        return self._intake.busy

    def recovered(self, by: By) -> bool:
        """Whether the rule, or the span, says that the exact gradient can be decoded from what is here."""
        return self._intake.recovered(by)

    def reachable(self, by: By) -> bool:
        """Whether it would say so if all came that still may."""
        return self._intake.reachable(by)

    def since(self, stop: Stop) -> float | None:
        """Since when another stop rule has been met, None while it is not."""
        key = stop, self._intake.withdrawn
        if key not in self._since and stop.done(self):
            self._since[key] = self.clock
        return self._since.get(key)

    @property
    def noted(self) -> dict[int, float]:
        """Workers that have announced something, and when they did so last."""
        return self._intake.noted

    @property
    def decoded(self) -> Decoded:
        """What the decoder makes of what is here."""
        return self._intake.decoded

    @property
    def exact(self) -> bool:
        """Whether the gradient that can be decoded from what is here is exact: the decoder's word."""
        return self.decoded.exact(self.terms.eps)

    # Events in, instructions out

    def begin(self) -> tuple[Instruction, ...]:
        """Decide before anything has happened: workers may be lost already, and there may be an alarm."""
        for worker in sorted(set(range(self.code.n)) - self.lost.keys()):
            self._out += self._intake.join(worker, 0.0)
        return self.feed(Elapsed(0.0))

    def feed(self, *events: Event | Message) -> tuple[Instruction, ...]:
        """Take events that happened together, then decide once: messages that arrive at the same time all count."""
        self.taken = []
        for event in events:
            if event.time > self.clock and not self.over:
                self.clock = event.time
            if isinstance(event, Message):
                self._arrive(event.index, event)
            else:
                self._take(event)
        if not self.over:
            self._decide()
        if not self._out:
            return ()
        instructions, self._out = tuple(self._out), []
        return instructions

    def _decide(self) -> None:
        signal = self._signal()
        while signal is not None:
            self._follow(signal)
            signal = self._signal() if signal in (Signal.FETCH, Signal.LACK) else None
        if self._newcomers:
            self._welcome()
        if not self.over:
            self._out += self._intake.tick(self.clock)
        self._release()
        self._set_alarm()

    def _take(self, event: Event) -> None:
        if isinstance(event, Arrived):
            self._arrive(event.message, event)
        elif isinstance(event, Failed):
            self._fail(event)
        elif self.over:
            return
        elif isinstance(event, Lost):
            self._lose(event)
        elif isinstance(event, Joined):
            self._join(event)
        elif isinstance(event, Dropped):
            self._drop(event)
        elif isinstance(event, Finished):
            self._finish(event)
        elif isinstance(event, Announced):
            self._hear_of(event)

    def _arrive(self, message: int, event: Arrived | Message) -> None:
        """A message of this round counts whatever its worker is thought to be."""
        if event.round != self.number or self.over:
            self.late += 1
        elif not 0 <= message < len(self.got):
            raise Invalid(f"{self.code.name} has messages 0..{len(self.got) - 1}, but message {message} arrived.")
        elif not self._intake.take(message, event.ticket):
            self.duplicates += 1
        else:
            self.taken.append(event)
            self._unasked = self._unasked if self._asked_again else self.clock

    def _hear_of(self, event: Announced) -> None:
        """A worker has a message, and keeps it."""
        if event.round == self.number:
            self.notes += 1
            self._out += self._intake.announce(event)

    def _drop(self, event: Dropped) -> None:
        self.damaged += event.damaged
        if 0 <= event.message < len(self.got):
            self._out += self._intake.drop(event.message, self.clock)

    def _finish(self, event: Finished) -> None:
        """A worker is free: what it does next is decided only where tasks are handed out."""
        if event.round != self.number:
            self._out += self._intake.freed(event.worker, self.clock)
        else:
            self._out += self._intake.finished(event, self.clock)

    def _fail(self, event: Failed) -> None:
        """An error of a round that is over is counted; the first of a worker makes it a straggler of this round."""
        if event.round != self.number or self.over:
            self.late += 1
            if not self.over:
                self._out += self._intake.freed(event.worker, self.clock)
            return
        self.failures.setdefault(event.worker, event.details)
        self.missed.add(event.worker)
        self._out += self._intake.fail(event.worker, self.clock)
        last = event.details.strip().splitlines()[-1:] or ["no details"]
        self._out.append(Say(f"Worker {event.worker} failed in round {self.number}: {last[0]}"))

    def _lose(self, event: Lost) -> None:
        self._attempts = 0
        self.lost[event.worker] = event.returns
        self._newcomers.discard(event.worker)
        self.missed.add(event.worker)
        self._out += self._intake.lose(event.worker, self.clock)

    def _join(self, event: Joined) -> None:
        """Who comes back takes part."""
        self._attempts = 0
        self.lost.pop(event.worker, None)
        if event.fresh or event.worker not in self.failures:
            self._intake.expect(event.worker, event.fresh)
        if event.fresh:
            self._newcomers.add(event.worker)
        elif event.worker not in self.failures:
            self._out += self._intake.join(event.worker, self.clock)

    def _welcome(self) -> None:
        """Who has forgotten its order gets it again, if it has something to send."""
        owing = set(self._senders[self.pending].tolist()) if not self.over else set()
        asked = sorted(self._newcomers & owing)
        self._ask(asked)
        for worker in asked:
            self._out += self._intake.join(worker, self.clock)
        self._newcomers.clear()

    # Deciding

    def _signal(self) -> Signal | None:
        """What has become of the round. Before an end comes what has to be fetched for it."""
        if self.over:
            return None
        if self.failures and self.failures.keys() & self.terms.suspects:
            return Signal.GIVE_UP
        if self.state is State.FETCHING:
            return self._fetched()
        signal = self._judged()
        if signal not in (Signal.MET, Signal.TAKE) or not self._intake.fetches:
            return signal
        self._then = signal
        return Signal.FETCH

    def _fetched(self) -> Signal | None:
        """Whether all is here that was asked for; a loss may mean that something else must be asked for, or waited for."""
        if self._intake.complete:
            return self._then
        if self._then is Signal.MET and not self.stop.done(self):
            return Signal.LACK
        return Signal.FETCH if self._intake.outdated else self._late()

    def _judged(self) -> Signal | None:
        """What has become of it by what came, or was announced."""
        if self.stop.done(self):
            return Signal.MET
        if self.state is State.SETTLING:
            return Signal.TAKE if self._intake.settled or self._overdue() else None
        nothing = self._intake.exhausted
        if nothing or self.stop.hopeless(self):
            return self._short(nothing)
        return Signal.BACK if self.state is State.WAITING else self._late()

    def _short(self, nothing: bool) -> Signal | None:
        """The stop rule cannot be met by what still may come."""
        policy = self.terms.on_shortfall
        if policy != "wait":
            if self.failures:
                return Signal.GIVE_UP
            return Signal.TAKE if policy == "approximate" and nothing else SHORT[policy]
        if self._attempts < ATTEMPTS and self._askable():
            return Signal.ASK
        if not any(self.lost.values()):
            return Signal.GIVE_UP
        return self._late() if self.state is State.WAITING else Signal.WAIT

    def _late(self) -> Signal | None:
        if not self._overdue():
            return None
        return LATE[self.terms.on_shortfall] if _reached(self._limit, self.clock) else Signal.REMIND

    def _overdue(self) -> bool:
        return _reached(self._limit, self.clock) or _reached(self._remind, self.clock)

    def _askable(self) -> tuple[int, ...]:
        """Workers that are here and owe what will not come by itself."""
        owing = set(self._senders[~self.got & ~self.pending].tolist())
        return tuple(sorted(owing - self.lost.keys() - self.failures.keys()))

    # Acting

    def _follow(self, signal: Signal) -> None:
        self.state = TRANSITIONS[self.state, signal]
        self.over = self.state in OVER
        if signal is Signal.ASK:
            self._attempts += 1
            self._ask(self._askable())
        elif signal is Signal.REMIND:
            self._say_who_is_late()
        elif signal is Signal.SETTLE:
            self._out += self._intake.settle()
        elif signal is Signal.FETCH:
            self._out += self._intake.fetch()
            self._limit = 2 * self.clock if _reached(self._limit, self.clock) else self._limit
        elif signal is Signal.LACK:
            self._out += self._intake.resume()
        if self.over:
            self.time = self.clock
            self._intake.close()
        if self.state is State.FAILED:
            self._give_up()

    def _ask(self, workers: Iterable[int]) -> None:
        asked = tuple(workers)
        for worker in asked:
            self._intake.expect(worker)
        self._idle -= set(asked)
        if asked:
            self._out.append(Ask(asked, self.number))

    def _say_who_is_late(self) -> None:
        """Who waits asks again, for a message may have vanished; the next word comes after twice the time."""
        late = sorted(set(self._senders[self._intake.awaited].tolist()) - self.lost.keys())
        who = f"workers {late}" if late else f"lost workers {sorted(self.lost)} to come back"
        self._out.append(Say(f"Round {self.number} still waits after {self.clock:.3g} s for {who}."))
        if _reached(self._limit, self.clock):
            self._limit = 2 * self.clock
            self._ask_again(late)
        if _reached(self._remind, self.clock):
            self._remind = 2 * self.clock

    def _ask_again(self, workers: list[int]) -> None:
        """Messages may have vanished: orders are repeated, or requests for sums."""
        self._asked_again = True
        words = self._intake.again()
        if words is None:
            self._ask(workers)
        else:
            self._out += words

    def _give_up(self) -> None:
        repeated = sorted(self.failures.keys() & self.terms.suspects)
        worker = next(iter(repeated or self.failures), None)
        self._out.append(Fail(self._why(), worker, self.failures.get(worker, "") if worker is not None else ""))

    def _why(self) -> str:
        lost = f"workers {sorted(self.lost)} are lost" if self.lost else "no worker is lost"
        gone = sorted(worker for worker, returns in self.lost.items() if not returns)
        lost += f" ({gone} for good: restarts, or spare ranks of MPI, are used up)" if gone else ""
        failed = f", workers {sorted(self.failures)} failed" if self.failures else ""
        digits = self.decoded.exact() and not self.exact
        fault = f"amplify rounding by {self.decoded.gain:.2g}" if digits else "do not determine the gradient"
        return (
            f"{self.code.name}: round {self.number} has {self._intake.count} of {len(self.got)} messages, which {fault}; "
            f"{lost}{failed}, {self.damaged} messages came damaged. Use a code that tolerates more stragglers, or "
            'on_shortfall="approximate" or "skip".'
        )

    def _release(self) -> None:
        """Let workers go that have nothing to contribute any more."""
        if self._early is None and not self.over:
            return
        idle = self._needless() - self._idle - self.lost.keys()
        if idle:
            self._idle |= idle
            self._out.append(Cancel(tuple(sorted(idle)), self.number))

    def _needless(self) -> set[int]:
        if self.over or self._early is None:
            return set(self._senders[self.pending].tolist())
        wanted = ~self._intake.served(self._early)
        return set(self._senders[self.pending].tolist()) - set(self._senders[wanted].tolist())

    def _set_alarm(self) -> None:
        if self.over:
            return
        until = None if self.state is State.FETCHING else self.stop.alarm(self)
        for alarm in (self._limit, self._remind, self._intake.alarm()):
            if alarm is not None and (until is None or alarm < until):
                until = alarm
        if until != self._until:
            self._until = until
            self._out.append(Until(until))


def _reached(limit: float | None, clock: float) -> bool:
    return limit is not None and clock >= limit
