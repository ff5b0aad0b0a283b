"""Direct sums of codes: `cluster` over workers and data, `stack` over data, `blocks` over coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import block_diag, csr_array, eye_array, vstack

from ..checks import require_count
from ..errors import Invalid
from ..quantizers.base import Codec
from ..scheme.code import Code, Messages, Tasks
from ..scheme.decoders import direct_sum
from .facts import scheme


@scheme(
    "join",
    "cluster(correlated_mmc(6, load=3, order=2), times=2)",
    sent="B = diag(B_1, ..., B_P):  each code on workers and data of its own",
    decoded="g = g_1 + ... + g_P,  each decoded by its code",
    papers=("ozfatura2019gradient",),
    tried=(
        "cluster(correlated_mmc(5, load=5, order=3), times=3)",
        "cluster(uncorrelated_mmc(5, load=5, orders=[3, 5]), times=2)",
        "cluster(cyclic_repetition(6, s=2), uncoded_mmc(4, load=2))",
        "cluster(lagrange(8, load=4), uncoded(3))",
    ),
)
def cluster(*codes: Code, times: int = 1) -> Code:
    """Independent clusters, each with its own workers and its own share of the data ([A] section III-C).

    `cluster(code, times=4)` has four clusters of the same code; `cluster(fast, slow)` joins different ones.

    >>> from unstraggle.codes import cyclic_repetition
    >>> cluster(cyclic_repetition(10, s=4), times=4).threshold        # 36 as without clusters, but mostly fewer suffice
    36
    """
    _require_codes("cluster", codes)
    times = require_count("cluster", "times", times, 1, 10**5, "Give the number of copies of each code.")
    several = codes * times
    workers = _offsets([code.n for code in several])
    tasks = _join_tasks(several, worker=workers, part=_offsets([code.k for code in several]), scale=[1.0] * len(several))
    messages = Messages(
        _shifted([code.messages.worker for code in several], workers),
        np.concatenate([code.messages.after for code in several]),
        block_diag([code.messages.coef for code in several], format="csr"),
        codec=_joined_codecs(several),
    )
    inside = ", ".join(code.name for code in codes) + (f", times={times}" if times > 1 else "")
    _require_one_block("cluster", several)
    return Code(f"cluster({inside})", sum(c.n for c in several), tasks, messages, _decoder(several), data=_data(several))


@scheme(
    "join",
    "stack(uncoded(12), fractional_repetition(12, s=2), shares=[0.5, 0.5])",
    sent="the messages of code 1 on share 1 of the data,  then those of code 2 on share 2, ...,  from the same workers",
    decoded="g = g_1 + g_2 + ...,  each decoded by its code",
    papers=(),
    tried=("stack(uncoded(6), cyclic_repetition(6, s=2), shares=[0.25, 0.75])",),
)
def stack(*codes: Code, shares: Sequence[float] | None = None) -> Code:
    """The same workers run several codes one after the other, each on its own share of the data.

    shares: fractions of the data, by default in proportion to the codes' partitions.
    """
    _require_codes("stack", codes)
    _require_same_workers("stack", codes)
    _require_one_block("stack", codes)
    fractions = _fractions("stack", "shares", [code.k for code in codes] if shares is None else shares, len(codes))
    tasks = _join_tasks(codes, worker=[0] * len(codes), part=_offsets([c.k for c in codes]), scale=fractions)
    coef = block_diag([code.messages.coef for code in codes], format="csr")
    given = "" if shares is None else f", shares={[float(share) for share in shares]}"
    name = f"stack({', '.join(code.name for code in codes)}{given})"
    return Code(name, codes[0].n, tasks, _one_after_another(codes, coef), _decoder(codes), data=_data(codes))


@scheme(
    "join",
    "blocks([1, 1], cyclic_repetition(12, s=1), cyclic_repetition(12, s=3))",
    sent="the messages of code b hold the coordinates of block b only;  a worker does block 0, then block 1, ...",
    decoded="g = (g[block 0], g[block 1], ...),  each decoded by its code",
    papers=("wang2021optimization",),
    tried=("blocks([1, 3, 2], uncoded(6), cyclic_repetition(6, s=2), cyclic_repetition(6, s=4))",),
)
def blocks(sizes: Sequence[float], *codes: Code, work: Sequence[float] | None = None) -> Code:
    """Different codes for different blocks of coordinates, on the same workers and data ([B]).

    sizes: coordinates (or fractions of them) that each code covers; a worker does the blocks in the given order, so list
    codes that tolerate fewer stragglers first. A size of 0 drops its code. work: share of a partial gradient's work in each
    block, where it is not proportional to its size (layers of a network).

    >>> from unstraggle.codes import cyclic_repetition
    >>> code = blocks([2, 2], cyclic_repetition(4, s=1), cyclic_repetition(4, s=2))
    >>> code.load, code.blocks                                          # half the coordinates twice, half three times
    (2.5, (0.5, 0.5))
    """
    _require_codes("blocks", codes)
    _require_same_workers("blocks", codes)
    if len({code.k for code in codes}) > 1 or any(code.data is not None for code in codes):
        raise Invalid(
            f"blocks needs codes on the same partitions, but got k={[code.k for code in codes]}"
            f"{' and encoded data' if any(code.data is not None for code in codes) else ''}."
        )
    fractions = _fractions("blocks", "sizes", sizes, len(codes), zero=True)
    efforts = fractions if work is None else _fractions("blocks", "work", work, len(codes), zero=True)
    kept = [(code, fraction, effort) for code, fraction, effort in zip(codes, fractions, efforts, strict=True) if fraction > 0]
    used, scale = [code for code, _, _ in kept], [effort for _, _, effort in kept]
    first = _offsets([len(code.blocks) for code in used])
    tasks = _join_tasks(used, worker=[0] * len(used), part=[0] * len(used), scale=scale, block=first)
    coef = vstack([code.messages.coef for code in used], format="csr")
    messages = _one_after_another(used, coef, block=_shifted([code.messages.block for code in used], first))
    covered = tuple(fraction * size for code, fraction, _ in kept for size in code.blocks)
    given = "" if work is None else f", work={_numbers(work)}"
    name = f"blocks({_numbers(sizes)}, {', '.join(code.name for code in codes)}{given})"
    return Code(name, codes[0].n, tasks, messages, _decoder(used), blocks=covered)


def _join_tasks(
    codes: Sequence[Code],
    worker: Sequence[int],
    part: Sequence[int],
    scale: Sequence[float],
    block: Sequence[int] | None = None,
) -> Tasks:
    """The task tables one below the other, so that a worker's queue is that of the first code, then of the next."""
    return Tasks(
        _shifted([code.tasks.worker for code in codes], worker),
        _shifted([code.tasks.part for code in codes], part),
        _shifted([code.tasks.block for code in codes], block or [0] * len(codes)),
        np.concatenate([code.tasks.work * factor for code, factor in zip(codes, scale, strict=True)]),
    )


