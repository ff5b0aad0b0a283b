"""Multi-message codes whose messages are shared between workers ([A] section III-A)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..checks import require_count, require_load
from ..scheme.code import Code, Messages
from ..scheme.decoders import Span
from ..scheme.names import seeded
from ..scheme.rule import Need
from .cyclic_repetition import Construction, cyclic_matrix
from .facts import scheme
from .shared import cyclic_tasks


@scheme(
    "several",
    "correlated_mmc(12, load=3, order=2)",
    sent="m_{i,t} = c_{i+t},  c_a = Σ_{u=0..order-1} B[a, a+u] g_{a+u}  (mod n),  t = 0, ..., load - order",
    decoded="g = Σ_{a∈A} w_a c_a,  where  Σ_{a∈A} w_a B[a, :] = (1, ..., 1);  any n - order + 1 distinct c_a do",
    papers=("ozfatura2019gradient",),
    tried=(
        "correlated_mmc(6, load=3, order=2)",
        "correlated_mmc(10, load=10, order=6)",
    ),
)
def correlated_mmc(n: int, load: int, order: int, construction: Construction | None = None, seed: int = 0) -> Code:
    """From its order-th task on, a worker sends after every task a combination of its latest `order` partial gradients.

    These are the n messages of a cyclic code of load `order`: worker i sends numbers i, i + 1, ..., i + load - order. Any
    n - order + 1 distinct ones suffice. order=load is cyclic repetition, order=1 is uncoded multi-message.

    >>> code = correlated_mmc(6, load=3, order=2)
    >>> code.threshold, code.messages.coef.toarray()[0].round(6).tolist()
    (5, [1.0, 1.0, 0.0, 0.0, 0.0, 0.0])
    """
    n, load = require_load("correlated_mmc", n, load)
    order = require_count("correlated_mmc", "order", order, 1, load, "A message combines at most the `load` partials at hand.")
    worker, step = np.divmod(np.arange(n * (load - order + 1)), load - order + 1)
    number = (worker + step) % n
    matrix = cyclic_matrix(n, order - 1, construction, seed)
    messages = Messages(worker, order + step, matrix[number])
    rule = Need(n - order + 1, tuple(_copies(number, a) for a in range(n)))
    chosen = (f", construction={construction!r}" if construction else "") + seeded(seed)
    name = f"correlated_mmc({n}, load={load}, order={order}{chosen})"
    return Code(name, n, cyclic_tasks(n, load), messages, Span(messages.coef, rule))


@scheme(
    "several",
    "uncoded_mmc(12, load=3)",
    sent="m_{i,t} = g_{i+t}  (mod n),  t = 0, ..., load - 1",
    decoded="g = Σ_j the first copy of g_j",
    papers=("ozfatura2019gradient",),
    tried=("uncoded_mmc(12, load=4)",),
)
def uncoded_mmc(n: int, load: int) -> Code:
    """Workers send every partial gradient as it is computed; the master needs each partition once. [A] calls it UC-MMC.

    The fastest of all where messages cost nothing, and the one that sends most.

    >>> uncoded_mmc(40, load=10).threshold
    40
    """
    n, load = require_load("uncoded_mmc", n, load)
    return replace(correlated_mmc(n, load, order=1), name=f"uncoded_mmc({n}, load={load})")


def _copies(number: NDArray[np.int64], a: int) -> int | tuple[int, ...]:
    """The messages that carry number a."""
    copies = tuple(np.flatnonzero(number == a).tolist())
    return copies[0] if len(copies) == 1 else copies
