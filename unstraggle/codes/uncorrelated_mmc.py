"""Multi-message codes in which every message is different ([A] section III-B, virtual workers)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..checks import require_count, require_load
from ..encoders import null_space
from ..encoders.support import threshold
from ..errors import Invalid
from ..scheme.code import Code, Messages
from ..scheme.decoders import Span
from ..scheme.names import seeded
from ..scheme.rule import Need
from .facts import scheme
from .shared import cyclic_tasks


@scheme(
    "several",
    "uncorrelated_mmc(12, load=3, orders=[1, 3])",
    sent="m_{i,q} = Σ_{t<orders[q]} B_q[i, i+t] g_{i+t}  (mod n),  after orders[q] tasks",
    decoded="g = Σ of weights times messages, as for cyclic_repetition;  any n len(orders) - Σ orders + 1 messages do",
    papers=("ozfatura2019gradient",),
    tried=(
        "uncorrelated_mmc(6, load=3, orders=[2, 3])",
        "uncorrelated_mmc(10, load=10, orders=[6, 8, 10])",
    ),
)
def uncorrelated_mmc(n: int, load: int, orders: Sequence[int], seed: int = 0) -> Code:
    """After its orders[q]-th task a worker sends a combination of all its partial gradients so far, for every q.

    Each message is that of a virtual worker; any n * len(orders) - sum(orders) + 1 of them suffice.

    >>> uncorrelated_mmc(6, load=3, orders=[3, 2]).threshold
    8
    """
    n, load = require_load("uncorrelated_mmc", n, load)
    steps = _orders(load, orders)
    worker, turn = np.divmod(np.arange(n * len(steps)), len(steps))
    after = np.array(steps)[turn]
    mask = (np.arange(n)[None, :] - worker[:, None]) % n < after[:, None]
    messages = Messages(worker, after, null_space(mask, seed))
    rule = Need(threshold(mask), tuple(range(len(mask))))
    name = f"uncorrelated_mmc({n}, load={load}, orders={list(steps)}{seeded(seed)})"
    return Code(name, n, cyclic_tasks(n, load), messages, Span(messages.coef, rule))


def _orders(load: int, orders: Sequence[int]) -> list[int]:
    """The orders, smallest first; their listing does not matter."""
    if not isinstance(orders, Sequence | np.ndarray) or len(orders) == 0 or len(set(orders)) < len(orders):
        raise Invalid(f"uncorrelated_mmc needs distinct orders such as orders=[6, 8, 10], but got orders={orders!r}.")
    why = "A message combines at most the `load` partials at hand."
    return sorted(require_count("uncorrelated_mmc", "orders", order, 1, load, why) for order in orders)
