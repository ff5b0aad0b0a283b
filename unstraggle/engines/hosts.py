"""Hosts: which worker brings parameters to its host, and who is told where they stand. No I/O, no clock of its own.

Parameters leave the master once for each host. One of its workers, the carrier, gets them into memory that its neighbours can
find; then all are told the place. Another one carries where that one dies, or takes much longer than usual.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

FIRST = 10.0
"""Seconds after which another worker carries as well, while nobody knows how long it takes."""
SLOW = 4.0
"""Times the last one after which another worker does, but no less than this many seconds:"""
LEAST = 1.0


class Carry(NamedTuple):
    """Send the parameters to a worker, and its order with them."""

    worker: int


class Point(NamedTuple):
    """Send a worker its order, with the place of the parameters; None: the master's own memory."""

    worker: int
    place: bytes | None


Step = Carry | Point


@dataclass(eq=False)
class Host:
    """The workers of a host, and where the parameters of a round are. waiting: for them. tried: who was asked to carry."""

    members: set[int] = field(default_factory=set)
    carrier: int = -1
    place: bytes | None = None
    waiting: dict[int, None] = field(default_factory=dict)
    tried: set[int] = field(default_factory=set)
    since: float = 0.0
    took: float | None = None
    slow: int = -1

    def limit(self) -> float:
        return self.since + (FIRST if self.took is None else max(LEAST, SLOW * self.took))


class Hosts:
    """The workers by host. home: the master's. is_ready(worker): whether it takes orders.

    >>> hosts = Hosts("a")
    >>> for worker, machine in enumerate("abb"):
    ...     hosts.settle(worker, machine)
    >>> hosts.order(0, [0, 1, 2], now=0.0)
    [Point(worker=0, place=None), Carry(worker=1)]
    >>> hosts.have(1, 0, b"there", now=0.5)
    [Point(worker=2, place=b'there')]
    """

    def __init__(self, home: str, is_ready: Callable[[int], bool] = lambda worker: True) -> None:
        self._home, self._is_ready = Host(), is_ready
        self._hosts: dict[str, Host] = {home: self._home}
        self._of: dict[int, Host] = {}
        self._round = -1

    def settle(self, worker: int, machine: str) -> None:
        """A worker has come, and says where it is."""
        self._move(worker, self._hosts.setdefault(machine, Host()))

    def leave(self, worker: int, now: float) -> list[Step]:
        """A worker is gone, and what it carried with it: who has found that already has it, and others do not."""
        host = self._of.pop(worker, None)
        if host is None:
            return []
        host.members.discard(worker)
        host.waiting.pop(worker, None)
        if host.carrier != worker:
            return []
        host.carrier, host.place = -1, None
        return self._carry(host, now)

    def order(self, round: int, workers: Iterable[int], now: float) -> list[Step]:
        """These workers get the order of a round, or get it again."""
        if round != self._round:
            self._begin(round)
        steps: list[Step] = []
        concerned: dict[Host, None] = {}
        for worker in workers:
            host = self._of[worker]
            if host is self._home or host.place is not None:
                steps.append(Point(worker, host.place))
            elif worker in host.tried:
                steps.append(Carry(worker))
            else:
                host.waiting[worker] = None
                concerned[host] = None
        for host in concerned:
            if not host.tried:
                steps += self._carry(host, now)
        return steps

    def have(self, worker: int, round: int, place: bytes, now: float) -> list[Step]:
        """A worker has the parameters of a round: its neighbours find them there."""
        host = self._of.get(worker)
        if host is None or round != self._round or host.place is not None or worker not in host.tried:
            return []
        host.place, host.carrier, host.took = place, worker, now - host.since
        waiting, host.waiting = host.waiting, {}
        return [Point(other, place) for other in waiting]

    def lacks(self, worker: int, round: int, now: float) -> list[Step]:
        """A worker does not find what it was told of: from now on it has a host of its own."""
        host = self._of.get(worker)
        if host is None or round != self._round or (host is not self._home and len(host.members) == 1):
            return []
        self._move(worker, Host())
        return self.order(round, [worker], now)

    def cancel(self, workers: Iterable[int]) -> None:
        """These need no order any more."""
        for worker in workers:
            if worker in self._of:
                self._of[worker].waiting.pop(worker, None)

    def late(self, now: float) -> list[Step]:
        """Where a carrier takes long, another one carries, too."""
        slow = [host for host in self._all() if host.waiting and now > host.limit()]
        return [step for host in slow for step in self._carry(host, now)]

    def _all(self) -> Iterable[Host]:
        return dict.fromkeys(self._of.values())

    def _begin(self, round: int) -> None:
        """A round begins: who waited for parameters of another one need not. A carrier that has not even taken those is the
        last to be asked."""
        self._round = round
        for host in self._all():
            if host.carrier >= 0 and host.place is None:
                host.slow = host.carrier
            host.place, host.waiting, host.tried = None, {}, set()

    def _carry(self, host: Host, now: float) -> list[Step]:
        """Ask one of those that wait: the last carrier if it may be, and a slow one only if there is no other."""
        free = [worker for worker in host.waiting if self._is_ready(worker)]
        if not free:
            return []
        chosen = min(free, key=lambda worker: (worker == host.slow, worker != host.carrier))
        del host.waiting[chosen]
        host.tried.add(chosen)
        host.carrier, host.since = chosen, now
        return [Carry(chosen)]

    def _move(self, worker: int, host: Host) -> None:
        if worker in self._of:
            self._of[worker].members.discard(worker)
        host.members.add(worker)
        self._of[worker] = host
