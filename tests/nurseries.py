"""Engines of one test process share the processes that fork their workers: starting one with PyTorch takes seconds.

A nursery that an engine closes is kept for the next engine that would start the same one: same variables, modules, import path,
and same output, which workers inherit. Tests of what engines leave behind, and of nurseries, have their own as users do:
`left_behind.py` and `own_nurseries()`.
"""

import contextlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from unstraggle.engines import local
from unstraggle.engines.nursery import Nursery

KEPT = {}
"""{what makes a nursery what it is: (process, connection)}, the oldest first."""
MOST = 3
LATE = 2.0
"""Seconds for a nursery to say which of its workers have ended. One that does not is not kept."""
CHANGES = {"PYTEST_CURRENT_TEST", "COLUMNS", "LINES"}
"""Variables that no worker reads."""
keeper = ThreadPoolExecutor(1, "nurseries of tests")
"""The thread that starts nurseries: the kernel ends them with the thread that did."""


class Shared(Nursery):
    """A nursery that outlives its engine."""

    def interrupt(self):
        self._interrupted = True
        if self._busy.locked():
            super().interrupt()

    def close(self):
        if not self._busy.acquire(blocking=False):
            super().interrupt()
            return super().close()
        try:
            self._keep()
        finally:
            self._busy.release()
        return super().close()

    def _keep(self):
        """Hand the process on, unless it is gone, stopped, or has workers that do not end."""
        if self._server is None or self._server.poll() is not None:
            return
        with contextlib.suppress(OSError):
            self._link.settimeout(LATE)
            while self._alive:
                self._hear()
            end(KEPT.pop(self._key, None))
            KEPT[self._key], self._server = (self._server, self._link), None
        while len(KEPT) > MOST:
            end(KEPT.pop(next(iter(KEPT))))

    def _begin(self):
        self._end()
        self._others = []  # what tests define is imported by their workers
        self._modules += [name for name in also(self._modules) if name not in self._modules]
        self._key = key(self._environment, self._modules)
        kept = None if self._interrupted else KEPT.pop(self._key, None)
        if kept is None:
            keeper.submit(super()._begin).result()
            return
        self._server, self._link = kept
        self._alive, self._codes = set(), {}


def also(modules):
    """What every worker of a Lightning module would import by itself, for five seconds. It starts no threads."""
    return [name for name in ("lightning.pytorch",) if name in sys.modules and "unstraggle.torch.problem" in modules]


def key(environment, modules):
    variables = {name: value for name, value in os.environ.items() if name not in CHANGES} | environment
    output = [(os.fstat(number).st_dev, os.fstat(number).st_ino) for number in (1, 2)]
    return repr((sorted(variables.items()), modules, sys.path, output))


def end(kept):
    if kept is None:
        return
    process, link = kept
    link.close()
    try:
        process.wait(LATE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def end_all():
    while KEPT:
        end(KEPT.popitem()[1])


@contextlib.contextmanager
def own_nurseries():
    """Each engine has its own meanwhile, as users have it; none is left of those that were shared."""
    end_all()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "Nursery", Nursery)
        yield


@contextlib.contextmanager
def shared_nurseries():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local, "Nursery", Shared)
        try:
            yield
        finally:
            end_all()
