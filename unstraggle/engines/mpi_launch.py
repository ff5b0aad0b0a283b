"""The ranks of an MPI job: rank 0 runs a program as its main one, all others serve it until it ends."""

from __future__ import annotations

import contextlib
import os
import runpy
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from ..errors import Invalid
from .commons import machine
from .mpi_wire import BYE, EXIT, Pace, Wire, library, require_mpi4py

USAGE = "mpiexec -n RANKS python -m unstraggle.engines.mpi SCRIPT [ARGUMENTS...]   (or -m MODULE in place of SCRIPT)"
FAREWELL = 5.0
"""Seconds that ranks have to end when the program has."""

TOGETHER, ALONE = "together", "alone"
"""How ranks end: by MPI_Finalize, all at once; or each by itself where one has died, for then that may never return."""
SEGMENTS = "/dev/shm/sm_segment"
"""How the names begin of the memory that ranks share in Open MPI 5."""
LOOK = 0.5
"""Seconds between two looks at the process that started this one."""

PLACES = {"--host", "-host", "-H", "--hostfile", "-hostfile", "--machinefile", "-machinefile"}
"""Options of mpiexec that say where ranks go. A place for each rank is better than --oversubscribe, with which Open MPI gives
the processor away at every look for a message."""

_wires: list[Wire] = []
"""The wire of this process, if it was started as a rank."""


def command(n: int, *program: str, spare: int = 0, threads: int = 1, options: Sequence[str] = ()) -> list[str]:
    """The command line that runs a program with n workers on this machine.

    program: a script (or "-m", a module) and its arguments. spare: ranks that take the place of dead ones. threads: of the
    numerical libraries in each rank. options: more of mpiexec's own, such as ("--hostfile", "hosts"). With Open MPI 5 and later
    the job goes on without a rank that died, and ranks that are all on this machine use shared memory only and listen nowhere.
    """
    launcher, ranks = find_mpiexec(), n + 1 + spare
    line = [launcher, "-n", str(ranks)]
    if open_mpi_version(launcher) >= 5:
        line += ["--with-ft", "ulfm", "--bind-to", "none", "-x", f"OMP_NUM_THREADS={threads}"]
        line += [] if PLACES & set(options) else ["--host", f"localhost:{ranks}", "--mca", "btl", "self,sm"]
        line += ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return [*line, *options, sys.executable, "-m", "unstraggle.engines.mpi", *program]


def find_mpiexec() -> str:
    """The mpiexec next to this Python, where pip puts it, or on the path."""
    beside = str(Path(sys.executable).parent)
    found = shutil.which("mpiexec", path=beside) or shutil.which("mpiexec")
    if found is None:
        raise Invalid("MPI jobs are started by mpiexec, but there is none. Run: pip install 'unstraggle[mpi]'")
    return found


def open_mpi_version(launcher: str) -> int:
    """The main number of Open MPI's version; 0 for other MPI libraries."""
    text = subprocess.run([launcher, "--version"], capture_output=True, text=True, timeout=60).stdout
    words = text.split("(Open MPI)")[-1].split() if "(Open MPI)" in text else ["0"]
    return int(words[0].split(".")[0])


def wire(n: int) -> Wire:
    """The wire to n workers. Raises `Invalid` where this process is not rank 0 of an MPI job that has them."""
    program = sys.argv if sys.argv and sys.argv[0] else ["script.py"]
    if not _wires:
        require_mpi4py()
        raise Invalid(
            "MPI needs ranks that serve it, but this process was started without. Run: "
            f"mpiexec -n {n + 1} python -m unstraggle.engines.mpi {shlex.join(program)}"
        )
    if _wires[0].rank:
        raise Invalid(
            "The program runs on rank 0; other ranks only take classes and functions from it, but this rank runs all of it. "
            'Put what starts the work under `if __name__ == "__main__":`.'
        )
    alive = _wires[0].size - 1 - len(_wires[0].dead)
    if alive < n:
        raise Invalid(
            f"MPI with n={n} workers needs {n + 1} ranks, the master being one, but {alive + 1} are there. Run: "
            f"mpiexec -n {n + 1} --oversubscribe --bind-to none python -m unstraggle.engines.mpi {shlex.join(program)}"
        )
    return _wires[0]