def _one_after_another(codes: Sequence[Code], coef: Any, block: Any = 0) -> Messages:
    """The messages of codes that share their workers: those of a later code wait for the tasks of the earlier ones."""
    queued = np.zeros(codes[0].n, dtype=np.int64)
    after = []
    for code in codes:
        after.append(code.messages.after + queued[code.messages.worker])
        queued = queued + np.bincount(code.tasks.worker, minlength=code.n)
    worker = np.concatenate([code.messages.worker for code in codes])
    return Messages(worker, np.concatenate(after), coef, block=block, codec=_joined_codecs(codes))


def _joined_codecs(codes: Sequence[Code]) -> tuple[Codec, ...]:
    return tuple(chain.from_iterable(code.messages.codec for code in codes))


def _decoder(codes: Sequence[Code]) -> Any:
    starts = _offsets([len(code.messages) for code in codes])
    return direct_sum((start + np.arange(len(c.messages)), c.decoder) for start, c in zip(starts, codes, strict=True))


def _data(codes: Sequence[Code]) -> csr_array[Any] | None:
    """Encodings side by side; a code without one leaves its partitions as they are."""
    if all(code.data is None for code in codes):
        return None
    matrices = [eye_array(code.k) if code.data is None else code.data for code in codes]
    return csr_array(block_diag(matrices, format="csr"))


def _offsets(sizes: Sequence[int]) -> list[int]:
    return [0, *np.cumsum(sizes[:-1]).tolist()] if sizes else []


def _shifted(columns: Sequence[NDArray[np.int64]], by: Sequence[int]) -> NDArray[np.int64]:
    return np.concatenate([column + offset for column, offset in zip(columns, by, strict=True)])


def _numbers(values: Sequence[float]) -> list[float]:
    return [int(value) if value == int(value) else float(value) for value in values]


def _fractions(scheme: str, name: str, values: Sequence[float], count: int, zero: bool = False) -> list[float]:
    sizes = np.asarray(values, dtype=float)
    if sizes.shape != (count,) or not np.isfinite(sizes).all() or (sizes < 0).any() or not sizes.sum() > 0:
        raise Invalid(f"{scheme} needs one size >= 0 for each of its {count} codes, but got {name}={values!r}.")
    if not zero and (sizes == 0).any():
        raise Invalid(f"{scheme} needs positive {name}, but got {values!r}. Leave out codes that get nothing.")
    return [float(size) for size in sizes / sizes.sum()]


def _require_codes(scheme: str, codes: Sequence[Any]) -> None:
    wrong = [code for code in codes if not isinstance(code, Code)]
    if wrong or not codes:
        raise Invalid(f"{scheme} needs at least one code, such as cyclic_repetition(10, s=2), but got {wrong or 'none'}.")
    handed = [code.name for code in codes if code.handing is not None]
    if handed:
        raise Invalid(f"{scheme} joins codes whose tasks are fixed, but {handed[0]} hands them out while a round runs.")
    mixed = [code.name for code in codes if code.messages.mixes > 1]
    if mixed:
        raise Invalid(f"{scheme} joins codes whose messages are of one block each, but those of {mixed[0]} mix blocks.")


def _require_same_workers(scheme: str, codes: Sequence[Code]) -> None:
    if len({code.n for code in codes}) > 1:
        raise Invalid(f"{scheme} needs codes for the same workers, but got n={[code.n for code in codes]}.")


def _require_one_block(scheme: str, codes: Sequence[Code]) -> None:
    if any(len(code.blocks) > 1 for code in codes):
        raise Invalid(f"{scheme} needs codes over all coordinates. Put blocks(...) outside: blocks(sizes, {scheme}(...), ...).")
