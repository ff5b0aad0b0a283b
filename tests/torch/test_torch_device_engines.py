"""Workers on a device through MPI and Ray: the same gradients as in one process, from one host or as from several."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from unstraggle import Invalid
from unstraggle.engines import mpi_launch

PROGRAM = Path(__file__).parent.parent / "programs" / "device_program.py"
APART = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
"""A process that cannot see others' memory, as on a host of its own."""


def line(engine, apart):
    """The command that runs the program on an engine. apart: every rank is on a host of its own, as far as it knows."""
    if engine == "ray":
        pytest.importorskip("ray")
        return [sys.executable, str(PROGRAM), engine]
    try:
        found = mpi_launch.command(2, str(PROGRAM), engine)
    except Invalid as error:
        pytest.skip(str(error))
    if mpi_launch.open_mpi_version(found[0]) < 5:
        pytest.skip(f"needs Open MPI 5, but {found[0]} is another one")
    if apart:
        found[found.index("self,sm")] = "self,tcp"
        place = found.index(sys.executable)
        found[place:place] = APART
    return found


@pytest.mark.gpu
@pytest.mark.parametrize(("engine", "apart"), [("mpi", False), ("mpi", True), ("ray", False)])
def test_workers_on_a_device_give_the_gradients_of_one_process(engine, apart):
    pytest.importorskip("mpi4py" if engine == "mpi" else "ray")
    if apart and subprocess.run([*APART, "true"], capture_output=True).returncode:
        pytest.skip("processes cannot be put apart here")
    paths = os.pathsep.join([str(PROGRAM.parents[2]), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(line(engine, apart), env=env, capture_output=True, text=True)
    assert done.returncode == 0 and "passed" in done.stdout.splitlines(), done.stdout + done.stderr
    print(done.stdout)
