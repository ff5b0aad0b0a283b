"""Engines across hosts: three network namespaces on this machine, with cables of 100 Mbit/s between them."""

import contextlib
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time

import psutil
import pytest

from unstraggle import Invalid
from unstraggle.engines.mpi import command

from .test_engine_mpi import PROGRAM, ranks

HOSTS = (1, 2, 3)
MEGABITS = 100
AGENT = """#!/bin/sh
# What mpiexec calls in place of ssh: host, then the command.
number=${{1##*.}}
shift
exec ip netns exec {name}$number unshare --uts sh -c "hostname {name}$number; $*"
"""


def ip(*words, tool="ip"):
    return subprocess.run([tool, *words], check=True, capture_output=True, text=True, timeout=300).stdout


def why_not():
    """Why hosts cannot be made here, None if they can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "network namespaces need root on Linux"
    if missing := [tool for tool in ("ip", "tc", "unshare", "hostname") if shutil.which(tool) is None]:
        return f"network namespaces need {', '.join(missing)} (packages iproute2, util-linux, hostname)"
    try:
        command(1, "script.py")
        ip("netns", "add", probe := f"usp{os.getpid()}")
        ip("netns", "delete", probe)
    except (Invalid, subprocess.CalledProcessError) as error:
        return f"no network namespaces or no mpiexec here: {getattr(error, 'stderr', None) or error}"
    return None


REASON = why_not()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))


@pytest.fixture
def name():
    """Hosts name1, name2, name3 with addresses 10.177.0.1, ... at a bridge; cables are name1c, name2c, name3c."""
    name = f"us{os.getpid() % 10**6}"
    try:
        ip("link", "add", name, "type", "bridge")
        ip("link", "set", name, "up")
        for number in HOSTS:
            add_host(name, number)
        yield name
    finally:
        for number in HOSTS:
            remove_host(f"{name}{number}")
        with contextlib.suppress(subprocess.CalledProcessError):
            ip("link", "delete", name)


def add_host(name, number):
    host = f"{name}{number}"
    ip("netns", "add", host)
    ip("link", "add", f"{host}c", "type", "veth", "peer", "name", "eth0", "netns", host)
    ip("link", "set", f"{host}c", "master", name, "up")
    ip("-n", host, "address", "add", f"10.177.0.{number}/24", "dev", "eth0")
    for device in ("lo", "eth0"):
        ip("-n", host, "link", "set", device, "up")
    rate = ("rate", f"{MEGABITS}mbit", "burst", "64kb", "latency", "50ms")
    ip("-n", host, "qdisc", "add", "dev", "eth0", "root", "tbf", *rate, tool="tc")


def remove_host(host):
    with contextlib.suppress(subprocess.CalledProcessError):
        kill_all(host)
        ip("netns", "delete", host)
    with contextlib.suppress(subprocess.CalledProcessError):
        ip("link", "delete", f"{host}c")


def kill_all(host, but=""):
    """but: the name of processes that stay."""
    for pid in ip("netns", "pids", host).split():
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(int(pid))
            if process.name() != but:
                process.kill()


def start(name, mark):
    """A job with the master on the first host and two workers on each other one."""
    agent = mark / "agent.sh"
    agent.write_text(AGENT.format(name=name))
    agent.chmod(agent.stat().st_mode | stat.S_IXUSR)
    places = ",".join(f"10.177.0.{number}:{1 if number == 1 else 2}" for number in HOSTS)
    options = ("--host", places, "--prtemca", "plm_ssh_agent", str(agent), "-x", "PYTHONPATH")
    line = command(4, str(PROGRAM), str(mark), "across_hosts", options=options)
    inside = ["ip", "netns", "exec", f"{name}1", "unshare", "--uts", "sh", "-c", f'hostname {name}1; exec "$@"', "sh", *line]
    env = {**os.environ, "PYTHONPATH": str(PROGRAM.parent.parent.parent)}
    return subprocess.Popen(inside, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, start_new_session=True)


def test_a_cable_is_pulled_and_a_host_dies(name, tmp_path):
    with start(name, tmp_path) as job:
        word, *said = job.stdout.readline().split() or ("", job.stderr.read())
        assert word == "seconds", said
        seconds, _, left = said
        once = 2 * 8 * 10**5  # parameters leave by the master's cable once for each of two hosts, not for each of four workers
        assert once <= int(left) < 1.25 * once
        assert once * 8 / (MEGABITS * 10**6) * 0.8 < float(seconds)
        assert job.stdout.readline() == "cut\n"
        ip("link", "set", f"{name}3c", "down")
        assert job.stdout.readline() == "lost\n"
        ip("link", "set", f"{name}3c", "up")
        assert job.stdout.readline() == "joined\n"
        kill_all(f"{name}3", but="sh")  # that stands for ssh, which notices on the master's host that the other end is gone
        _, errors = job.communicate(timeout=300)
    assert job.returncode is not None  # 137 or 0: mpiexec's own, where it loses a daemon
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
