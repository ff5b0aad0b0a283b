"""Starts `unstraggle` as a process of its own that need not import NumPy, SciPy, Numba and Matplotlib, which takes two seconds.

A fresh interpreter imports those, and nothing of this package; it forks for each command and gives its exit code.
"""

import atexit
import json
import os
import runpy
import subprocess
import sys
import tempfile
from functools import cache
from importlib import import_module

PACKAGES = ("scipy.stats", "scipy.optimize", "scipy.sparse.linalg", "numba", "matplotlib.figure", "rich.console", "typer.main")


def launch(words, environment):
    """Run `python -m unstraggle` with these words; gives exit code, output and errors."""
    server = _server()
    with tempfile.NamedTemporaryFile() as out, tempfile.NamedTemporaryFile() as err:
        wanted = {"words": words, "folder": os.getcwd(), "environment": environment, "out": out.name, "err": err.name}
        server.stdin.write(json.dumps(wanted) + "\n")
        server.stdin.flush()
        code = int(server.stdout.readline())
        return code, out.read().decode(), err.read().decode()


@cache
def _server():
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.launcher"], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    atexit.register(_end, server)
    return server


def _end(server):
    server.stdin.close()
    server.wait()
    server.stdout.close()


def serve():
    """Until nobody asks any more; gives what a child was asked to do."""
    for name in PACKAGES:
        import_module(name)
    assert "unstraggle" not in sys.modules
    for line in sys.stdin:
        if (pid := os.fork()) == 0:
            return json.loads(line)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    return None


def become(wanted):
    """Be the program: its words, folder, variables, and files in place of standard streams."""
    for number, place in ((0, os.devnull), (1, wanted["out"]), (2, wanted["err"])):
        fd = os.open(place, os.O_RDWR)
        os.dup2(fd, number)
        os.close(fd)
    os.chdir(wanted["folder"])
    os.environ.clear()
    os.environ.update(wanted["environment"])
    sys.path[0], sys.argv = wanted["folder"], ["unstraggle", *wanted["words"]]
    runpy.run_module("unstraggle", run_name="__main__", alter_sys=True)


if __name__ == "__main__" and (wanted := serve()):
    become(wanted)
