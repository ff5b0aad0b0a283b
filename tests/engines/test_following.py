"""Engines that take over the workers of another one: the same processes, another code, and nothing left behind."""

import os
import signal

import numpy as np
import psutil
import pytest

from unstraggle import AdaptiveMaster, Master
from unstraggle.codes import fractional_repetition, uncoded, work_conserving
from unstraggle.engines import Local
from unstraggle.problems import LeastSquares

from .left_behind import nothing_left_behind  # noqa: F401
from .scenarios import until

A, Y, N = np.random.default_rng(0).normal(size=(24, 3)), np.arange(24.0), 2
WHOLE = LeastSquares.split(A, Y, parts=1)
CODES = uncoded(N), work_conserving(N, load=2, pieces=3), fractional_repetition(N, s=1)


def rounds(code, engine, first=0):
    """Two rounds, whose gradients must be right; the processes that did them."""
    with_it = Master(code, engine, first=first)
    for step in range(2):
        params = np.full(3, 0.1 * step)
        assert with_it.gradient(params).gradient == pytest.approx(WHOLE.grad(params, 0), rel=1e-9)
    return [engine.pid(worker) for worker in range(N)]


def local(code, **options):
    return Local(LeastSquares.split(A, Y, parts=code.k), **options)


def followed(before, code, **options):
    engine = local(code, **options)
    engine.follow(before)
    return engine


def test_the_same_processes_serve_one_code_after_the_other(nothing_left_behind):  # noqa: F811
    engine = local(CODES[0])
    pids = rounds(CODES[0], engine)
    for number, code in enumerate((*CODES[1:], CODES[0]), 1):
        engine = followed(engine, code)
        assert rounds(code, engine, first=2 * number) == pids
    os.kill(pids[1], signal.SIGKILL)
    until(lambda: engine.pid(1) != pids[1])
    params = np.ones(3)
    with Master(CODES[0], followed(engine, CODES[0])) as master:
        assert master.gradient(params).gradient == pytest.approx(WHOLE.grad(params, 0), rel=1e-9)
        assert master.engine.pid(0) != pids[0], "one is lost: all are started anew"


def test_who_does_not_get_free_is_ended(nothing_left_behind):  # noqa: F811
    engine = local(CODES[0])
    pids = rounds(CODES[0], engine)
    os.kill(pids[0], signal.SIGSTOP)
    engine = followed(engine, CODES[0])
    assert set(rounds(CODES[0], engine)).isdisjoint(pids)
    pids = [engine.pid(worker) for worker in range(N)]
    never_opened = followed(engine, CODES[1])
    never_opened.close()
    assert not any(map(psutil.pid_exists, pids))


def test_an_adaptive_run_keeps_its_processes():
    with AdaptiveMaster(N, local) as master:
        pids, params = [master.engine.pid(worker) for worker in range(N)], np.ones(3)
        for code in CODES:
            master.switch(code)
            estimate = master.gradient(params)
            assert estimate.code == code.name and estimate.gradient == pytest.approx(WHOLE.grad(params, 0), rel=1e-9)
            assert [master.engine.pid(worker) for worker in range(N)] == pids


def test_engines_that_start_otherwise_start_their_own():
    before = local(CODES[0])
    pids = rounds(CODES[0], before)
    engine = followed(before, CODES[0], threads=2)
    assert set(rounds(CODES[0], engine)).isdisjoint(pids)
    engine.close()
