"""The program of the test of a Ray cluster across hosts: a node of it, or the head and the master beside it.

Arguments: "node" or "master", this host's address, a folder for Ray, workers here; for the master also
workers in all, and what to do: "train" or "last".
"""

import subprocess
import sys
from pathlib import Path

import numpy as np

from tests.engines.patient_ray import wait_for_ray
from tests.problems import Constant
from unstraggle import Master, codes
from unstraggle.engines import Ray

DIM, ROUNDS = 10**5, 5
PORT = 6379
HEAD = f"10.177.0.1:{PORT}"
ON_SEATS = {"address": HEAD, "options": {"resources": {"seat": 1}}}
"""There are as many seats as workers, so that each host gets its own."""


def node(address, folder, seats, join=(f"--address={HEAD}", "--block")):
    """`ray start`, which by itself gives its processes some seconds only."""
    from ray.scripts.scripts import cli

    wait_for_ray()
    here = f"--node-ip-address={address}", f"--temp-dir={folder}", f'--resources={{"seat": {seats}}}'
    cli(["start", *join, *here, "--num-cpus=2", f"--object-store-memory={10**8}", "--disable-usage-stats"])


def head(address, folder, seats):
    node(address, folder, seats, ("--head", f"--port={PORT}", "--include-dashboard=false"))


def master(address, folder, seats, workers, what):
    subprocess.run([sys.executable, __file__, "head", address, folder, seats], check=True, stdout=sys.stderr)
    print("head", flush=True)
    {"train": train, "last": last}[what](int(workers))


def train(workers):
    print("bytes", *per_round(workers), flush=True)
    print("difference", from_one_process(f"fractional_repetition({workers}, s=1)"), flush=True)
    print("measured", *pass_on_workers(workers), flush=True)


def last(workers):
    """Rounds until a host is lost, and until all workers are back."""
    with Master(codes.cyclic_repetition(workers, s=2), Ray(Constant(workers, DIM), **ON_SEATS)) as master:
        print("all", flush=True)
        while len(exact(master).lost) < 2:
            pass
        print("lost", flush=True)
        while exact(master).lost:
            pass
        print("back", flush=True)


def exact(master):
    estimate = master.gradient(np.zeros(DIM), delays=np.full(master.code.n, 0.05))
    assert estimate.exact and np.allclose(estimate.gradient, sum(range(master.code.n + 1)))
    return estimate


def per_round(workers):
    """Bytes that leave this host in a round, and that come to it; Ray's own are few beside them."""
    with Master(codes.uncoded(workers), Ray(Constant(workers, DIM), **ON_SEATS)) as master:
        gradients = (master.gradient(np.zeros(DIM)).gradient for _ in range(1 + ROUNDS))
        next(gradients)
        before = passed()
        assert all((gradient == sum(range(workers + 1))).all() for gradient in gradients)
        return (passed() - before) // ROUNDS


def from_one_process(scheme):
    """How far steps of a model lead from those of one process; its parameters are long."""
    from tests.programs.torch_program import train  # here, for PyTorch takes seconds that nodes need not spend

    return train(scheme, "ray", width=4000, **ON_SEATS)


def pass_on_workers(workers):
    """Seconds of a pass that takes longer on workers, as it is measured before a code is planned, and how much longer."""
    from tests.programs import torch_program

    torch_program.AT_HOME = True
    return torch_program.pass_on_workers(workers, "ray", **ON_SEATS), torch_program.MORE


def passed():
    """Bytes that have left this host, and that have come to it."""
    return np.array([int(Path(f"/sys/class/net/eth0/statistics/{way}_bytes").read_text()) for way in ("tx", "rx")])


if __name__ == "__main__":
    {"node": node, "head": head, "master": master}[sys.argv[1]](*sys.argv[2:])
