"""check_engine: the contract of an engine, for people who write their own."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..blocks import block_slices
from ..codes import cyclic_repetition, uncoded
from ..doors import door
from ..engines.base import Engine, keeps, prepared, tells
from ..engines.chaos import Chaos
from ..problems import LeastSquares, Problem
from ..randomness import Seed, generator
from ..runtime.estimate import Estimate
from ..runtime.gather import Gather
from ..runtime.master import Master
from ..runtime.message import Message
from ..runtime.payload import number_type, pack
from ..runtime.worker import work
from ..scheme.code import Code
from ..scheme.decoders import Span, parts_of
from ..scheme.program import Outgoing
from ..scheme.stop import Deadline, Recovered, Stop
from .faults import check_faults
from .fetches import check_fetches
from .watched import BrokenEngine as BrokenEngine
from .watched import watched
from .words import check_words

PULLED = ("fractional_repetition(4, s=1)", "uncoded_mmc(4, load=3)", "lagrange(4, load=2)")
"""Codes whose messages are fetched, on engines whose workers keep them."""

CHANGES = 4
"""Rounds in which two codes take turns."""

EXACT = 1e-9
"""Largest relative error of a gradient that an engine may deliver, in a problem in float64."""
DAMAGED = 10
"""Rounds with messages that are damaged, doubled and held back."""


@dataclass(frozen=True)
class EngineReport:
    """What `check_engine` saw: codes, rounds of all of them, worst relative error of a gradient, and faults that were tried."""

    codes: int
    rounds: int
    worst_error: float
    faults: tuple[str, ...] = ()


@door
def check_engine(
    make: Callable[[Any], Engine],
    codes: Iterable[Code] | None = None,
    *,
    rounds: int = 3,
    dim: int = 24,
    samples: int = 60,
    rng: Seed = 0,
    faults: bool = True,
    signals: bool = True,
    within: float = 60.0,
) -> EngineReport:
    """Run real rounds of many codes on engines that `make(problem)` makes, and compare with the gradient of one process.

    codes: by default one of each kind: a single message, several messages, clusters, blocks, a complex code, encoded data,
    fixed weights, two tracks and quantised messages; on engines that carry words (`engines.Tells`), tasks that are handed out,
    too. Exact codes must give the gradient to 1e-9; of the others, what their decoder makes of the messages that came; codecs
    with memory cannot be compared, for who was late decides what they remember. faults: whether to see also what becomes of
    damaged and late messages, repeated and cancelled orders, errors of the problem, times to come back at, and words that come
    late, twice or to workers that are gone, and messages that are fetched (`engines.Keeps`). signals: whether to stop and kill
    workers, where the engine has `pid(worker)`. within: seconds after which a call that has not returned, and what has not
    happened, never will; more than the engine's heartbeat. Raises `BrokenEngine` for the first promise that is not kept.
    """
    random, seen, errors = generator(rng), 0, [0.0]
    for code in default_codes() if codes is None else codes:
        problem = _problem(code, random, dim, samples)
        engine = make(problem)
        if code.handing is not None and codes is None and not tells(engine):
            continue
        seen += 1
        pull = keeps(engine) and code.name in PULLED  # others do not differ in what an engine does for them
        with Master(code, watched(engine, within), _stop(code), transfer="pull" if pull else "push") as master:
            for step in range(rounds):
                params = random.standard_normal(dim)
                errors.append(_check_round(code, problem, master, params, step))
    tried = _check_faults(make, random, within, signals) if faults else ()
    return EngineReport(seen, seen * rounds, max(errors), tried)


def _check_faults(make: Callable[[Any], Engine], rng: np.random.Generator, within: float, signals: bool) -> tuple[str, ...]:
    with tempfile.TemporaryDirectory(prefix="unstraggle-") as folder:
        tried = check_faults(make, Path(folder), within, signals)
        tried += check_words(make, Path(folder), within, signals)
        tried += check_fetches(make, Path(folder), within)
    code = cyclic_repetition(4, s=1)
    problem = _problem(code, rng, 24, 60)
    engine = Chaos(watched(make(problem), within), duplicate=0.2, corrupt=0.2, hold=0.2, rng=rng)
    with Master(code, engine, _stop(code)) as master:
        for step in range(DAMAGED):
            params = rng.standard_normal(24)
            _check_round(code, problem, master, params, step)
    _check_changes(make, problem, rng, within)
    return (*tried, "damaged", "changed")


def _check_changes(make: Callable[[Any], Engine], problem: LeastSquares, rng: np.random.Generator, within: float) -> None:
    """Orders that bring a code of their own are obeyed: every other round workers send one of their partitions by itself."""
    placement = cyclic_repetition(4, s=1)
    alone = replace(uncoded(4), name="uncoded, over the placement of another code")
    with Master(placement, watched(make(problem), within), change=lambda number, _: (placement, alone)[number % 2]) as master:
        for step in range(CHANGES):
            params = rng.standard_normal(problem.dim)
            estimate, expected = master.gradient(params, step), problem.gradient(params)
            wrong = float(np.abs(estimate.gradient - expected).max() / np.abs(expected).max())
            if not wrong <= EXACT:
                raise BrokenEngine(f"a code that changes from round to round gives a gradient that is wrong by {wrong:.2g}.")


def default_codes() -> list[Code]:
    """One code of each kind that an engine must carry."""
    from .. import codes, plan

    p = [0.1, 0.2, 0.3, 0.4]
    joint = codes.optimally_structured(p)
    return [
        codes.uncoded(3),
        codes.cyclic_repetition(4, s=1),
        codes.fractional_repetition(4, s=1),
        codes.reed_solomon(4, s=1),
        codes.uncoded_mmc(4, load=3),
        codes.cluster(codes.correlated_mmc(3, load=3, order=2), times=2),
        codes.hybrid(codes.uncorrelated_mmc(4, load=4, orders=[2, 4])),
        codes.blocks([2, 3], codes.uncoded(3), codes.cyclic_repetition(3, s=1)),
        codes.partial_stragglers(4, s=1, slowdown=2),
        codes.lagrange(4, load=2),
        joint,
        plan.two_track(joint, p),
        codes.quantize(codes.fractional_repetition(4, s=1), bits=8, bucket=512),
        codes.quantize(codes.stochastic(4, p=0.2), bits=1),
        codes.work_conserving(3, load=2, pieces=2),
        codes.sums_on_request(3, load=2, pieces=2),
    ]


def _problem(code: Code, rng: np.random.Generator, dim: int, samples: int) -> LeastSquares:
    """Raw data in the partitions that the code wants; for encoded data, those that it encodes."""
    features, labels = rng.standard_normal((samples, dim)), rng.standard_normal(samples)
    shares = code.shares.tolist() if code.data is None else int(code.data.shape[1])
    return LeastSquares.split(features, labels, shares)


def _stop(code: Code) -> Stop:
    """Exact codes stop as soon as they can, the others when all messages are there."""
    if code.handing is not None:
        return Recovered("span")
    exact = all(isinstance(part.decoder, Span) for part in parts_of(code.decoder))
    return Recovered("rule" if code.decoder.rule else "span") if exact else Deadline(60.0)


def _check_round(code: Code, problem: LeastSquares, master: Master, params: NDArray[Any], step: int) -> float:
    estimate = master.gradient(params, step)
    expected = problem.gradient(params)[None]
    if isinstance(master.stop, Deadline) or not code.messages.plain.all():
        expected = _in_one_process(code, prepared(problem, code), params, estimate)
    error = float(np.abs(estimate.tracks - expected).max() / np.abs(expected).max())
    if not error <= EXACT:
        raise BrokenEngine(f"{code.name}: round {estimate.round} gives a gradient with a relative error of {error:.2g}.")
    return error


def _in_one_process(code: Code, problem: Problem, params: NDArray[Any], estimate: Estimate) -> NDArray[Any]:
    """What the decoder makes of the messages that came, quantised as they were."""
    slices, numbers = block_slices(problem.dim, code.blocks), number_type(code, np.dtype(problem.dtype))
    gather = Gather(code, problem.dim, np.dtype(problem.dtype))

    def send(message: Outgoing, payload: Any) -> None:
        data, _ = pack(message, payload, estimate.step, numbers)
        if estimate.got[message.index]:
            gather.add([Message(int(code.messages.worker[message.index]), message.index, estimate.round, 0.0, data)])

    for worker in range(code.n):
        work(code.program(worker), lambda part, block: problem.grad(params, part, slices[block]), send)
    return gather.finish(code.decoder.weights(estimate.got))
