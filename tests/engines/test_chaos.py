"""Chaos signals workers of this machine, and nobody else."""

import os
import signal

import pytest

from unstraggle import codes, latency
from unstraggle.engines import Chaos, Local, Virtual
from unstraggle.engines.mpi_launch import is_sibling

from ..problems import Constant
from .left_behind import nothing_left_behind

__all__ = ["nothing_left_behind"]


class Says(Virtual):
    """An engine whose workers say which process they are."""

    said = None

    def pid(self, worker):
        return self.said.pop(0) if isinstance(self.said, list) else self.said


@pytest.mark.parametrize("said", [None, -1, 0, 1, [4711, 4712], [4711, None]])
def test_a_number_that_is_no_workers_process_is_not_signalled(said, monkeypatch):
    """All processes (-1), the own group (0), the first process (1), and one whose number went to another process meanwhile."""
    sent = []
    monkeypatch.setattr(os, "kill", lambda *what: sent.append(what))
    monkeypatch.setattr(os, "pidfd_open", lambda pid: os.open(os.devnull, os.O_RDONLY))
    monkeypatch.setattr(signal, "pidfd_send_signal", lambda *what: sent.append(what))
    engine = Says(Constant(2), latency.Exponential(1.0), rng=0)
    engine.said = said
    Chaos(engine, kill=1.0, rng=0)._signal(0, signal.SIGKILL)
    assert sent == []


@pytest.mark.usefixtures("nothing_left_behind")
def test_a_workers_process_is_signalled():
    engine = Chaos(Local(Constant(2)), kill=1.0, rng=0)
    engine.open(codes.uncoded(2))
    before = engine.pid(1)
    engine._signal(1, signal.SIGKILL)
    while engine.pid(1) == before:
        engine.next(0.1)
    engine.close()


def test_ranks_are_processes_with_the_same_parent():
    assert is_sibling(os.getpid())
    assert not any(map(is_sibling, (-1, 0, 1, os.getppid(), 2**31)))
