"""The same training script on every live engine: two schemes, dropout, one slow worker in every step, as one process would."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from unstraggle import Invalid
from unstraggle.engines import mpi_launch

PROGRAM = Path(__file__).parent.parent / "programs" / "torch_program.py"


def line(engine):
    """The command that runs the script on an engine."""
    if engine != "mpi":
        return [sys.executable, str(PROGRAM), engine]
    try:
        return mpi_launch.command(4, str(PROGRAM), engine)
    except Invalid as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("engine", ["local", "ray", "mpi"])
def test_parity_with_one_process(engine):
    if engine == "ray":
        pytest.importorskip("ray")
    env = {**os.environ, "PYTHONPATH": str(PROGRAM.parents[2]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(line(engine), env=env, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.endswith("passed\n"), done.stdout + done.stderr
