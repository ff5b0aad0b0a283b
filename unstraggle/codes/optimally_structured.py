"""The optimal unbiased structure for workers that straggle and quantise ([C] section III-A; OSGC where omega = 0)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ..checks import require_count
from ..errors import Invalid
from ..scheme.code import FULL_BITS, Code
from .approximate import (
    Probabilities,
    listed,
    require_gamma,
    require_omega,
    require_probabilities,
    require_size,
    row_sums,
    table_code,
)
from .facts import scheme
from .quantized import Model, require_bits, require_dim, variances, with_bits

NAME = "optimally_structured"

SNAP = 1e-9
"""A sum of W_i this close to an integer is that integer; otherwise rounding would assign slivers of partitions."""

SEARCHED = 20
"""Groups of up to this many workers are searched for all ways to split them."""

PAIRED, TRIPLED = 500, 120
"""Beyond these, pairs and triples of workers are not searched."""

Construction = Literal["overlap", "split"]
Assigned = tuple[NDArray[np.int64], int, int]
Placed = tuple[NDArray[np.int64], int, csr_array[Any]]


@scheme(
    "approximate",
    "optimally_structured({p})",
    sent="m_i = Σ_j W_ij g_j / (1 - p_i),  Σ_i W_ij = 1,  Σ_j W_ij = k / (δ_i Δ),\n"
    "δ_i = (p_i + gamma ω_i) / (1 - p_i),  Δ = Σ_i 1 / δ_i,  ω_i = 0 without a quantiser",
    decoded="ĝ = Σ_{i∈A} m_i",
    papers=("song2025approximate", "song2026communication"),
    tried=(
        "optimally_structured([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])",
        "optimally_structured([0.1, 0.2, 0.3], k=4, bits=[8, 4, 2], dim=1000, omega='qsgd', bucket=512)",
    ),
    note="For equal workers, as in the picture on the right, it is `ignore_stragglers` with p. Use it where they differ.",
)
def optimally_structured(
    p: Sequence[float] | NDArray[np.float64],
    k: int | None = None,
    *,
    bits: Any = None,
    dim: int | None = None,
    gamma: float = 1.0,
    omega: Model | Probabilities | None = None,
    bucket: int | None = None,
    construction: Construction = "overlap",
) -> Code:
    """Unbiased, with the least bound on the error: worker i carries W_i = k / (delta_i Delta) partitions ([C] Theorem 1).

    p: (n,) straggle probabilities. k: partitions, by default n. delta_i = (p_i + gamma omega_i) / (1 - p_i), Delta is the sum
    of 1 / delta_i. bits: a coordinate of each worker's message, a number or (n,), such as `plan.bits` gives; the code is then
    ready to run, its quantisers included (bucket: coordinates that share a norm), and workers of 0 bits get no work. omega:
    relative variances of the quantisers, numbers, or the bounds of the model "paper" or "qsgd" for these bits and dim; by
    default 0 without bits, else "paper".

    construction="overlap" lays the workers side by side over the partitions (equation 22, at most n + k - 1 coefficients);
    "split" first looks for groups of workers that carry whole partitions (equation 34, one coefficient less per group) and
    takes whichever has fewer coefficients. Needs the p of the deadline in use: with a wrong p it is biased, and `erasurehead`,
    which needs none, may be safer.

    >>> code = optimally_structured([0.5, 0.5, 0.2])
    >>> (code.messages.coef.toarray() * [[0.5], [0.5], [0.8]]).round(3)                  # W: rows sum to W_i, columns to 1
    array([[0.5, 0. , 0. ],
           [0.5, 0. , 0. ],
           [0. , 1. , 1. ]])
    >>> optimally_structured([0.5, 0.5, 0.2], bits=[4, 4, 8], dim=1000).messages.bits
    array([4, 4, 8])
    """
    late = _probabilities(p)
    n = len(late)
    parts = n if k is None else require_count(NAME, "k", k, 1, 10**6, "Give the number of partitions.")
    sent, heard = _sent(bits, late)
    sums = row_sums(heard, _noise(n, sent, dim, bucket, omega), require_gamma(NAME, gamma), parts)
    groups = _laid_out(sums, parts, construction)
    worker = np.concatenate([workers[shares.nonzero()[0]] for workers, _, shares in groups])
    part = np.concatenate([first + shares.nonzero()[1] for _, first, shares in groups])
    share = np.concatenate([shares[shares.nonzero()] for _, _, shares in groups])
    given = _options(k=k, bits=bits, dim=dim, gamma=float(gamma), omega=omega, bucket=bucket, construction=construction)
    coef = csr_array((share / (1 - late[worker]), (worker, part)), shape=(n, parts))
    code = table_code(f"{NAME}({listed(p)}{given})", n, coef, "fixed")
    return code if sent is None else with_bits(code, sent[code.messages.worker], bucket)


def _probabilities(p: Any) -> NDArray[np.float64]:
    if np.ndim(p) != 1 or not np.size(p):
        raise Invalid(
            f"{NAME} needs one straggle probability for each worker, such as [0.1, 0.5], but got p={p!r}. "
            "Use [p] * n for n workers that are alike."
        )
    return require_probabilities(NAME, require_size(NAME, len(p)), p)


def _sent(bits: Any, p: NDArray[np.float64]) -> tuple[NDArray[np.int64] | None, NDArray[np.float64]]:
    """(n,) bits, and straggle probabilities in which workers of 0 bits are never heard."""
    if bits is None:
        return None, p
    silent = np.equal(bits, 0)
    sent = require_bits(NAME, np.where(silent, FULL_BITS, bits), len(p))
    return np.broadcast_to(sent, len(p)), np.where(silent, 1.0, p)


def _noise(n: int, sent: NDArray[np.int64] | None, dim: Any, bucket: int | None, omega: Any) -> NDArray[np.float64]:
    """(n,) relative variances of the quantisers."""
    if omega is not None and not isinstance(omega, str):
        return require_omega(NAME, n, omega)
    if sent is None:
        if omega is not None or bucket is not None:
            raise Invalid(f"{NAME} needs bits for omega={omega!r} and bucket={bucket!r}. Use bits=4, or omega=0 without them.")
        return np.zeros(n)
    if dim is None:
        raise Invalid(f"{NAME} needs dim, the coordinates of a gradient, or numbers omega, to know the noise of bits={sent}.")
    return variances(sent, require_dim(NAME, dim), bucket, cast(Model, omega or "paper"))


def overlap(sums: NDArray[np.float64], k: int) -> csr_array[Any]:
    """(n, k) the W with these row sums and column sums 1 that lays worker after worker over the partitions ([C] equation 22).

    >>> overlap(np.array([0.5, 1.5]), 2).toarray()
    array([[0.5, 0. ],
           [0.5, 1. ]])
    """
    ends = np.cumsum(sums)
    ends = np.where(np.abs(ends - np.rint(ends)) <= SNAP, np.rint(ends), ends)
    ends[-1] = k
    cuts = np.union1d(ends, np.arange(k + 1.0))
    middle = (cuts[1:] + cuts[:-1]) / 2
    return csr_array((np.diff(cuts), (np.searchsorted(ends, middle), middle.astype(np.int64))), shape=(len(sums), k))


def _options(**given: Any) -> str:
    """What differs from the defaults, for the code's name."""
    texts = {name: repr(np.asarray(value).tolist()) for name, value in given.items() if value is not None}
    usual = {"gamma": "1.0", "construction": "'overlap'"}
    return "".join(f", {name}={text}" for name, text in texts.items() if text != usual.get(name))


