"""Workers on a device that die, run out of memory or do not see it: steps are right, or end with an error that says why."""

import pytest

from benchmarks import device_faults as faults

pytestmark = pytest.mark.gpu
ROUNDED = 0.02
"""A unit at zero that rounds to the other side makes less than this of a gradient; a gradient of other samples about 1."""
TWICE, ONCE = "fractional_repetition(2, s=1)", "uncoded(2)"


def test_nothing_is_left_of_workers_that_are_killed():
    faults.killed(0)  # what the master itself loads
    found = faults.killed(12)
    memory = found["memory_gb"]
    assert found["wrong"] < ROUNDED
    assert memory["all_there_again"] <= memory["all_there"] + 0.1 and memory["after"] <= memory["before"] + 0.1


def test_a_worker_that_is_short_of_memory():
    assert faults.short_of_memory(TWICE)["wrong"] < ROUNDED
    ends = faults.short_of_memory(ONCE)["ends"]
    assert ends.startswith("WorkerFailed") and "out of memory" in ends


def test_a_worker_that_does_not_see_the_device():
    found = faults.without_device(TWICE, later=True)
    assert found["ends"] == "right" and found["wrong"] < ROUNDED
    assert faults.without_device(ONCE, later=True)["ends"].startswith("NotRecovered")
    assert "ended while it started" in faults.without_device(TWICE, later=False)["ends"]
