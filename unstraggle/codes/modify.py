"""Changes to existing codes: `hybrid`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, lil_array

from ..code import Code, Messages
from ..decoders import Part, Parts, Span
from ..errors import Invalid
from ..rule import Leaf, Need


def hybrid(code: Code) -> Code:
    """A worker that finishes everything sends the plain sum of it instead of its last coded message ([A] section III-D).

    Where workers hold all of their cluster's data, one finished worker completes the cluster, so the result is never later
    than the code nor than repetition. Where they hold less there is no threshold: decide by span.

    >>> from unstraggle.codes import uncorrelated_mmc
    >>> hybrid(uncorrelated_mmc(5, load=5, orders=[3, 5])).threshold
    3
    """
    if code.data is not None or not all(isinstance(part.decoder, Span) for part in code.decoder.parts()):
        raise Invalid(f"hybrid needs an exact code on raw data, but got {code.name}.")
    coef = lil_array(code.messages.coef)
    parts = [_finish(code, part, coef) for part in code.decoder.parts()]
    table = code.messages
    messages = Messages(table.worker, table.after, csr_array(coef), table.block, table.bits)
    return replace(code, name=f"hybrid({code.name})", messages=messages, decoder=Parts(tuple(parts)))


def _finish(code: Code, part: Part, coef: Any) -> Part:
    """Replace the last message of every worker in one part, in `coef` and in the part's decoder."""
    columns = np.unique(code.messages.coef[part.messages].indices).astype(np.int64)
    rows = lil_array(part.decoder.rows)
    full, all_full = [], True
    for place in _last_messages(code, part.messages):
        m = part.messages[place]
        held = _held(code, int(m), columns)
        coef[m, :], rows[place, :] = 0, 0
        coef[m, held] = rows[place, np.searchsorted(columns, held)] = 1
        full.append(int(place))
        all_full &= len(held) == len(columns)
    rule = _one_suffices(part.decoder.rule, full) if all_full else None
    return Part(part.messages, Span(csr_array(rows), rule, part.decoder.target))


def _last_messages(code: Code, messages: NDArray[np.int64]) -> NDArray[np.int64]:
    """Places, in `messages`, of each worker's last one."""
    worker, after = code.messages.worker[messages], code.messages.after[messages]
    order = np.lexsort((after, worker))
    return np.asarray(order[np.append(np.diff(worker[order]) > 0, True)])


def _held(code: Code, m: int, columns: NDArray[np.int64]) -> NDArray[np.int64]:
    """The part's partitions that the sender of message m has computed by then."""
    tasks, messages = code.tasks, code.messages
    mine = (tasks.worker == messages.worker[m]) & (tasks.block == messages.block[m]) & (tasks.position < messages.after[m])
    return np.intersect1d(tasks.part[mine], columns)


def _one_suffices(rule: Need | None, full: list[int]) -> Need:
    """Any one of the full messages, or the old rule on the others."""
    rest = _without(rule, frozenset(full)) if rule else None
    return Need(1, (*full, *([] if rest is None else [rest])))


def _without(child: Leaf | Need, gone: frozenset[int]) -> Any:
    """The tree without some messages; None where it can then never be met."""
    if isinstance(child, int):
        return None if child in gone else child
    if isinstance(child, tuple):
        return tuple(m for m in child if m not in gone) or None
    left = [c for c in (_without(c, gone) for c in child.of) if c is not None]
    return Need(child.count, tuple(left)) if len(left) >= child.count else None