def _laid_out(sums: NDArray[np.float64], k: int, construction: str) -> list[Placed]:
    """(workers, first partition, shares) of groups that carry whole partitions; "split" has no more shares than "overlap"."""
    if construction not in ("overlap", "split"):
        raise Invalid(f'{NAME} needs construction="overlap" or "split", but got {construction!r}.')
    carry = np.flatnonzero(sums > 0)
    plain = [(carry, 0, overlap(sums[carry], k))]
    if construction == "overlap":
        return plain
    split = [(workers, first, overlap(sums[workers], count)) for workers, first, count in _groups(sums, carry, k)]
    return min(plain, split, key=lambda groups: sum(shares.nnz for _, _, shares in groups))


def _groups(sums: NDArray[np.float64], carry: NDArray[np.int64], k: int) -> list[Assigned]:
    """(workers, first partition, how many) of groups that carry whole partitions."""
    groups: list[Assigned] = []
    waiting, first = [(carry, k)], 0
    while waiting:
        workers, count = waiting.pop()
        inside = _whole_subset(sums[workers], count - 1)
        if inside is None:
            groups.append((workers, first, count))
            first += count
            continue
        taken = int(np.rint(sums[workers[inside]].sum()))
        waiting += [(workers[~inside], count - taken), (workers[inside], taken)]
    return groups


def _whole_subset(sums: NDArray[np.float64], most: int) -> NDArray[np.bool_] | None:
    """(n,) the fewest workers that carry 1 to `most` whole partitions, among all subsets; of many workers, among sets of up to
    three and the first of the sorted ones."""
    n = len(sums)
    if n > SEARCHED:
        few = _few(sums, most)
        return _sorted_start(sums, most) if few is None else np.isin(np.arange(n), few)
    totals = np.zeros(1)
    for value in sums[:-1].tolist():
        totals = np.concatenate([totals, totals + value])
    found = np.flatnonzero(_whole(totals, most))
    if not len(found):
        return None
    best = found[np.argmin(np.bitwise_count(found))]
    return np.asarray((best >> np.arange(n)) & 1, dtype=bool)


def _few(sums: NDArray[np.float64], most: int) -> NDArray[np.int64] | None:
    """One, two or three workers that carry whole partitions together; pairs and triples where there are not too many."""
    n = len(sums)
    found = np.argwhere(_whole(sums, most))
    if not len(found) and n <= PAIRED:
        found = np.argwhere(np.triu(_whole(sums[:, None] + sums, most), 1))
    if len(found):
        return np.asarray(found[0])
    return _triple(sums, most) if n <= TRIPLED else None


def _triple(sums: NDArray[np.float64], most: int) -> NDArray[np.int64] | None:
    pairs = sums[:, None] + sums
    for i, value in enumerate(sums.tolist()):
        found = np.argwhere(np.triu(_whole(pairs + value, most), 1)[i + 1 :, i + 1 :])
        if len(found):
            return np.append(i, found[0] + i + 1)
    return None


def _sorted_start(sums: NDArray[np.float64], most: int) -> NDArray[np.bool_] | None:
    order = np.argsort(sums, kind="stable")
    found = np.flatnonzero(_whole(np.cumsum(sums[order])[:-1], most))
    return None if not len(found) else np.isin(np.arange(len(sums)), order[: found[0] + 1])


def _whole(totals: NDArray[np.float64], most: int) -> NDArray[np.bool_]:
    nearest = np.rint(totals)
    return np.asarray((nearest >= 1) & (nearest <= most) & (np.abs(totals - nearest) <= SNAP))
