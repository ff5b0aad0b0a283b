"""One fault suite for all engines with processes: scenarios.py on Local and Ray here, on MPI by test_engine_mpi.py."""

from functools import partial

import pytest

from unstraggle import codes
from unstraggle.engines import Local, Ray
from unstraggle.engines.ray_connection import QUIET, environment

from .left_behind import nothing_left_behind
from .scenarios import KILLS, RESTARTS, Bench
from .scenarios import QUIET as WITHOUT_KILLS

__all__ = ["nothing_left_behind"]

ALL = (*WITHOUT_KILLS, *KILLS, *RESTARTS)
SOME = [
    codes.uncoded_mmc(2, load=2),
    codes.blocks([2, 3], codes.uncoded(2), codes.fractional_repetition(2, s=1)),
    codes.quantize(codes.fractional_repetition(2, s=1), bits=8, bucket=512),
]
"""A code of each kind takes long to start on Ray; `test_engine_ray.py` has them as a slow test."""


@pytest.fixture(scope="module")
def cluster():
    """A Ray that was there before the engines."""
    ray = pytest.importorskip("ray")
    with environment(QUIET | {"RAY_worker_maximum_startup_concurrency": "8"}):
        ray.init("local", num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    yield
    assert ray.is_initialized(), "an engine ended a Ray that it did not start"
    ray.shutdown()


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("nothing_left_behind")
@pytest.mark.parametrize("scenario", ALL, ids=lambda scenario: scenario.__name__)
def test_on_local(scenario):
    scenario(Bench(Local))


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("nothing_left_behind")
@pytest.mark.parametrize("scenario", KILLS, ids=lambda scenario: scenario.__name__)
def test_on_local_with_new_interpreters(scenario):
    scenario(Bench(partial(Local, start_method="spawn")))


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("scenario", ALL, ids=lambda scenario: scenario.__name__)
def test_on_ray(scenario):
    scenario(Bench(Ray, SOME))
