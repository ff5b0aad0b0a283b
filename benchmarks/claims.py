"""Sequential gradient coding (Krishnan, Ebrahimi and Khisti, ICLR 2023, arXiv 2211.13802) beside plain gradient coding and
repetition that ends by rule: seconds of 80 jobs on 256 workers, and of those of their gradient code, on the same draws.

A worker takes a base time plus 2.201 s times its share of the data, as in a public simulator that we take for theirs. Base
times are assumed, with stragglers by a chain of two states (Gilbert and Elliott): the fits come near to the four totals
published with it, and differ in much else. Their rule: a round ends at 1 + mu times its fastest worker; where the stragglers
are not such as the scheme tolerates, it waits for all ("few": only until they are).
"""

from collections.abc import Callable, Iterator
from functools import partial
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unstraggle.latency import Persistent, ShiftedExponential
from unstraggle.statistics import mean_and_half, ratio_and_half

from .common import save

N, JOBS, RUNS = 256, 80, 20
SECONDS_OF_ALL = 2.201
"""Theirs: what the whole data add to a worker's time."""
S, SELECTIVE, MULTIPLEXED = 15, (2, 3, 23), (1, 2, 27)
"""Theirs, chosen on their delays: s of the gradient code, and (B, W, lambda) of the two sequential schemes."""
SETTINGS = {
    "fit 1": (0.02, 1.3, 0.53, 0.05, 0.19),
    "fit 2": (0.01, 1.3, 0.55, 0.08, 0.23),
    "fit 3": (0.04, 1.1, 0.55, 0.05, 0.14),
    "fit 4": (0.003, 1.3, 0.55, 0.16, 0.23),
    "fit 1, never twice running": (0.02, 1.0, 0.53, 0.05, 0.19),
}
"""Assumed: share of stragglers, rounds that they stay so, least seconds, mean above it, mean of stragglers above its double."""
PUBLISHED = {"waiting for all": 122.64, "GC, mu=1.0": 109.36, "SR-SGC, mu=1.0": 105.92, "M-SGC, mu=1.0": 103.73}
"""Of github.com/mamaj/Sequential-Gradient-Coding-2: seconds of 80 jobs, on delays recorded on 256 workers (Canada, mu=1)."""
MUS = (0.1, 0.2, 0.5, 1.0)

Late = NDArray[np.bool_]
Times = NDArray[np.float64]


def multiplexed_load(n: int, b: int, w: int, lam: int) -> float:
    """Share of the data that a worker goes through in a round of M-SGC, lam < n."""
    return (lam + 1) * (w - 1 + b) / (n * (b + (w - 1) * (lam + 1)))


def repeated(b: int, w: int, lam: int) -> int:
    """s of the gradient code inside SR-SGC; w - 1 is a multiple of b."""
    return ceil(b * lam / (w - 1 + b))


def bursty(late: Late, b: int, w: int, lam: int) -> bool:
    """Whether (rounds, n) stragglers conform in the last round: of w rounds at most lam distinct, none b or more apart."""
    window = late[-w:]
    again = window[: max(0, len(window) - b)].any(axis=0) & window[-1]
    return int(window.any(axis=0).sum()) <= lam and not again.any()


def multiplexed_decodes(late: Late, b: int, w: int, lam: int) -> bool:
    """Whether M-SGC has the job that began in the first of w - 1 + b rounds at the end of the last; late: (rounds, n)."""
    plain, coded = np.zeros(late.shape[1], dtype=int), np.zeros(b, dtype=int)
    for slot, gone in enumerate(late):
        owes = plain < w - 1
        plain += owes & ~gone
        if slot >= w - 1:
            coded[slot - w + 1] = (~owes & ~gone).sum()
    return bool((plain == w - 1).all() and (coded >= late.shape[1] - lam).all())


def selective_decodes(late: Late, b: int, w: int, lam: int) -> bool:
    """Whether SR-SGC has every job b rounds after it began, by the end of late (rounds, n): the first too few repeat theirs."""
    s, (rounds, n) = repeated(b, w, lam), late.shape
    done = np.zeros((rounds, n), dtype=bool)
    for t in range(rounds):
        asked = np.full(n, t)
        if t >= b:
            missing = np.flatnonzero(~done[t - b])
            asked[missing[: max(0, len(missing) - s)]] = t - b
        done[asked[~late[t]], np.flatnonzero(~late[t])] = True
    return bool((done[: rounds - b].sum(axis=1) >= n - s).all())


