"""Which code a training run uses: from an expression, a plan, or a word."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..codes import cyclic_repetition, fractional_repetition, uncoded
from ..errors import Invalid
from ..plan.auto import WORTH
from ..plan.base import Plan
from ..runtime.terms import Transfer
from ..scheme.code import Code
from ..scheme.stop import Stop
from ..study.expression import find_code
from ..trace import Trace, read

log = logging.getLogger("unstraggle")

ROUNDS = 1000
"""On which loads by speed are compared."""

WORDS = "auto", "balanced", "adaptive", "none"


class Resolved(NamedTuple):
    """The code, the stop rule that it was planned for, if any, the share of a round that it should save, if planned, and how
    its messages are to get to the master."""

    code: Code
    stop: Stop | None = None
    saving: float | None = None
    transfer: Transfer = "push"


def resolve(
    scheme: Any,
    workers: int | None,
    latency: Any,
    dim: int,
    samples: float = np.inf,
    worth: float = WORTH,
    task_cost: Callable[[], float | None] = lambda: None,
) -> Resolved:
    """What a run begins with. samples: of a step, which "auto" can cut into so many. worth: the least saving to be advised.
    task_cost: measures what a task costs besides its work; asked where the planner wants to know, and a trace does not tell."""
    if isinstance(scheme, Plan):
        return Resolved(_checked(scheme.code, workers), scheme.stop)
    if isinstance(scheme, Code):
        return Resolved(_checked(scheme, workers))
    if not isinstance(scheme, str):
        words = ", ".join(f'"{word}"' for word in WORDS)
        raise Invalid(f"scheme is a code, an expression, a plan, or one of {words}, but got {scheme!r}.")
    if scheme not in WORDS:
        return Resolved(_checked(find_code(scheme), workers))
    if workers is None:
        raise Invalid(f'scheme="{scheme}" needs workers=, the number of workers.')
    if scheme == "balanced":
        return Resolved(by_speed(workers, latency))
    if scheme in ("none", "adaptive"):  # which begins by waiting for all
        return Resolved(uncoded(workers))
    if latency is None:
        return Resolved(by_rule(workers))
    source = recorded(latency)
    return _planned(workers, source, dim, samples, worth, task_cost() if _untold(source) else None)


def _untold(source: Any) -> bool:
    """Whether times of tasks were recorded that do not tell what a task costs besides its work."""
    from ..latency import fixed_cost
    from ..trace import from_seconds

    trace = from_seconds(source) if isinstance(source, np.ndarray | list) else source
    return isinstance(trace, Trace) and fixed_cost(trace).why is not None


def by_speed(workers: int, latency: Any) -> Code:
    """Work in proportion to speed, without copies: who is always slow gets less. Waiting for all where workers are alike.

    >>> by_speed(3, np.array([[1.0, 1.0, 2.0]] * 20)).name
    'heterogeneity_aware([2.0, 2.0, 1.0], s=0, k=12)'
    """
    from ..plan.by_speed import speed_plans

    if latency is None:
        raise Invalid('scheme="balanced" divides the work by speed, so it needs latency=: a trace, its file, or a model.')
    model = clock(latency)
    plan = next(speed_plans(model, model, workers, ROUNDS, 0, carry=True), None)
    return uncoded(workers) if plan is None else plan.code


def by_rule(workers: int) -> Code:
    """Where nothing is known of the workers: one straggler in every eight may be missing, at least one.

    Copies (fractional repetition) where they fit, else cyclic repetition. This doubles the computation for up to 15 workers: it
    pays where some workers are often more than twice as slow as others. Record a trace, and plan with it, to know.

    >>> [by_rule(n).name for n in (1, 8, 9, 24)]
    ['uncoded(1)', 'fractional_repetition(8, s=1)', 'cyclic_repetition(9, s=1)', 'fractional_repetition(24, s=3)']
    """
    s = max(1, workers // 8)
    if workers == 1:
        return uncoded(1)
    return fractional_repetition(workers, s) if workers % (s + 1) == 0 else cyclic_repetition(workers, s)


def _planned(workers: int, source: Any, dim: int, samples: float, worth: float, task_cost: float | None) -> Resolved:
    """What the planner advises for recorded or modelled workers; waiting for all where it says that coding does not help."""
    from ..plan import auto

    advice = auto(source, workers, dim=dim, worth=worth, task_cost=task_cost)
    log.info("%s", advice.verdict)
    if advice.chosen is None:
        return Resolved(uncoded(workers))
    codes = [one for one in advice.candidates if one.exact and len(one.plan.code.blocks) == 1]
    best = min((one for one in codes if one.plan.code.k <= samples), key=lambda one: one.seen, default=None)
    return Resolved(uncoded(workers)) if best is None else Resolved(best.plan.code, best.plan.stop, best.saving, best.transfer)


def recorded(latency: Any) -> Any:
    """A latency model or trace; a path is that of a recorded trace."""
    return read(latency) if isinstance(latency, str | os.PathLike) else latency


def clock(latency: Any) -> Any:
    """A latency model for a sampled clock; a trace is replayed."""
    from ..latency import Replay

    source = recorded(latency)
    seconds = source.seconds if isinstance(source, Trace) else source
    return Replay(seconds) if isinstance(seconds, np.ndarray | list) else seconds


def _checked(code: Code, workers: int | None) -> Code:
    if code.data is not None:
        raise Invalid(f"{code.name} computes on encoded data, which no network can. Use a code for partial gradients.")
    if code.messages.mixes > 1:
        raise Invalid(
            f"{code.name} mixes equal blocks of the gradient, which the layers of a network do not divide into. Use a code "
            "over all coordinates, such as fractional_repetition, and quantize for shorter messages."
        )
    if workers is not None and workers != code.n:
        raise Invalid(
            f"{code.name} is for n={code.n} workers, but got workers={workers}. Leave workers out, or change the code."
        )
    return code
