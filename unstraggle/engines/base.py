"""Engine: the role. It carries orders to workers and messages to the master, and decides nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from ..doors import door
from ..errors import Invalid
from ..runtime.instructions import Tell
from ..runtime.message import Incoming, Order

if TYPE_CHECKING:
    from ..problems.base import Problem
    from ..scheme.code import Code


class Engine(Protocol):
    """Starts workers for a code, brings them orders and the master what happens. Times are seconds since the round's start."""

    @property
    def problem(self) -> Problem: ...

    def open(self, code: Code) -> None:
        """Start the workers and wait until they are ready; raises where they do not start, and when it was called before."""
        ...

    def start(self, order: Order) -> None:
        """Begin a round, or give the current one again to some workers (`order.workers`)."""
        ...

    def next(self, until: float | None) -> list[Incoming]:
        """What has come: waits until there is something, or until that time; the list is empty when the time has come.

        Errors of the problem on a worker are events (`Failed`), and so is the loss of a worker: nothing is raised for them.
        """
        ...

    def clock(self) -> float:
        """Seconds since the round's start."""
        ...

    def cancel(self, round: int, workers: tuple[int, ...]) -> None:
        """These workers need not go on with the round; they look between two tasks."""
        ...

    def close(self) -> None:
        """End all workers. May be called twice."""
        ...


@runtime_checkable
class Processes(Protocol):
    """An engine whose workers are processes of this machine: `Chaos` can kill and pause them."""

    def pid(self, worker: int) -> int | None:
        """The process of a worker; None while it has none."""
        ...


@runtime_checkable
class Lends(Protocol):
    """An engine that lends the memory from which its workers read parameters, so that the master writes them there itself."""

    def lend(self, round: int) -> Any:
        """(dim,) where the parameters of a round that was not started yet go; an order with them is not copied. None: nowhere.

        Of the rounds before, at most the last may still be computed: this memory may be that of the round before it.
        """
        ...

    def gather(self, code: Code) -> Any:
        """What adds up messages of a code where they lie; None: `runtime.gather`, which adds up bytes of the host."""
        ...


@runtime_checkable
class Follows(Protocol):
    """An engine that can take over the workers of another one of its kind, so that a change of code starts no processes."""

    def follow(self, before: Engine) -> None:
        """Close an engine that has done its last round, and take over what it has; to be called before `open`."""
        ...


@runtime_checkable
class Sampled(Protocol):
    """An engine that may have no clock of the wall: nobody waits while its rounds run."""

    @property
    def sampled(self) -> bool: ...


@runtime_checkable
class Tells(Protocol):
    """An engine that carries words to workers while a round runs, for codes that hand out tasks (`Code.handing`).

    Its workers say when they have done a task (`Finished`), also of a round that is over, and send sums when they are asked.
    """

    def tell(self, word: Tell) -> None:
        """Bring a word to a worker, after its order and the words before it; it is lost with a worker that is lost."""
        ...


@runtime_checkable
class Keeps(Protocol):
    """An engine that carries words (`Tells`), and whose workers keep messages if an order says so (`Order.pull`).

    They announce each one (`Announced`), also while they go on computing, and send it when they are told (`Tell.message`).
    """

    @property
    def keeps(self) -> bool: ...


def crowded(engine: Engine) -> bool:
    """Whether its workers leave no processor to the master: what he does while they compute, one of them waits for."""
    return bool(getattr(engine, "crowded", False))


def keeps(engine: Engine) -> bool:
    """Whether messages of an engine can be fetched."""
    return isinstance(engine, Keeps) and engine.keeps and tells(engine)


def require_keeps(engine: Engine, transfer: str) -> None:
    """Refuse transfer on request on an engine whose workers do not keep messages."""
    if transfer == "pull" and not keeps(engine):
        raise Invalid(
            f'transfer="pull" needs an engine whose workers keep messages until they are asked for (`engines.Keeps`), but '
            f'{type(engine).__name__} is none. Use Local, MPI, Ray or Virtual, or transfer="push".'
        )


def tells(engine: Engine) -> bool:
    """Whether an engine carries words to its workers; one that wraps another does if that one does."""
    inner = getattr(engine, "engine", None)
    return isinstance(engine, Tells) and (inner is None or tells(inner))


def require_tells(engine: Engine, code: Code) -> None:
    """Refuse a code that hands out tasks on an engine that cannot carry words to its workers."""
    if code.handing is not None and not tells(engine):
        raise Invalid(
            f"{code.name} hands out tasks while a round runs, for which an engine needs `tell`, but {type(engine).__name__} "
            "has none. Use Local, Ray, MPI or Virtual, or a code whose tasks are fixed, such as fractional_repetition."
        )


@door
def prepared(problem: Problem, code: Code) -> Problem:
    """The problem that a code's workers compute: with encoded partitions where the code wants them, and checked."""
    if code.data is not None:
        from ..problems.base import Encodes  # here: workers start without it

        if not isinstance(problem, Encodes):
            raise Invalid(
                f"{code.name} computes on encoded data, which needs a problem with encode(matrix), such as LeastSquares, "
                f"but got {type(problem).__name__}. Use a code for partial gradients, such as correlated_mmc."
            )
        return problem.encode(code.data)
    if problem.k != code.k:
        raise Invalid(
            f"{code.name} has k={code.k} partitions, but the problem has {problem.k}. "
            f"Split the data into {code.k} partitions (of the sizes code.shares)."
        )
    if problem.dim % code.messages.mixes:
        raise Invalid(
            f"{code.name} mixes {code.messages.mixes} equal blocks of the gradient, but got dim={problem.dim}, which does not "
            f"divide. Add {-problem.dim % code.messages.mixes} parameters that nothing uses, or take another number of blocks."
        )
    return problem