def main(program: Sequence[str]) -> NoReturn:
    """What every rank does."""
    if not program or (program[0] == "-m" and len(program) < 2):
        sys.exit(f"usage: {USAGE}")
    mpi = library()
    mine = Wire(mpi.COMM_WORLD.Dup())
    _wires.append(mine)
    processes = mpi.COMM_WORLD.allgather((os.getpid(), machine()))
    _prepare(program)
    threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()
    if mine.rank:
        from .mpi_worker import Worker

        Worker(mine, program).serve()
    signal.signal(signal.SIGTERM, _terminate)
    code = run_main(program)
    _finish(mine, code, processes)
    sys.exit(code)


def run_program(program: Sequence[str], name: str) -> dict[str, Any]:
    """Run a script or module under a name; gives what it defines."""
    if program[0] == "-m":
        return runpy.run_module(program[1], run_name=name, alter_sys=True)
    return runpy.run_path(program[0], run_name=name)


def run_main(program: Sequence[str]) -> int:
    """Run the program as the main one; gives its exit code, as Python would."""
    try:
        run_program(program, "__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return int(end.code or 0)
        print(end.code, file=sys.stderr)
        return 1
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        return 130 if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _prepare(program: Sequence[str]) -> None:
    """Arguments and import path as if Python had started the program itself."""
    module = program[0] == "-m"
    sys.argv[:] = program[1:] if module else program
    sys.path[0] = os.getcwd() if module else str(Path(program[0]).resolve().parent)


def _watch(launcher: int) -> None:
    """End this rank when what started it is gone, even where MPI does not let go of the main thread."""
    while os.getppid() == launcher:
        time.sleep(LOOK)
    with contextlib.suppress(OSError):
        print("unstraggle: mpiexec is gone, so this rank ends.", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(FAREWELL)
    os._exit(3)


def is_sibling(pid: int) -> bool:
    """Whether a number that a rank sent is that of a process here with the same parent as this one: a rank of this job."""
    if pid <= 1:
        return False
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return int(status.rpartition(")")[2].split()[1]) == os.getppid()


def is_gone(pid: int) -> bool:
    """Whether there is no process of this number on this machine."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def _terminate(number: int, _: Any) -> NoReturn:
    """SIGTERM, which mpiexec also sends for Ctrl+C, ends the program as sys.exit does: it cleans up. A second one kills."""
    signal.signal(number, signal.SIG_DFL)
    sys.exit(128 + number)


def _finish(mine: Wire, code: int, processes: Sequence[tuple[int, str]]) -> None:
    """End all ranks when they have said goodbye, and kill those that do not: one that is stopped must not keep the job."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    if late := _farewell(mine, _tell_all(mine, "")):
        print(f"unstraggle: ranks {late} did not end within {FAREWELL:g} s, and are killed.", file=sys.stderr, flush=True)
        for pid, place in (processes[rank] for rank in late):
            if place == machine() and is_sibling(pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        late = _farewell(mine, set(late))
    if late:
        mine.mpi.COMM_WORLD.Abort(code or 1)
    if mine.dead:
        _tell_all(mine, ALONE)
        _farewell(mine, set(range(1, mine.size)))
        _unlink_segments()
    else:
        _tell_all(mine, TOGETHER)
        mine.mpi.Finalize()


def _unlink_segments() -> None:
    """Remove the shared memory of ranks, which Open MPI leaves behind where a job ends without MPI_Finalize."""
    with contextlib.suppress(OSError):
        maps = Path("/proc/self/maps").read_text().split()
        for path in {word for word in maps if word.startswith(f"{SEGMENTS}.")}:
            with contextlib.suppress(OSError):
                os.unlink(path)


def _tell_all(mine: Wire, what: str) -> set[int]:
    """Tell all ranks about the end; gives those that are alive."""
    return {rank for rank in range(1, mine.size) if mine.send(rank, EXIT, 0, what.encode()) is not None}


def _farewell(mine: Wire, waiting: set[int]) -> list[int]:
    """Wait until ranks have said goodbye, or died; gives those that have not."""
    limit, pace = time.monotonic() + FAREWELL, Pace()
    while waiting - mine.dead and time.monotonic() < limit:
        waiting = waiting - {parcel.rank for parcel in mine.poll() if parcel.kind == BYE}
        pace.rest()
    return sorted(waiting - mine.dead)
