"""Partitions: which samples of a dataset belong to each of the code's k partitions, where that is fixed for a run."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import Invalid
from .batches import Dealt, Placed, Rows


def partitions(samples: int, parts: Any, shares: NDArray[np.float64], seed: int) -> tuple[Rows, ...] | None:
    """The samples of each partition; None where every batch is dealt to them anew.

    parts: None or the number k for that, "random" for partitions that are drawn once, "contiguous" for pieces of the dataset as
    it is, both of the code's shares, or a list of samples for each partition.
    """
    k = len(shares)
    if samples < k:
        raise Invalid(
            f"The dataset has {samples} samples, fewer than the {k} partitions of the code. Use more data or fewer partitions."
        )
    if parts is None or isinstance(parts, int | np.integer):
        if parts is not None and parts != k:
            raise Invalid(f"The code has k={k} partitions, but got parts={parts}. Leave parts out, or use a code with {parts}.")
        return None
    if isinstance(parts, str):
        if parts not in ("random", "contiguous"):
            raise Invalid(f'parts is "random", "contiguous" or a list of samples for each partition, but got {parts!r}.')
        order = np.random.default_rng((seed, k)).permutation(samples) if parts == "random" else np.arange(samples)
        ends = np.rint(np.cumsum(shares) * (samples - k)).astype(np.int64) + np.arange(1, k + 1)  # at least one sample each
        return tuple(np.split(order, ends[:-1]))
    return _listed(samples, parts, k)


def _listed(samples: int, parts: Any, k: int) -> tuple[Rows, ...]:
    rows = tuple(np.asarray(part, dtype=np.int64) for part in parts)
    if len(rows) != k or any(r.ndim != 1 or not len(r) or r.min() < 0 or r.max() >= samples for r in rows):
        raise Invalid(
            f"parts needs a list of samples for each of the code's k={k} partitions, none empty, each sample in "
            f"0..{samples - 1}, but got {len(rows)} lists of lengths {[np.size(r) for r in rows]}."
        )
    return rows


def batches_of(
    samples: int, rows: tuple[Rows, ...] | None, shares: NDArray[np.float64], batch: int | None, seed: int, *how: bool
) -> Dealt | Placed:
    """How a run draws its batches. how: shuffle, drop_last."""
    if rows is None:
        return Dealt(samples, shares, batch, seed, *how)
    return Placed(tuple(map(len, rows)), batch, seed, *how)
