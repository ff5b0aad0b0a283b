"""The program of the test across hosts of what Ray's workers and their master say to each other, without Ray.

Arguments: "master" and its address; or "worker", its number, and what the master said.
"""

import sys
import threading
import time
from pathlib import Path

import numpy as np

from tests.problems import Constant
from unstraggle import codes
from unstraggle.engines import Message, Order
from unstraggle.engines.hub import Hub
from unstraggle.engines.ray_worker import Post, Worker

DIM, KIND = 10**5, np.dtype("f8")
CODE = codes.uncoded(4)


def master(address):
    hub = Hub(CODE, DIM, KIND, lambda worker: None, heartbeat=60.0, start_within=60.0, restarts=0)
    host, port = hub.listen(address, 0)
    print(host, port, hub.token.hex(), flush=True)
    while not hub.roster.all_ready:
        hub.collect(0.1)
    hub.events.clear()
    for round in range(3):
        before = left()
        total = gradient(hub, round)
        assert (total == 10).all()
    print("bytes", left() - before, flush=True)


def gradient(hub, round):
    hub.begin(round)
    hub.order(Order(round, round, np.zeros(DIM)), range(4))
    while len(hub.events) < 4:
        hub.collect(0.1)
    messages, hub.events = hub.events, []
    assert all(isinstance(one, Message) for one in messages), messages
    return sum(one.payload.view(KIND) for one in messages)


def left():
    """Bytes that have left this host."""
    return int(Path("/sys/class/net/eth0/statistics/tx_bytes").read_text())


def worker(number, host, port, token):
    post = Post((host, int(port)), bytes.fromhex(token), 1, DIM, KIND.str, True)
    here = Worker(int(number), post)
    here.prepare(CODE.program(int(number)), Constant(4, DIM), (slice(0, DIM),), KIND)
    while threading.active_count() > 1:  # until the master is gone, which ends the process
        time.sleep(1.0)


if __name__ == "__main__":
    {"master": master, "worker": worker}[sys.argv[1]](*sys.argv[2:])
