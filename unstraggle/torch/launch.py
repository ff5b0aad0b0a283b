"""How a script was started: a launcher that starts it several times would train several whole models, side by side."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from ..errors import Invalid

LAUNCHERS = {
    "torchrun": ("WORLD_SIZE", "RANK"),
    "srun": ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
    "mpiexec": ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    "mpiexec of MPICH": ("PMI_SIZE", "PMI_RANK"),
}
"""Variables by which launchers tell a process how many there are, and which one it is."""


def require_one_master(engine: Any, environment: Mapping[str, str] = os.environ) -> None:
    """Refuse a script that was started several times: each of these processes would start workers of its own.

    Ranks that serve an MPI engine do not run the script, and a sampled clock has no workers.
    """
    if engine in ("mpi", "virtual") or _serves_mpi():
        return
    for launcher, (size, rank) in LAUNCHERS.items():
        started = environment.get(size, "")
        if started.isdigit() and int(started) > 1 and rank in environment:
            raise Invalid(
                f"This script was started {started} times ({size}={started}, {rank}={environment[rank]}), it seems by "
                f"{launcher}, and each process would train the whole model with workers of its own. Start it once: "
                f'python {_script()}; it starts the workers itself, on this machine, or on several with engine="ray". Under '
                f'mpiexec or srun use engine="mpi" and python -m unstraggle.engines.mpi {_script()}. If several trainings are '
                f"meant, unset {size}."
            )


def _serves_mpi() -> bool:
    """Whether the other ranks of this job serve an engine."""
    launch = sys.modules.get("unstraggle.engines.mpi_launch")
    return bool(launch is not None and launch._wires)


def _script() -> str:
    return os.path.basename(sys.argv[0]) if sys.argv and sys.argv[0] else "train.py"
