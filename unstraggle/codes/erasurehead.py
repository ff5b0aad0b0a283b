"""ErasureHead (Wang et al. 2019): fractional repetition without waiting for groups that are silent."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..code import Code
from ..decoders import LeastSquares
from ..errors import Invalid
from ..rule import Need
from .combine import cluster
from .table import cyclic_tasks, one_message, require_stragglers


def erasure_head(n: int, s: int) -> Code:
    """Groups of s + 1 workers hold the same s + 1 partitions and send their sum; groups that are silent are left out.

    The responders of a group are averaged, which is the first responder's message, with less noise where messages are
    quantised. Exact once every group is heard, so `First(Recovered(), Deadline(...))` ends early. Biased otherwise, and not
    rescaled: use `stochastic_code` or `joint_code` for an unbiased sum.

    >>> got = np.array([True, True, False, True, False, False])
    >>> erasure_head(6, s=1).decoder.weights(got)
    array([[0.5, 0.5, 0. , 1. , 0. , 0. ]])
    """
    n, s = require_stragglers("erasure_head", n, s)
    if n % (s + 1):
        fits = [d - 1 for d in range(1, n + 1) if n % d == 0]
        raise Invalid(f"erasure_head needs s + 1 to divide n, but got n={n}, s={s}. Use one of s={fits}.")
    group = one_message("group", cyclic_tasks(s + 1, s + 1), np.ones((s + 1, s + 1)), Need(1, tuple(range(s + 1))))
    near = replace(group, decoder=LeastSquares(group.messages.coef, group.decoder.rule))
    return replace(cluster(near, times=n // (s + 1)), name=f"erasure_head({n}, s={s})")
