"""Contracts for people who write their own schemes: `check_code(code)` says whether a code keeps its promises."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import require_count
from ..doors import door
from ..errors import NotRecovered
from ..latency import ShiftedExponential
from ..randomness import Seed, generator
from ..scheme.code import Code, combine
from ..scheme.decoders import TOLERANCE, Span, parts_of, tolerance
from ..scheme.noise import NoiseGain, noise_gain, recovering_set, survivor_sets
from ..scheme.recovery import By, Sending
from ..scheme.rule import Need
from ..scheme.stop import Recovered
from ..study.replaying import replay
from ..study.simulation import simulate
from .approximate import ApproximateReport, check_approximate
from .handed import check_handed
from .shared import BrokenCode, Recorded, check_programs, example_payloads, require


@dataclass(frozen=True)
class CodeReport:
    """What `check_code` saw: survivor sets decoded, the worst relative error among them, and the noise gain."""

    name: str
    sets: int
    worst_error: float
    noise_gain: NoiseGain

    def __str__(self) -> str:
        gain = self.noise_gain
        digits = ", ".join(f"{kind} {'kept' if kept else 'lost'}" for kind, kept in self.digits.items())
        return (
            f"{self.name}: keeps its promises\n  survivor sets decoded    {self.sets}\n"
            f"  worst relative error     {self.worst_error:.2g}\n"
            f"  noise gain               median {gain.median:.3g}, worst {gain.worst:.3g}\n"
            f"  digits                   {digits}"
        )

    @property
    def digits(self) -> dict[str, bool]:
        """In which types of numbers the gradient keeps its digits, whoever survives; a run in another type is refused."""
        kinds = {kind: float(np.finfo(kind).eps) for kind in ("float32", "float64")}
        return {kind: self.noise_gain.worst * eps <= tolerance(eps) for kind, eps in kinds.items()}


@door
def check_code(
    code: Code, *, sets: int = 50, rounds: int = 200, p: ArrayLike = 0.2, unbiased: bool = False, rng: Seed = 0
) -> CodeReport | ApproximateReport:
    """Check a code: tables, rule against linear algebra, real encoding and decoding, simulation against replay.

    Raises `BrokenCode` or `Invalid` with the first promise that is broken. Of an exact code, `sets` random survivor sets, the
    contiguous ones, and for every partition the messages that avoid it. Of an approximate one, ten times as many sets for
    straggle probabilities p: its decoder must say how wrong it is, its error must be that of `plan.mean_squared_error`, and
    it must be unbiased at p if it is said to be `unbiased`. Of one that hands out tasks, `sets` rounds of a real master.

    >>> from unstraggle.codes import cyclic_repetition
    >>> check_code(cyclic_repetition(5, s=2)).worst_error < 1e-9
    True
    """
    random = generator(rng)
    sets = require_count("check_code", "sets", sets, 1, 10**6, "Give the number of random survivor sets.")
    rounds = require_count("check_code", "rounds", rounds, 1, 10**6, "Give the number of rounds to simulate.")
    code.check()
    if code.handing is not None:
        counted, error = check_handed(code, sets, rounds, random)
        return CodeReport(code.name, counted, error, noise_gain(code, rng=random))
    if not all(isinstance(part.decoder, Span) for part in parts_of(code.decoder)):
        return check_approximate(code, p, unbiased, 10 * sets, rounds, random)
    _check_everything_recovers(code)
    _check_copies(code)
    _check_rule(code, sets, random)
    check_programs(code)
    counted, error = _check_decoding(code, sets, random)
    _check_twins(code, rounds, random)
    return CodeReport(code.name, counted, error, noise_gain(code, rng=random))


def _check_everything_recovers(code: Code) -> None:
    everything = np.ones(len(code.messages), dtype=bool)
    residual = float(code.decoder.residual(everything))
    require(residual <= TOLERANCE, code, f"all messages together leave a relative error of {residual:.2g}.")
    if code.decoder.rule:
        require(bool(code.decoder.rule.met(everything)), code, "the rule is not met when everything has arrived.")


def _check_copies(code: Code) -> None:
    """Messages that the rule calls copies of one another must be equal."""
    for part in parts_of(code.decoder):
        for copies in _copies(part.decoder.rule) if part.decoder.rule else ():
            same = len(set(part.decoder.ids[list(copies)].tolist())) == 1
            require(same, code, f"the rule calls messages {copies} copies, but their coefficients differ.")


def _copies(rule: Need) -> Iterator[tuple[int, ...]]:
    for child in rule.of:
        if isinstance(child, tuple):
            yield child
        elif isinstance(child, Need):
            yield from _copies(child)


def _check_rule(code: Code, sets: int, rng: np.random.Generator) -> None:
    """Where the rule says recovered, linear algebra agrees: on random, contiguous and partition-avoiding sets."""
    if code.decoder.rule is None:
        return
    for got in [*survivor_sets(code, sets, rng, by="rule"), *_avoiding_sets(code, rng)]:
        residual = float(code.decoder.residual(got))
        require(
            residual <= TOLERANCE,
            code,
            f"the rule is met by messages {np.flatnonzero(got).tolist()}, but these leave a relative error of {residual:.2g}.",
        )


def _avoiding_sets(code: Code, rng: np.random.Generator) -> Iterator[NDArray[np.bool_]]:
    """For every partition: messages without it first, then as many others as the rule wants."""
    for part in rng.permutation(code.k)[:200]:
        columns = part * code.messages.mixes + np.arange(code.messages.mixes)
        holds = np.isin(np.arange(len(code.messages)), code.messages.coef[:, columns].nonzero()[0])
        yield recovering_set(code, np.lexsort((rng.random(len(holds)), holds)), "rule")


def _check_decoding(code: Code, sets: int, rng: np.random.Generator) -> tuple[int, float]:
    """Encode with the real worker loop, decode from survivor sets, compare with the gradient computed in one place."""
    payloads, gradient = example_payloads(code, rng)
    hows: list[By] = ["rule", "span"] if code.decoder.rule else ["span"]
    errors = []
    for got in (got for by in hows for got in survivor_sets(code, sets, rng, by)):
        try:
            weights = code.decoder.weights(got)
        except NotRecovered as error:
            raise BrokenCode(f"{code.name}: {np.flatnonzero(got).tolist()} should decode. {error}") from error
        shape = (code.messages.mixes, len(got))
        require(weights.shape == shape, code, f"weights have shape {weights.shape} instead of {shape}.")
        require(not weights[:, ~got].any(), code, "the decoder uses messages that did not arrive.")
        decoded = combine(
            code,
            weights if code.messages.mixes > 1 else weights[0],
            {m: payloads[m] for m in np.flatnonzero(got).tolist()},
            len(gradient),
        )
        errors.append(float(np.linalg.norm(decoded - gradient) / np.linalg.norm(gradient)))
        require(
            errors[-1] <= TOLERANCE,
            code,
            f"messages {np.flatnonzero(got).tolist()} decode with a relative error of {errors[-1]:.2g}.",
        )
    return len(errors), max(errors)


def _check_twins(code: Code, rounds: int, rng: np.random.Generator) -> None:
    """Vectorised times and loads equal a replay of the same arrivals, and by span is never later than by rule."""
    latency = ShiftedExponential(rate=1.0, shift=0.1)
    arrivals = latency.sample(code, rounds, rng)
    hows: list[By] = ["rule", "span"] if code.decoder.rule else ["span"]
    sendings: list[Sending] = ["all", "cluster_stop"]
    for by in hows:
        for sending in sendings:
            fast = simulate(code, Recorded(arrivals), rounds=rounds, by=by, sending=sending)
            slow = replay(code, arrivals, by=by, sending=sending)
            same = np.allclose(fast.time.values, slow.time.values, rtol=1e-12, atol=0)
            require(same, code, f"simulated and replayed times differ (by={by!r}, sending={sending!r}).")
            equal = np.array_equal(fast.messages.values, slow.messages.values)
            require(equal, code, f"simulated and replayed messages differ (by={by!r}, sending={sending!r}).")
    if code.decoder.rule:
        later = Recovered("span").time(code, arrivals) > Recovered("rule").time(code, arrivals)
        require(not later.any(), code, "recovered by span later than by rule.")
