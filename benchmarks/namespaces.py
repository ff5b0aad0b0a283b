"""Hosts on one machine: network namespaces with cables of so many megabits a second each way. That needs root on Linux."""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil

HOSTS = (1, 2, 3)
TOOLS = {"ip": "iproute2", "tc": "iproute2", "unshare": "util-linux", "hostname": "hostname"}
AGENT = """#!/bin/sh
# What mpiexec calls in place of ssh: host, then the command.
number=${{1##*.}}
shift
exec ip netns exec {name}$number unshare {apart} sh -c "hostname {name}$number; $*"
"""


def ip(*words: str, tool: str = "ip") -> str:
    """What a tool says; raises `CalledProcessError`."""
    return subprocess.run([tool, *words], check=True, capture_output=True, text=True, timeout=300).stdout


def why_not() -> str | None:
    """Why hosts cannot be made here; None if they can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "network namespaces need root on Linux"
    if missing := [tool for tool in TOOLS if shutil.which(tool) is None]:
        return f"network namespaces need {', '.join(missing)}: install {', '.join(sorted({TOOLS[tool] for tool in missing}))}"
    try:
        ip("netns", "add", probe := f"usp{os.getpid()}")
        ip("netns", "delete", probe)
    except subprocess.CalledProcessError as error:
        return f"no network namespaces here: {error.stderr}"
    return None


@contextlib.contextmanager
def hosts(network: str, megabits: int, burst: str = "64kb") -> Iterator[str]:
    """Hosts name1, name2, name3 with addresses network.1, ... at a bridge; cables are name1c, name2c, name3c."""
    name = f"us{os.getpid() % 10**6}"
    try:
        ip("link", "add", name, "type", "bridge")
        ip("link", "set", name, "up")
        for number in HOSTS:
            _add(name, f"{name}{number}", f"{network}.{number}/24")
            _slow(f"{name}{number}", "rate", f"{megabits}mbit", "burst", burst, "latency", "50ms")
        yield name
    finally:
        for number in HOSTS:
            _remove(f"{name}{number}")
        with contextlib.suppress(subprocess.CalledProcessError):
            ip("link", "delete", name)


def _add(name: str, host: str, address: str) -> None:
    ip("netns", "add", host)
    ip("link", "add", f"{host}c", "type", "veth", "peer", "name", "eth0", "netns", host)
    ip("link", "set", f"{host}c", "master", name, "up")
    ip("-n", host, "address", "add", address, "dev", "eth0")
    for device in ("lo", "eth0"):
        ip("-n", host, "link", "set", device, "up")


def _slow(host: str, *rate: str) -> None:
    ip("-n", host, "qdisc", "add", "dev", "eth0", "root", "tbf", *rate, tool="tc")


def _remove(host: str) -> None:
    with contextlib.suppress(subprocess.CalledProcessError):
        kill_all(host)
        ip("netns", "delete", host)
    with contextlib.suppress(subprocess.CalledProcessError):
        ip("link", "delete", f"{host}c")


def kill_all(host: str, but: str = "") -> None:
    """End all processes of a host. but: the name of those that stay."""
    for pid in ip("netns", "pids", host).split():
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(int(pid))
            if process.name() != but:
                process.kill()


def agent(folder: Path, name: str, apart: str = "--uts") -> str:
    """A program that takes the place of ssh for mpiexec. apart: what its hosts have for themselves, as `unshare` calls it."""
    path = folder / "agent.sh"
    path.write_text(AGENT.format(name=name, apart=apart))
    path.chmod(0o755)
    return str(path)


def job(name: str, line: list[str]) -> list[str]:
    """A command on the first host, under its name."""
    return ["ip", "netns", "exec", f"{name}1", "unshare", "--uts", "sh", "-c", f'hostname {name}1; exec "$@"', "sh", *line]
