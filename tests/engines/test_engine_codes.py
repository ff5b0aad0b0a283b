"""Every example code on local workers and on MPI. Slow: workers start anew for each code."""

import subprocess

import pytest

from unstraggle.engines import Local
from unstraggle.testing import check_engine

from ..examples import APPROXIMATE_EXAMPLES, EXAMPLES, example

ALL = (*EXAMPLES, *APPROXIMATE_EXAMPLES)


@pytest.mark.slow
@pytest.mark.parametrize("expression", ALL)
def test_on_local(expression):
    assert check_engine(Local, [example(expression)], rounds=2, samples=100, faults=False).worst_error < 1e-9


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_on_mpi():
    mpi = pytest.importorskip("unstraggle.engines.mpi")
    most = max(example(expression).n for expression in ALL)
    done = subprocess.run(mpi.command(most, "-m", "tests.programs.mpi_codes"), capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stderr
    assert f"{len(ALL)} codes" in done.stdout
