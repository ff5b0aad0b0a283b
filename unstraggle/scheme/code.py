"""Tasks, Messages, Code: one round of a scheme, as tables that validate themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from ..blocks import block_slices
from ..checks import sparse
from ..doors import door
from ..errors import Invalid
from ..quantizers.base import Codec
from ..quantizers.plain import PLAIN, Plain
from .program import Outgoing, Program

if TYPE_CHECKING:
    from .decoders import Decoder, Linear
    from .handing import Handing
    from .noise import NoiseGain

FULL_BITS = PLAIN.bits
"""Bits per coordinate of a message that is not quantised."""


@door
@dataclass(frozen=True, eq=False)
class Tasks:
    """What the workers compute: row t is one partial gradient. A worker's rows, in order, are its queue.

    worker, part, block: (T,) integers. work: (T,) how long the task takes, 1.0 being the gradient of 1/n of the data.
    """

    worker: NDArray[np.int64]
    part: NDArray[np.int64]
    block: NDArray[np.int64]
    work: NDArray[np.float64]

    def __init__(self, worker: ArrayLike, part: ArrayLike, block: ArrayLike = 0, work: ArrayLike = 1.0) -> None:
        size = np.size(worker)
        _set(self, worker=_integers("Tasks.worker", worker, size), part=_integers("Tasks.part", part, size))
        _set(self, block=_integers("Tasks.block", block, size), work=_column("Tasks.work", work, size, np.float64))
        _require_positive("Tasks.work", self.work)

    def __len__(self) -> int:
        return len(self.worker)

    @cached_property
    def queues(self) -> NDArray[np.int64]:
        """(n, longest) task numbers of each worker in order, padded with -1."""
        order = np.argsort(self.worker, kind="stable")
        lengths = np.bincount(self.worker)
        table = np.full((len(lengths), max(lengths, default=0)), -1, dtype=np.int64)
        table[np.arange(table.shape[1]) < lengths[:, None]] = order
        return table

    @cached_property
    def position(self) -> NDArray[np.int64]:
        """(T,) how many tasks of the same worker come before."""
        position = np.empty(len(self), dtype=np.int64)
        worker, place = np.nonzero(self.queues >= 0)
        position[self.queues[worker, place]] = place
        return position


@door
@dataclass(frozen=True, eq=False)
class Messages:
    """What the workers send: row m is one linear combination of partial gradients over one block of coordinates.

    worker: (M,) who sends it. after: (M,) once that many of its tasks are done. coef: (M, k) sparse, the papers' encoding
    matrix with a row per message, real or complex. mixes: a message may also combine blocks with each other, which are then as
    many, and equally long: coef is (M, k * mixes), and column part * mixes + block stands for that block of that partial
    gradient. codec: how each message becomes bytes, one for all or one for each; `Plain()`
    for numbers as they are. `bits` and `plain` are what the codecs say.

    >>> from unstraggle.quantizers import QSGD, Plain
    >>> Messages([0, 1], [1, 1], np.eye(2), codec=[QSGD(4), Plain()]).bits
    array([ 4, 32])
    """

    worker: NDArray[np.int64]
    after: NDArray[np.int64]
    block: NDArray[np.int64]
    coef: csr_array[Any]
    codec: tuple[Codec, ...]
    mixes: int

    def __init__(
        self,
        worker: ArrayLike,
        after: ArrayLike,
        coef: Any,
        block: ArrayLike = 0,
        codec: Codec | Iterable[Codec] = PLAIN,
        mixes: int = 1,
    ) -> None:
        size = np.size(worker)
        _set(self, mixes=int(mixes))
        _set(self, worker=_integers("Messages.worker", worker, size), after=_integers("Messages.after", after, size))
        _set(self, block=_integers("Messages.block", block, size), coef=_sparse(coef, size), codec=_codecs(codec, size))
        if np.iscomplexobj(self.coef.data) and not self.plain.all():
            raise Invalid("Messages.codec needs real coefficients where numbers are not plain, but Messages.coef is complex.")

    def __len__(self) -> int:
        return len(self.worker)

    def changed(self, **columns: Any) -> Messages:
        """The same table with other columns."""
        mine = {name: getattr(self, name) for name in ("worker", "after", "coef", "block", "codec", "mixes")}
        return Messages(**{**mine, **columns})

    def pairs(self, m: int) -> list[tuple[int, int]]:
        """The (partition, block) pairs that message m combines."""
        columns = self.coef.indices[self.coef.indptr[m] : self.coef.indptr[m + 1]].tolist()
        if self.mixes == 1:
            return [(part, int(self.block[m])) for part in columns]
        return [divmod(column, self.mixes) for column in columns]

    @cached_property
    def bits(self) -> NDArray[np.int64]:
        """(M,) bits per coordinate on the wire."""
        return _frozen(np.array([codec.bits for codec in self.codec], dtype=np.int64))

    @cached_property
    def plain(self) -> NDArray[np.bool_]:
        """(M,) whether the numbers go as they are."""
        return _frozen(np.array([isinstance(codec, Plain) for codec in self.codec], dtype=bool))


@door
@dataclass(frozen=True, eq=False)
class Code:
    """A scheme: who computes what, who sends what after how many tasks, and how what arrived is decoded.

    `blocks` are fractions of the coordinates. `data`, where present, replaces the raw partitions by encoded ones (Lagrange
    coding); every other code works on the partial gradients of any model. `handing`, where present, says that the tasks are
    what workers may do: the round hands them out, and workers send the sum of what they did when they are asked.

    >>> from unstraggle.codes import cyclic_repetition
    >>> code = cyclic_repetition(6, s=2)
    >>> code.n, code.k, len(code.messages), code.threshold, code.load
    (6, 6, 6, 4, 3.0)
    """

    name: str
    n: int
    tasks: Tasks
    messages: Messages
    decoder: Decoder
    blocks: tuple[float, ...] = (1.0,)
    data: Any = None
    handing: Handing | None = None

    def __post_init__(self) -> None:
        self.check()

    @property
    def k(self) -> int:
        """Partitions."""
        return int(self.messages.coef.shape[1]) // self.messages.mixes

    @property
    def threshold(self) -> int | None:
        """How many distinct messages always suffice; None where only linear algebra can tell."""
        return self.decoder.rule.threshold if self.decoder.rule else None

    @property
    def load(self) -> float:
        """Most work of a worker, in shares of 1/n of the data (s + 1 for the classical codes)."""
        return float(np.bincount(self.tasks.worker, weights=self.tasks.work).max())

    @property
    def shares(self) -> NDArray[np.float64]:
        """(k,) fraction of the data in each partition."""
        whole = np.zeros((self.n, self.k))
        np.add.at(whole, (self.tasks.worker, self.tasks.part), self.tasks.work)
        sizes = whole.max(axis=0)
        return np.asarray(sizes / sizes.sum())

    def ready(self) -> NDArray[np.float64]:
        """(M,) work that the sender has done when message m may leave."""
        return self._ready

    @cached_property
    def _ready(self) -> NDArray[np.float64]:
        work = np.append(self.tasks.work, 0.0)[self.tasks.queues].cumsum(axis=1)
        return _frozen(work[self.messages.worker, self.messages.after - 1])

    def program(self, worker: int) -> Program:
        """All that one worker must know to take part: small and picklable."""
        if not 0 <= worker < self.n:
            raise Invalid(f"Code.program needs 0 <= worker < n, but got worker={worker}, n={self.n}.")
        mine = np.flatnonzero(self.tasks.worker == worker)
        tasks = tuple(zip(self.tasks.part[mine].tolist(), self.tasks.block[mine].tolist(), strict=True))
        messages = tuple(map(self._outgoing, np.flatnonzero(self.messages.worker == worker).tolist()))
        numbers = tuple(mine.tolist()) if self.handing is not None else ()
        return Program(worker, tasks, messages, tuple(self.tasks.work[mine].tolist()), numbers)

    def _outgoing(self, m: int) -> Outgoing:
        table = self.messages
        coef = table.coef.data[table.coef.indptr[m] : table.coef.indptr[m + 1]].tolist()
        codec = PLAIN if table.plain[m] else deepcopy(table.codec[m])  # its own: it may remember what it encoded
        return Outgoing(m, int(table.after[m]), int(table.block[m]), tuple(table.pairs(m)), tuple(coef), codec)

    def noise_gain(self, rng: Any = 0) -> NoiseGain:
        """How much decoding amplifies rounding or quantisation noise: median and worst over survivor sets."""
        from .noise import noise_gain

        return noise_gain(self, rng=rng)

    def save(self, path: PathLike[str] | str) -> None:
        """Write all of it to a file (.npz, no pickle), for codes that no expression makes; `Code.read` reads it again."""
        from .saved import save

        save(self, path)

    @staticmethod
    def read(path: PathLike[str] | str, decoders: Sequence[type[Linear]] = (), codecs: Sequence[type[Any]] = ()) -> Code:
        """The code in a file of `save`; everything in it is checked. decoders, codecs: classes of your own that it has."""
        from .saved import read

        return read(path, decoders, codecs)

    def check(self) -> None:
        """Raise `Invalid` unless the tables fit together; `testing.check_code` also tests what they mean."""
        from .handing import check_handing

        _check_workers(self)
        _check_blocks(self)
        _check_causality(self)
        check_handing(self)
        if self.decoder.size != len(self.messages):
            raise Invalid(f"{self.name}: the decoder is for {self.decoder.size} messages, the table has {len(self.messages)}.")
        if self.decoder.rule and max(self.decoder.rule.messages) >= len(self.messages):
            raise Invalid(f"{self.name}: the rule names message {max(self.decoder.rule.messages)} of {len(self.messages)}.")

    def __str__(self) -> str:
        gain = self.noise_gain()
        rows = {
            "workers n": self.n,
            "partitions k": self.k,
            "load": f"{self.load:g}",
            "messages": len(self.messages),
            "threshold": "by span only" if self.threshold is None else self.threshold,
            "noise gain": f"median {gain.median:.3g}, worst {gain.worst:.3g}",
        }
        return "\n".join([self.name, *(f"  {key:13}{value}" for key, value in rows.items())])


def _check_workers(code: Code) -> None:
    tasks, messages = code.tasks, code.messages
    if code.n < 1 or not len(tasks) or not len(messages):
        raise Invalid(f"{code.name}: needs at least one worker, one task and one message, but got n={code.n}.")
    for name, values, bound in (
        ("Tasks.worker", tasks.worker, code.n),
        ("Messages.worker", messages.worker, code.n),
        ("Tasks.part", tasks.part, code.k),
    ):
        if values.min() < 0 or values.max() >= bound:
            raise Invalid(f"{code.name}: {name} must lie in 0..{bound - 1}, but has {values.min()}..{values.max()}.")
    queued = np.bincount(tasks.worker, minlength=code.n)[messages.worker]
    wrong = np.flatnonzero((messages.after < 1) | (messages.after > queued))
    if len(wrong):
        m = wrong[0]
        raise Invalid(
            f"{code.name}: message {m} leaves after {messages.after[m]} tasks of worker {messages.worker[m]}, "
            f"which has {queued[m]}. Messages.after counts finished tasks, from 1."
        )


def _check_blocks(code: Code) -> None:
    sizes = np.asarray(code.blocks, dtype=float)
    if not len(sizes) or not (sizes > 0).all() or abs(sizes.sum() - 1) > 1e-9:
        raise Invalid(f"{code.name}: blocks are positive fractions of the coordinates that sum to 1, but got {code.blocks}.")
    for name, values in (("Tasks.block", code.tasks.block), ("Messages.block", code.messages.block)):
        if values.min() < 0 or values.max() >= len(sizes):
            raise Invalid(f"{code.name}: {name} must lie in 0..{len(sizes) - 1}, but has {values.min()}..{values.max()}.")
    mixes, columns = code.messages.mixes, code.messages.coef.shape[1]
    if mixes != 1 and (mixes != len(sizes) or np.ptp(sizes) > 1e-9 or columns % mixes):
        raise Invalid(
            f"{code.name}: messages that mix {mixes} blocks need as many equal blocks and a column for each pair of partition "
            f"and block, but got blocks {code.blocks} and {columns} columns."
        )


def _check_causality(code: Code) -> None:
    """Every coefficient stands on a partial gradient that its worker has computed by then."""
    tasks, messages = code.tasks, code.messages
    empty = np.flatnonzero(np.diff(messages.coef.indptr) == 0)
    if len(empty):
        raise Invalid(f"{code.name}: message {empty[0]} combines nothing. Leave such messages out of the table.")
    rows, columns = messages.coef.nonzero()
    parts, block = (columns, messages.block[rows]) if messages.mixes == 1 else np.divmod(columns, messages.mixes)
    shape = (code.n, code.k, len(code.blocks))
    have = np.ravel_multi_index((tasks.worker, tasks.part, tasks.block), shape)
    want = np.ravel_multi_index((messages.worker[rows], parts, block), shape)
    order = np.lexsort((tasks.position, have))
    found = np.minimum(np.searchsorted(have[order], want), len(have) - 1)
    task = order[found]
    computed = (have[task] == want) & (tasks.position[task] < messages.after[rows])
    if not computed.all():
        first = int(np.flatnonzero(~computed)[0])
        m, part = rows[first], parts[first]
        raise Invalid(
            f"{code.name}: message {m} combines partition {part} (block {block[first]}), which its worker "
            f"{messages.worker[m]} has not computed after {messages.after[m]} tasks. Send it later or drop the coefficient."
        )


def _set(table: Any, **columns: Any) -> None:
    for name, value in columns.items():
        object.__setattr__(table, name, value)


def _frozen(values: NDArray[Any]) -> NDArray[Any]:
    values.flags.writeable = False
    return values


def _column(name: str, values: ArrayLike, size: int, dtype: Any) -> NDArray[Any]:
    column = np.array(values, dtype=dtype)
    if column.ndim > 1 or (column.ndim == 1 and len(column) != size):
        raise Invalid(f"{name} needs a value or one for each of the {size} rows, but has shape {column.shape}.")
    return _frozen(np.array(np.broadcast_to(column, size)))


def _integers(name: str, values: ArrayLike, size: int) -> NDArray[np.int64]:
    if not np.issubdtype(np.asarray(values).dtype, np.integer) and np.size(values):
        raise Invalid(f"{name} needs integers, but got {np.asarray(values).dtype}.")
    return _column(name, values, size, np.int64)


def _codecs(codec: Any, size: int) -> tuple[Codec, ...]:
    several = (codec,) * size if isinstance(codec, Codec) or not isinstance(codec, Iterable) else tuple(codec)
    wrong = [each for each in {id(each): each for each in several}.values() if not isinstance(each, Codec)]
    if wrong:
        raise Invalid(f"Messages.codec needs codecs such as QSGD(bits=4), but got {wrong[0]!r}. For bits: quantize.")
    if len(several) != size:
        raise Invalid(f"Messages.codec needs a codec or one for each of the {size} rows, but got {len(several)}.")
    return several


def _require_positive(name: str, values: NDArray[np.float64]) -> None:
    if not (np.isfinite(values) & (values > 0)).all():
        raise Invalid(f"{name} needs positive finite numbers, but got {values[~(np.isfinite(values) & (values > 0))][0]}.")


def _sparse(coef: Any, size: int) -> csr_array[Any]:
    table: csr_array[Any] = sparse("Messages.coef", coef)
    table.sum_duplicates()
    table.eliminate_zeros()
    if table.shape[0] != size:
        raise Invalid(f"Messages.coef needs a row for each of the {size} messages, but has shape {table.shape}.")
    if not np.isfinite(table.data).all():
        raise Invalid("Messages.coef needs finite numbers, but has NaN or infinity.")
    for part in (table.data, table.indices, table.indptr):
        _frozen(part)
    return table


def combine(code: Code, weights: NDArray[Any], payloads: Mapping[int, NDArray[Any]], dim: int) -> NDArray[np.float64]:
    """The decoded gradient: weights (M,) times the payloads that arrived, block by block, in float64.

    Where messages mix blocks, weights are (blocks, M), a row for each.
    """
    gradient = np.zeros(dim)
    slices = block_slices(dim, code.blocks)
    for m, payload in payloads.items():
        rows = enumerate(weights[:, m]) if code.messages.mixes > 1 else [(code.messages.block[m], weights[m])]
        for block, weight in rows:
            gradient[slices[block]] += (weight * payload).real
    return gradient
