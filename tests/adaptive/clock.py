"""A sampled clock for deciders: rounds of a whole run in milliseconds, and what the best fixed code would have taken."""

import numpy as np

from unstraggle.adaptive.decider import Decider
from unstraggle.adaptive.predict import candidates
from unstraggle.adaptive.seen import Seen
from unstraggle.codes import uncoded
from unstraggle.latency import FixedCost, Replay
from unstraggle.study.simulation import simulate

N, UNIT = 8, 0.1
ROUND, WORD = 0.001, 0.0005
"""Seconds that a live round, and a word of it, take beyond a simulation."""
CHANGE = 0.3
"""Seconds that a change of code takes."""


def pattern(kind, rounds, rng):
    """(rounds, n) seconds of a unit of work."""
    seconds = UNIT * rng.lognormal(0, 0.03, (rounds, N))
    if kind == "random":
        return UNIT / 10 + rng.exponential(UNIT, (rounds, N))
    if kind == "bursty":
        slow = np.zeros(N, bool)
        for row in seconds:
            slow = np.where(slow, rng.random(N) > 0.2, rng.random(N) < 0.04)
            row[slow] *= 4
    if kind == "persistent":
        seconds[:, [3, 6]] *= 3, 1.5
    return seconds


def waits(code, seconds, cost):
    model = FixedCost(Replay(seconds), cost) if cost else Replay(seconds)
    words = code.k // N if code.handing is not None else 0
    return simulate(code, model, rounds=len(seconds), rng=0, carry=True, threads=1).time.values + ROUND + WORD * words


def best_fixed(seconds, cost):
    """Seconds of all rounds with the best of the codes that are tried."""
    return min(waits(code, seconds, cost).sum() for code in candidates(seconds, np.inf))


def play(seconds, cost=0.0, **how):
    """Let a decider go through rounds: seconds of all, with changes, and [(round, code, switch)]. cost: of a task."""
    decider, code = Decider(uncoded(N), cost=CHANGE, **how), uncoded(N)
    total, first, chain, found = 0.0, 0, waits(code, seconds, cost), []
    for number, row in enumerate(seconds):
        wait = chain[number - first]
        total += wait
        decision = decider.feed(observed(code, row, wait, cost))
        if decision.code is not None:
            code, first = decision.code, number + 1
            decider.use(code, decision.switch)
            chain = waits(code, seconds[first:], cost) if first < len(seconds) else chain
            total += CHANGE
            found.append((number, code, decision.switch))
    return total, found


def observed(code, row, wait, cost):
    """What a master knows: nothing of workers that have not done their first task, but that."""
    first = code.tasks.work[code.tasks.queues[:, 0]]
    work = float(np.median(code.tasks.work))
    took = row + cost / work
    heard = took * first <= wait
    return Seen(code.name, work, wait, np.where(heard, took, np.inf), np.where(heard, 0.0, wait / first))
