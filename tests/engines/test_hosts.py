"""Engines across hosts: three network namespaces on this machine, with cables of 100 Mbit/s between them."""

import contextlib
import os
import subprocess
import sys
import tempfile
import time

import pytest

from benchmarks.namespaces import HOSTS, agent, hosts, ip, job, kill_all, why_not
from unstraggle import Invalid
from unstraggle.engines.mpi import command

from .test_engine_mpi import PROGRAM, ranks

MEGABITS = 100


def reason():
    """Why jobs cannot be started across hosts here, None if they can."""
    try:
        command(1, "script.py")
    except Invalid as error:
        return f"no mpiexec here: {error}"
    return why_not()


REASON = reason()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))


@pytest.fixture
def name():
    with hosts("10.177.0", MEGABITS) as name:
        yield name


def start(name, mark):
    """A job with the master on the first host and two workers on each other one."""
    places = ",".join(f"10.177.0.{number}:{1 if number == 1 else 2}" for number in HOSTS)
    options = ("--host", places, "--prtemca", "plm_ssh_agent", agent(mark, name), "-x", "PYTHONPATH")
    line = command(4, str(PROGRAM), str(mark), "across_hosts", options=options)
    env = {**os.environ, "PYTHONPATH": str(PROGRAM.parent.parent.parent)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(job(name, line), **pipes, text=True, env=env, start_new_session=True)


def test_a_cable_is_pulled_and_a_host_dies(name, tmp_path):
    with start(name, tmp_path) as running:
        word, *said = running.stdout.readline().split() or ("", running.stderr.read())
        assert word == "seconds", said
        seconds, _, left = said
        once = 2 * 8 * 10**5  # parameters leave by the master's cable once for each of two hosts, not for each of four workers
        assert once <= int(left) < 1.25 * once
        assert once * 8 / (MEGABITS * 10**6) * 0.8 < float(seconds)
        assert running.stdout.readline() == "cut\n"
        ip("link", "set", f"{name}3c", "down")
        assert running.stdout.readline() == "lost\n"
        ip("link", "set", f"{name}3c", "up")
        assert running.stdout.readline() == "joined\n"
        kill_all(f"{name}3", but="sh")  # that stands for ssh, which notices on the master's host that the other end is gone
        _, errors = running.communicate(timeout=300)
    assert running.returncode is not None  # 137 or 0: mpiexec's own, where it loses a daemon
    assert errors
    while ranks(tmp_path):
        time.sleep(0.1)


HUB = PROGRAM.parent / "hub_program.py"


def inside(name, number, *arguments):
    """A program on a host."""
    line = ["ip", "netns", "exec", f"{name}{number}", sys.executable, str(HUB), *arguments]
    env = {**os.environ, "PYTHONPATH": str(PROGRAM.parent.parent.parent)}
    return subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)


def test_parameters_leave_the_master_once_for_each_host(name):
    """What Ray's workers do, on two hosts with two workers each; they end with the master."""
    with inside(name, 1, "master", "10.177.0.1") as master:
        at = master.stdout.readline().split()
        workers = [inside(name, 2 + number // 2, "worker", str(number), *at) for number in range(4)]
        word, left = master.stdout.readline().split()
        master.communicate(timeout=300)
    for worker in workers:
        assert "the master is gone" in worker.communicate(timeout=300)[0]
    once = 2 * 8 * 10**5
    assert word == "bytes" and once <= int(left) < 1.25 * once


RAY = PROGRAM.parent / "ray_program.py"
GUARDED = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": os.urandom(32).hex()}
"""Without this a head asks for a token if its user has one, and nobody shows it."""
SEATS = 2
"""Workers on each host of a Ray cluster."""


@contextlib.contextmanager
def on_machine(name, number, *arguments, **options):
    """A program of Ray's on a host that has process numbers of its own, so that all that it has started ends with it."""
    apart = ("unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc")
    line = [*apart, "sh", "-c", f'hostname {name}{number}; "$@"', "sh", sys.executable, str(RAY), *arguments]
    env = {**os.environ, **GUARDED, "PYTHONPATH": str(PROGRAM.parent.parent.parent)}
    with subprocess.Popen(["ip", "netns", "exec", f"{name}{number}", *line], text=True, env=env, **options) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def place():
    """A folder for Ray with a short name: sockets in it have at most 107 characters."""
    with tempfile.TemporaryDirectory(prefix="us", dir="/tmp") as folder:
        yield folder


@contextlib.contextmanager
def cluster(name, place, what):
    """A Ray cluster: a function that hears its master, on the first host, and one that starts another node."""
    pytest.importorskip("ray")

    def about(number):
        return f"10.177.0.{number}", f"{place}/{number}", str(SEATS)

    with on_machine(name, 1, "master", *about(1), str(SEATS * len(HOSTS)), what, stdout=subprocess.PIPE) as master:

        def heard(word):
            """What follows a word of the master's; Ray writes there, too."""
            found = next((line.split() for line in master.stdout if line.split()[:1] == [word]), None)
            assert found is not None, f"the master ended before it said {word!r}"
            return found[1:]

        heard("head")
        yield heard, lambda number: on_machine(name, number, "node", *about(number))


@pytest.mark.slow
def test_a_ray_cluster_of_three_hosts(name, place):
    """Parameters leave the master once for each other host, steps of a model are those of one process, and what a pass costs is
    measured where workers are."""
    with cluster(name, place, "train") as (heard, node), node(2), node(3):
        (left, came), (difference,), (seconds, more) = (heard(word) for word in ("bytes", "difference", "measured"))
    once = 2 * 8 * 10**5
    assert once <= int(left) < 1.25 * once
    assert SEATS * once <= int(came) < 1.25 * SEATS * once  # messages of the workers there
    assert float(difference) < 1e-5
    assert float(seconds) >= float(more)


@pytest.mark.slow
def test_a_host_of_a_ray_cluster_dies_and_comes_back(name, place):
    """Rounds go on without its workers, and Ray starts them again when there is room."""
    with cluster(name, place, "last") as (heard, node), node(2):
        with node(3):
            heard("all")
        heard("lost")
        with node(3):
            heard("back")