def by_their_rule(times: Times, mu: float, conforms: Callable[[Late], bool], all_of: bool = True) -> Times:
    """(rounds,) ends of rounds in which workers take times (rounds, n). all_of: what does not conform is waited for whole."""
    late, ends = np.zeros(times.shape, dtype=bool), np.zeros(len(times))
    for t, row in enumerate(times):
        ends[t] = min((1 + mu) * row.min(), row.max())
        late[t] = row > ends[t]
        while not conforms(late[: t + 1]):
            ends[t] = row.max() if all_of else row[late[t]].min()
            late[t] = row > ends[t]
    return ends


def totals(base: Times) -> Iterator[tuple[str, float]]:
    """Seconds of all jobs by scheme; base: (rounds, n) seconds without data, with the rounds that the last jobs need."""
    at = {"GC": S + 1, "SR-SGC": repeated(*SELECTIVE) + 1, "M-SGC": N * multiplexed_load(N, *MULTIPLEXED)}
    more = {"GC": 0, "SR-SGC": SELECTIVE[0], "M-SGC": MULTIPLEXED[1] - 2 + MULTIPLEXED[0]}
    rules: dict[str, Callable[[Late], bool]] = {
        "GC": lambda late: int(late[-1].sum()) <= S,
        "SR-SGC": lambda late: bursty(late, *SELECTIVE),
        "M-SGC": lambda late: bursty(late, *MULTIPLEXED),
    }
    for name, conforms in rules.items():
        times = with_data(base[: JOBS + more[name]], at[name])
        for mu in MUS:
            yield f"{name}, mu={mu}", float(by_their_rule(times, mu, conforms).sum())
            yield f"{name}, mu={mu}, few", float(by_their_rule(times, mu, conforms, all_of=False).sum())
    yield "waiting for all", float(with_data(base[:JOBS], 1).max(axis=1).sum())
    for copies in (0, 2, 4, 8, 16):
        name = f"repetition, {copies} copies" if copies else f"GC, the first {N - S}"
        yield from by_rule(name, with_data(base[:JOBS], copies or S + 1), partial(end_of, copies=copies))


def end_of(row: Times, copies: int) -> float:
    """The end of a round by (N,) arrivals: one of every group, or, for no copies, enough for the gradient code."""
    return float(row.reshape(-1, copies).min(axis=1).max() if copies else np.sort(row)[N - S - 1])


def by_rule(name: str, times: Times, end: Callable[[Times], float]) -> Iterator[tuple[str, float]]:
    """Seconds of rounds that end as soon as they can, and with carry-over: who is not done goes on into the next round."""
    yield name, sum(end(row) for row in times)
    yield f"{name}, carried", carried(times, end)


def carried(times: Times, end: Callable[[Times], float]) -> float:
    busy, seconds = np.zeros(times.shape[1]), 0.0
    for row in times:
        took = end(busy + row)
        busy = np.maximum(0.0, np.where(busy < took, busy + row, busy) - took)
        seconds += took
    return seconds


def with_data(base: Times, shares: float) -> Times:
    return base + SECONDS_OF_ALL * shares / N


def drawn(setting: str, seed: int) -> Times:
    """(rounds, N) seconds without data."""
    p, stay, base, noise, slower = SETTINGS[setting]
    fast, slow = ShiftedExponential(rate=1 / noise, shift=base), ShiftedExponential(rate=1 / slower, shift=2 * base)
    return np.asarray(Persistent(fast, slow, p=p, stay=stay).speeds(N, JOBS + 2, np.random.default_rng(seed)))


def measured(setting: str) -> list[dict[str, Any]]:
    runs = [dict(totals(drawn(setting, seed))) for seed in range(RUNS)]
    found = {name: np.array([run[name] for run in runs]) for name in runs[0]}
    return [{"setting": setting, "scheme": name} | compared(seconds, found["GC, mu=1.0"]) for name, seconds in found.items()]


def compared(seconds: Times, code: Times) -> dict[str, float]:
    (mean, half), (ratio, wide) = mean_and_half(seconds), ratio_and_half(seconds, code)
    found: dict[str, Any] = {"seconds": mean, "seconds_half": half, "of_gc": ratio, "of_gc_half": wide}
    return {name: round(float(value), 3) for name, value in found.items()}


def main() -> None:
    save("claims", {"published": PUBLISHED, "rows": [row for setting in SETTINGS for row in measured(setting)]})
