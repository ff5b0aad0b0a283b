"""One training script on every live engine, as one process would: several messages or one, dropout, one slow worker a step."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from unstraggle import Invalid
from unstraggle.engines import mpi_launch

PROGRAM = Path(__file__).parent.parent / "programs" / "torch_program.py"


def line(engine, schemes):
    """The command that runs the script on an engine, with so many schemes."""
    if engine != "mpi":
        return [sys.executable, str(PROGRAM), engine, schemes]
    try:
        return mpi_launch.command(4, str(PROGRAM), engine, schemes)
    except Invalid as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(("engine", "schemes"), [("local", "2"), ("ray", "1"), ("mpi", "1")])
def test_parity_with_one_process(engine, schemes):
    if engine == "ray":
        pytest.importorskip("ray")
    env = {**os.environ, "PYTHONPATH": str(PROGRAM.parents[2]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(line(engine, schemes), env=env, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.endswith("passed\n"), done.stdout + done.stderr
