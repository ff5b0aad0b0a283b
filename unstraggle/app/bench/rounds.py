"""The simulator against its plain NumPy form."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from ...latency import ShiftedExponential
from ...scheme.code import Code
from ...study.expression import parse_code
from ...study.simulation import CHUNK, simulate
from . import Result
from .timing import best_of

LATENCY = ShiftedExponential(rate=10, shift=0.01)
CODES = ("cyclic_repetition(40, s=9)", "cluster(correlated_mmc(10, load=10, order=6), times=4)")
CHUNKS, PLAIN_CHUNKS = 20, 2


def plain_numpy(code: Code, rounds: int, seed: int = 0) -> None:
    """What `simulate` computes, written plainly: arrivals, nested order statistics, count; in chunks, one thread."""
    rng, rule = np.random.default_rng(seed), code.decoder.rule
    assert rule is not None
    for _ in range(0, rounds, CHUNK):
        arrivals = LATENCY.sample(code, CHUNK, rng)
        ends = rule.time(arrivals)
        (arrivals <= ends[:, None]).sum(axis=1)


def simulated(seed: int) -> Iterator[Result]:
    """Seconds of a million rounds, by all threads."""
    for text in CODES:
        code, rounds, plain = parse_code(text), CHUNKS * CHUNK, PLAIN_CHUNKS * CHUNK
        fast = best_of(partial(simulate, code, LATENCY, rounds=rounds, rng=seed)) / rounds
        slow = best_of(partial(plain_numpy, code, plain, seed)) / plain
        yield Result(f"1e6 rounds of {code.name}", 1e6 * fast, "plain NumPy", 1e6 * slow)
