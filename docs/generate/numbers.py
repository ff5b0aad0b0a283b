"""Every number of the catalogue, computed by the library from the example codes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from unstraggle import Code, Recovered, simulate
from unstraggle.codes import fractional_repetition, uncoded
from unstraggle.latency import ShiftedExponential
from unstraggle.plan import mean_squared_error
from unstraggle.plan.error import Error
from unstraggle.scheme.decoders import TOLERANCE
from unstraggle.scheme.noise import NoiseGain
from unstraggle.scheme.recovery import By
from unstraggle.study.rounds import Rounds

from .schemes import Entry, N, P

LATENCY = ShiftedExponential(rate=10, shift=0.01)
"""The latency model of [A], seconds."""
ROUNDS, SEED = 20_000, 0
DIM = 10**6
"""Coordinates of the gradient whose bytes are counted."""
DEADLINES = np.geomspace(0.05, 1.2, 20)
GOAL = 0.1
"""Relative error that the approximate schemes are timed to."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Facts:
    """What holds for every scheme. load_mean: work of a worker on average. megabytes: of all messages until the round ends."""

    entry: Entry
    code: Code
    load_mean: float
    gain: NoiseGain
    messages: float
    megabytes: float


@dataclass(frozen=True, eq=False)
class ExactFacts(Facts):
    """Rounds by rule (None without one) and by span, and the most workers of which any may be missing."""

    tolerates: int
    rule: Rounds | None
    span: Rounds

    @property
    def rounds(self) -> Rounds:
        return self.rule or self.span


@dataclass(frozen=True, eq=False)
class ApproximateFacts(Facts):
    """Errors at P for orthogonal and for identical partial gradients; errors (D,) against the deadlines, for equal workers."""

    orthogonal: Error
    identical: Error
    errors: Floats

    @property
    def time_to_goal(self) -> float:
        """The deadline from which on the relative error stays below GOAL; infinite where none of DEADLINES is enough."""
        above = np.flatnonzero(self.errors > GOAL)
        if not len(above):
            return float(DEADLINES[0])
        last = int(above[-1])
        if last == len(DEADLINES) - 1:
            return float("inf")
        ends = slice(last, last + 2)
        share = np.interp(-np.log(GOAL), -np.log(np.maximum(self.errors[ends], 1e-12)), [0.0, 1.0])
        return float(DEADLINES[last] * (DEADLINES[last + 1] / DEADLINES[last]) ** share)


def facts(entry: Entry) -> ExactFacts | ApproximateFacts:
    """All numbers of an entry."""
    return exact_facts(entry) if entry.exact else approximate_facts(entry)


def exact_facts(entry: Entry) -> ExactFacts:
    """Simulated rounds, and what is lost at worst."""
    code = entry.code()
    by: By = "rule" if code.decoder.rule else "span"
    rule = rounds(code, "rule") if code.decoder.rule else None
    span = rounds(code, "span")
    sent = np.ones(code.n) if code.handing is not None else arrived_shares(code, by)
    messages = (rule or span).messages.mean
    megabytes = messages * float(sent @ message_bytes(code) / sent.sum()) / 1e6
    return ExactFacts(entry, code, mean_load(code), code.noise_gain(), messages, megabytes, tolerates(code), rule, span)


def approximate_facts(entry: Entry) -> ApproximateFacts:
    """Bias and error at P, and the error against the deadline."""
    code = entry.code()
    heard = 1 - np.array(P)[code.messages.worker]
    orthogonal, identical = (mean_squared_error(code, P, gradients=kind) for kind in ("orthonormal", "identical"))
    megabytes = float(heard @ message_bytes(code)) / 1e6
    common = (entry, code, mean_load(code), code.noise_gain(), float(heard.sum()), megabytes)
    return ApproximateFacts(*common, orthogonal, identical, deadline_errors(entry))


def rounds(code: Code, by: By) -> Rounds:
    """Simulated rounds; equal draws for all codes, since all have N workers."""
    return simulate(code, LATENCY, rounds=ROUNDS, rng=SEED, by=by)


@cache
def waiting() -> Rounds:
    """Waiting for all, the rival of everyone."""
    return rounds(uncoded(N), "rule")


@cache
def repetition() -> Rounds:
    """Plain repetition, the simple rival with redundancy."""
    return rounds(fractional_repetition(N, s=2), "rule")


def tolerates(code: Code) -> int:
    """The most workers of which any may be silent, tried out on all sets."""
    for s in range(1, code.n):
        missing = np.array(list(combinations(range(code.n), s)))
        heard = np.ones((len(missing), code.n), dtype=bool)
        heard[np.arange(len(missing))[:, None], missing] = False
        if (code.decoder.residual(heard[:, code.messages.worker]) > TOLERANCE).any():
            return s - 1
    return code.n - 1


def mean_load(code: Code) -> float:
    """Work of a worker on average, in shares of 1/n of the data."""
    return float(code.tasks.work.sum() / code.n)


def message_bytes(code: Code) -> Floats:
    """(M,) bytes of each message of a gradient of DIM coordinates: complex ones count twice, quantised ones as on the wire."""
    sizes = np.rint(DIM * np.asarray(code.blocks)[code.messages.block]).astype(int)
    whole = 8 if np.iscomplexobj(code.messages.coef.data) else 4
    codecs = zip(code.messages.plain.tolist(), code.messages.codec, sizes.tolist(), strict=True)
    return np.array([whole * size if plain else codec.size(size) for plain, codec, size in codecs], float)


def arrived_shares(code: Code, by: By) -> Floats:
    """(M,) share of the rounds in which a message is sent before the end."""
    arrivals = LATENCY.sample(code, ROUNDS, np.random.default_rng(SEED))
    ends = Recovered(by).time(code, arrivals)
    return np.asarray((arrivals <= ends[:, None]).mean(axis=0))


def deadline_errors(entry: Entry) -> Floats:
    """(D,) relative error at each deadline for equal workers, late with the probability that their own work gives them."""
    return np.array([_error_at(entry, float(deadline)) for deadline in DEADLINES])


def _error_at(entry: Entry, deadline: float) -> float:
    work = np.bincount((like := entry.code((0.5,) * N)).tasks.worker, weights=like.tasks.work, minlength=N)
    late = LATENCY.survival(np.maximum(work, 1e-9), deadline)
    return mean_squared_error(entry.code(tuple(late.tolist())), late).relative
