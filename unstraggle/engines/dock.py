"""Dock: a worker's end of what is shared on its host. It finds parameters, carries them for its neighbours, and has slots for
its messages where it shares the master's host. Messages of a device come to their slots, or to memory here, by themselves. It
knows how much of a message stands in such memory before all of it does."""

from __future__ import annotations

import mmap
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import Invalid
from ..problems.base import Shows
from ..quantizers.plain import Plain
from ..runtime import frame
from ..runtime.instructions import Tell
from ..runtime.message import Bytes
from ..runtime.serve import Share, Times
from ..scheme.program import Outgoing, Program
from .commons import LONG, OWN, Commons, found, offset_of
from .depot import SIDE_HEAD, memory_of, read_offer, side_size
from .parts import LEAST, TIMES, Part, passes

KNOWN = 2
"""Memories of others that are kept in mind: that of the carrier, and of the one before it."""


class Dock:
    """dim, dtype: of parameters. shares: whether messages go into slots. follows: whether the beginning of a message is known
    before the rest."""

    def __init__(self, worker: int, dim: int, dtype: np.dtype[Any]) -> None:
        self._worker, self._dim, self._dtype = worker, dim, dtype
        self._bytes = dim * dtype.itemsize
        self._known: dict[bytes, Bytes] = {}
        self._own: Commons | None = None
        self._side, self._last, self._came = 0, 0, -1
        self._slots: dict[int, tuple[Bytes, int]] = {}
        self._whole: dict[int, int] = {}
        self._rooms: dict[int, Bytes] = {}
        self._berths: Any = None
        self._again = self.follows = False
        self._passes: Counter[int] = Counter()

    # Parameters

    @property
    def parcel(self) -> int:
        """Bytes of parameters on their way."""
        return SIDE_HEAD + self._bytes

    def room(self) -> Bytes:
        """Where the next parameters go that this worker carries: two places in turn, for neighbours may read the last ones."""
        if self._own is None:
            self._own = Commons(2 * side_size(self._bytes))
        self._side = 1 - self._side
        return self._own.memory[self._side * side_size(self._bytes) :][: self.parcel]

    def came(self, parcel: Bytes) -> tuple[int, bytes]:
        """Parameters are here: their round, and the place where neighbours find them."""
        assert self._own is not None
        self._came = int(parcel[:8].view(np.int64)[0])
        self._last = parcel.ctypes.data - self._own.memory.ctypes.data
        return self._came, self._own.place(self._last)

    def params(self, round: int, place: bytes) -> NDArray[Any] | None:
        """The parameters of a round, an array of its own; None where they are not to be found, or are of another round."""
        if place == OWN:
            memory, at = self._own.memory if self._own is not None and self._came == round else None, self._last
        else:
            memory, at = self._find(place), offset_of(place)
        if memory is None or at + self.parcel > len(memory) or at % SIDE_HEAD:
            return None
        if memory[at : at + 8].view(np.int64)[0] != round:
            return None
        params = memory[at + SIDE_HEAD : at + self.parcel].view(self._dtype)
        params.flags.writeable = False
        return params

    def _find(self, place: bytes) -> Bytes | None:
        """Memory is looked for once; the last bytes of a place say where in it."""
        key = place[:-8]
        if key not in self._known:
            memory = found(place, 2 * side_size(self._bytes), read_only=True)
            if memory is None:
                return None
            self._known = dict([*self._known.items(), (key, memory)][-KNOWN:])
        return self._known[key]

    # Messages

    @property
    def shares(self) -> bool:
        return bool(self._slots)

    def take_offer(self, data: bytes) -> None:
        """Use the master's memory for messages, if it is to be found from here."""
        if not data:
            return
        place, table = read_offer(data)
        memory = found(place, memory_of(table))
        if memory is not None:
            self._slots = {m: (memory[at : at + room], begin) for m, at, room, begin in table.tolist()}

    def put(self, round: int, message: Outgoing, payload: Any, checksum: int, times: Times, again: bool = False) -> None:
        """Copy a message to its slot. What stands there whole stays, since the master may be reading it; unless it has asked
        for another sum, which it reads when the round is over."""
        index = message.index
        if self._whole.get(index) == round and not again:
            return
        slot, begin = self._slots[index]
        head = frame.head(self._worker, index, round, len(payload), checksum, times)
        slot.data[: len(head)] = head
        if not (isinstance(payload, np.ndarray) and payload.ctypes.data == slot.ctypes.data + begin):
            slot.data[begin : begin + len(payload)] = payload
        self._whole[index] = round

    def begin(self, round: int, index: int, kind: np.dtype[Any]) -> Any:
        """Zeros where the payload of a message will stand, or on the device from which it comes, to which its tasks are added.
        None where it is short or coded, or stands there whole already."""
        if self._berths is not None:
            return None if self._whole.get(index) == round else self._berths.begin(index)
        slot, begin = self._slots[index]
        room = slot[begin:]
        if len(room) < LONG or len(room) != kind.itemsize * self._dim or self._whole.get(index) == round:
            return None
        numbers = room.view(kind)
        numbers.fill(0)
        return numbers

    # Messages of a device

    @property
    def begins(self) -> bool:
        """Whether there are places in which messages are added up."""
        return self.shares or self._berths is not None

    def moor(self, share: Share) -> Share:
        """Let messages come from a device through memory that it reaches: their slots, or rooms here, which are used again in
        the next round. So whoever keeps a payload longer than it takes to send it copies it."""
        self._rooms = {message.index: self._room(message.index) for message in share.program.messages}
        self._berths = share.problem.moor(self._rooms)  # type: ignore[attr-defined]
        self._again = bool(share.program.handed)
        return replace(share, land=self.land)

    def _room(self, index: int) -> Bytes:
        if index not in self._slots:
            return np.frombuffer(mmap.mmap(-1, self._bytes), np.uint8)  # whole pages: they are registered with the device
        slot, begin = self._slots[index]
        return slot[begin:]

    def land(self, round: int, index: int, numbers: Any) -> Any:
        """Numbers of a device, in the room of their message. What stands whole in a slot stays, as in `put`, for the master may
        be reading it; but sums that it asks for, it reads when the round is over."""
        if isinstance(numbers, np.ndarray):
            return numbers
        if self._again or self._whole.get(index) != round:
            self._berths.deliver(index, numbers)
        return self._rooms[index].view(self._dtype)

    # Messages that are known bit by bit

    def follow(self, share: Share, know: Callable[[int, int], None]) -> None:
        """Hear how many bytes of a long message stand in its room while the rest is computed, where it is sent from there."""
        problem, long = share.problem, self._bytes >= LEAST and not self.shares and not share.program.handed
        if not long or not isinstance(problem, Shows) or (self._berths is None and not _simple(share)):
            return
        self._rooms = self._rooms or {message.index: self._room(message.index) for message in share.program.messages}
        size, joins = share.dtype.itemsize, share.joins

        def say(index: int, upto: int) -> None:
            if self._berths.passes.get(index, 0) >= self._passes[index]:
                know(index, upto * size)

        self._berths = problem.show(self._rooms, say, min(TIMES, 4 * self._bytes // LEAST))
        self._count: Callable[[Program], Counter[int]] = lambda program: passes(program, joins)
        self.follows = True

    def expect(self, program: Program) -> None:
        """The messages of an order are these."""
        self._passes = self._count(program)

    def part(self, part: Part) -> Bytes:
        """Some bytes of the room of a message."""
        return self._rooms[part.message][part.at : part.at + part.size]

    def stands(self, index: int, payload: Any) -> bool:
        """Whether a payload is what stands in the room of its message."""
        room = self._rooms.get(index)
        return isinstance(payload, np.ndarray) and room is not None and payload.ctypes.data == room.ctypes.data

    # Words

    def require(self, word: Tell, current: int) -> bool:
        """Whether a word of the round whose order this worker has asks for a message that is in its slot; an error if not."""
        if word.round != current:
            return False
        if self._whole.get(word.message) != word.round:
            raise Invalid(f"Worker {word.worker} was asked for message {word.message} of round {word.round}, but has none.")
        return True


def _simple(share: Share) -> bool:
    """Whether a worker has one message, of plain numbers, as the problem has them: one room is enough then, as before."""
    messages, same = share.program.messages, share.dtype == np.dtype(share.problem.dtype)
    return same and len(messages) == len(share.slices) == 1 and isinstance(messages[0].codec, Plain)
