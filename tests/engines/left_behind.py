"""Nothing is left behind by engines that are closed: processes, files, shared memory, threads."""

import contextlib
import gc
import os
import re
import threading
from multiprocessing import resource_tracker

import psutil
import pytest

from ..nurseries import own_nurseries

STARTED = {"spawn_main", "nursery_server"}
"""Words in the command lines of processes that the local engine starts."""


def workers():
    """Processes that the local engine started."""
    children = psutil.Process().children(recursive=True)
    return [child for child in children if STARTED & set(re.findall(r"\w+", " ".join(command_line(child))))]


def command_line(process):
    """Empty for one that has just ended."""
    with contextlib.suppress(psutil.Error):
        return process.cmdline()
    return []


@pytest.fixture
def nothing_left_behind():
    resource_tracker.ensure_running()  # one for all, by Python, which new interpreters need
    with own_nurseries():
        shm = set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()
        gc.collect()
        gc.freeze()  # what is there stays: the collection in the end looks at what is new, not at all modules again
        files = psutil.Process().num_fds()
        yield
        assert workers() == []
    gc.collect()  # the last payloads of an engine are views of its memory
    assert psutil.Process().num_fds() <= files + 1
    assert not [thread for thread in threading.enumerate() if thread.name == "unstraggle starter"]
    if shm:
        assert {name for name in os.listdir("/dev/shm") if "unstraggle" in name} <= shm
