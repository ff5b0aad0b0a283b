"""Blocks: which coordinates of a gradient belong together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def block_slices(dim: int, blocks: Sequence[float]) -> list[slice]:
    """Which coordinates of a `dim`-dimensional gradient belong to each block.

    >>> block_slices(10, (0.25, 0.75))
    [slice(0, 2, None), slice(2, 10, None)]
    """
    ends = np.rint(np.cumsum(blocks) * dim).astype(int)
    return [slice(int(a), int(b)) for a, b in zip([0, *ends[:-1]], ends, strict=True)]
