"""warmup: compile before the clock runs."""

from __future__ import annotations

import numpy as np

from ..doors import door
from .identity import Identity
from .layout import BLOCK
from .qsgd import QSGD
from .sign import Sign


@door
def warmup(*bits: int) -> None:
    """Compile the kernels of these numbers of bits, or load them from the cache: 1 for Sign, 2 to 16 for QSGD, 32 for Identity.

    Without it the first payload of each number of bits takes about a second the first time on a machine. Payloads of 16 MB and
    more, and those with buckets of 512, have kernels of their own, which are not compiled here.

    >>> warmup(4)
    """
    x = np.ones(BLOCK + 1, np.float32)
    for number in bits:
        codec = Sign() if number == 1 else Identity() if number == 32 else QSGD(bits=number)
        payload = codec.encode(x, seed=0)
        codec.accumulate(codec.decode(payload), payload, 1.0)
