"""Workers on a device that die, run out of memory or do not see it: steps are right, or end with an error that says why."""

import os
import signal

import numpy as np
import psutil
import pytest

from benchmarks import device_faults as faults
from unstraggle import Master, codes
from unstraggle.engines import Local

from ..engines.scenarios import until
from ..problems import Constant

ROUNDED = 0.02
"""A unit at zero that rounds to the other side makes less than this of a gradient; a gradient of other samples about 1."""
TWICE, ONCE = "fractional_repetition(2, s=1)", "uncoded(2)"


@pytest.mark.gpu
def test_nothing_is_left_of_workers_that_are_killed():
    faults.killed(0)  # what the master itself loads
    found = faults.killed(12)
    memory = found["memory_gb"]
    assert found["wrong"] < ROUNDED
    assert memory["all_there_again"] <= memory["all_there"] + 0.1 and memory["after"] <= memory["before"] + 0.1


@pytest.mark.gpu
def test_a_worker_that_is_short_of_memory():
    assert faults.short_of_memory(TWICE)["wrong"] < ROUNDED
    ends = faults.short_of_memory(ONCE)["ends"]
    assert ends.startswith("WorkerFailed") and "out of memory" in ends


@pytest.mark.gpu
def test_a_worker_that_does_not_see_the_device():
    found = faults.without_device(TWICE, later=True)
    assert found["ends"] == "right" and found["wrong"] < ROUNDED
    assert faults.without_device(ONCE, later=True)["ends"].startswith("NotRecovered")
    assert "ended while it started" in faults.without_device(TWICE, later=False)["ends"]


@pytest.mark.parametrize("at_once", [True, False])
def test_devices_are_hidden_from_one_worker(at_once):
    """What the last test does, where there is no device."""

    def seen():
        return [psutil.Process(engine.pid(worker)).environ().get("CUDA_VISIBLE_DEVICES") for worker in range(2)]

    engine, usual = Local(Constant(2), start_method="spawn"), os.environ.get("CUDA_VISIBLE_DEVICES")
    with faults.blind(1, at_once) as hide, Master(codes.fractional_repetition(2, s=1), engine) as master:
        master.gradient(np.zeros(8))
        assert seen() == [usual, "" if at_once else usual]
        hide()
        for worker in (0, 1):
            gone = engine.pid(worker)
            os.kill(gone, signal.SIGKILL)
            until(lambda: not master.gradient(np.zeros(8)).lost and engine.pid(worker) not in (None, gone))  # noqa: B023
        assert seen() == [usual, ""]
