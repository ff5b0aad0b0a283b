"""Problem: data and a model, cut into partitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray


@runtime_checkable
class Problem(Protocol):
    """What workers compute. It travels to every worker, so it must be picklable.

    The same arguments give the same numbers on whichever worker: randomness (batches, dropout) is seeded by step and part.
    Four members are all that a problem needs. What else it may do saves memory or time: `Restricts`, `Shares`, `Accumulates`,
    `Joins`, `Overwrites`, `Stays`, `Prepares`, `Travels`, `Moors`, `Shows`, `Listens`, `Stops`, `ComputesAll`, `Encodes` and
    `HasLoss`, recognised by methods.
    """

    @property
    def k(self) -> int:
        """Partitions."""
        ...

    @property
    def dim(self) -> int:
        """Coordinates of the parameters and of a gradient."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of a coordinate: float32 or float64."""
        ...

    def grad(self, params: NDArray[Any], part: int, where: slice = ..., step: int = 0) -> NDArray[Any]:
        """The gradient summed over the samples of one partition, or the coordinates `where` of it."""
        ...


@runtime_checkable
class Restricts(Protocol):
    """A problem that can leave out data: a worker then gets its own partitions only."""

    def only(self, parts: Set[int]) -> Problem:
        """The same problem with the data of these partitions; the others are not asked for."""
        ...


@runtime_checkable
class Shares(Protocol):
    """A problem that wants to know whose share it is, for instance to choose a device."""

    def share(self, worker: int, parts: Set[int]) -> Problem:
        """The share of a worker, with the data of these partitions."""
        ...


@runtime_checkable
class Accumulates(Protocol):
    """A problem that adds a partial gradient to a message by itself, so that both are never held side by side."""

    def accumulate(self, params: NDArray[Any], part: int, where: slice, step: int, coef: float, total: Any) -> Any:
        """total + coef times what `grad` gives, in place where total is not None."""
        ...


@runtime_checkable
class Joins(Protocol):
    """A problem that computes several partitions in one pass where they go into one message with one coefficient."""

    @property
    def joins(self) -> bool:
        """Whether it does; else they are asked for one by one."""
        ...

    def accumulate_all(
        self, params: NDArray[Any], parts: tuple[int, ...], where: slice, step: int, coef: float, total: Any
    ) -> Any:
        """What `accumulate` gives for one partition after the other."""
        ...


@runtime_checkable
class Overwrites(Protocol):
    """A problem that can write the first partial gradient of a message over what stands there, so that nobody writes zeros."""

    def overwrite(self, total: Any) -> bool:
        """Asked before total is given to `accumulate`, or `accumulate_all`: whether what stands in it may be anything then.
        False: it must be zeros."""
        ...


@runtime_checkable
class Stays(Protocol):
    """A problem that can compute on parameters where they stand, without a copy of its own."""

    def stay(self) -> None:
        """Asked once, on a worker: the memory of the parameters of an order stays as it is until that order is of no use."""
        ...


@runtime_checkable
class Prepares(Protocol):
    """A problem that can do something for its next order before that comes, such as move samples to a device."""

    def prepare(self) -> None:
        """Asked on a worker that has done an order; the next one may come any time, and may be another than it thinks."""
        ...


@runtime_checkable
class Travels(Protocol):
    """A problem whose numbers lie on a device, and which says how they get to a master on the same host."""

    def way(self, code: Any, kind: str) -> Any:
        """Where parameters and messages stand, as `torch.ways` has it; None: in memory of the host, as those of others."""
        ...

    def along(self, way: Any, say: Callable[[int, int], None]) -> None:
        """Asked once, on a worker, when it has joined the way. say(message, upto): tells the master that the numbers of a
        message stand in their place up to there; 0: none do, any more."""
        ...


@runtime_checkable
class Moors(Protocol):
    """A problem whose numbers lie on a device, and which brings its messages into memory of the worker's host by itself."""

    def moors(self, code: Any, kind: str) -> bool:
        """Whether it does, of a whole problem or of a worker's share. kind: "auto", "pinned" or "host", as engines have it."""
        ...

    def moor(self, rooms: Mapping[int, NDArray[Any]]) -> Any:
        """Asked once, on a worker, with bytes of the host for each message: an object as `torch.berths` has it. Its
        begin(message) gives zeros on the device, and deliver(message, numbers) ends when the numbers stand in their room."""
        ...


@runtime_checkable
class Shows(Protocol):
    """A problem that says how much of a message is known while it computes the rest, so that this can go on the wire."""

    def show(self, rooms: Mapping[int, NDArray[Any]], say: Callable[[int, int], None], times: int) -> Any:
        """Asked once, on a worker whose messages are long plain gradients and go over a network; after `moor`, where that is
        asked, too. rooms: bytes of the host for each message. say(message, upto): its numbers stand in their room up to there;
        0: none do, any more. times: how often, at most.

        Gives an object whose begin(message) gives zeros, in the room or on a device, and whose passes[message] counts the
        passes that have begun to add to it since then."""
        ...


@runtime_checkable
class Listens(Protocol):
    """A problem that must know more of a round than parameters and step, such as which samples it is about."""

    def hear(self, context: bytes) -> None:
        """Take what came with an order (`Master.gradient(context=)`), before any gradient of the round is asked for.

        A worker may miss rounds, so what comes must not build on what came before. It comes from the master, unchanged.
        """
        ...


@runtime_checkable
class Stops(Protocol):
    """A problem that can stop inside a task, so that a worker whose result nobody needs any more begins the next round in time.

    Others are asked between two tasks only: who is inside one when the round ends stays in it.
    """

    def heed(self, stopped: Callable[[], bool]) -> None:
        """Take the question whether the round is over, before any gradient of a round is asked for.

        Ask it inside a task, wherever that is cheap, and raise `engines.Abandoned` when the answer is yes. It reads an integer
        in shared memory (Local), a flag that a thread sets (Ray), or looks for a message (MPI). Wherever a task is left, what
        it has touched must be fit for the next one.
        """
        ...


@runtime_checkable
class ComputesAll(Protocol):
    """A problem that computes all gradients faster at once than one by one; `engines.Virtual` asks for them."""

    def grads(self, params: NDArray[Any], step: int = 0) -> NDArray[Any]:
        """(k, dim) the gradients of all partitions."""
        ...


@runtime_checkable
class Encodes(Protocol):
    """A problem whose data can be encoded, for codes that compute on combinations of them (`codes.lagrange`)."""

    def encode(self, matrix: Any) -> Problem:
        """The problem whose partitions are combinations of these, a row of the matrix each."""
        ...


@runtime_checkable
class HasLoss(Protocol):
    """A problem that can say how well parameters do; `unstraggle run` shows it."""

    def loss(self, params: NDArray[Any]) -> float:
        """The mean loss over all samples."""
        ...
