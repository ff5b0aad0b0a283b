"""Throw-away: where the time of a step goes, in all processes, by wrapping functions. WAY_TRACE=folder, WAY_VARIANT=words."""

import functools
import json
import os
import time

EVENTS = []
FOLDER, VARIANT = os.environ.get("WAY_TRACE", ""), os.environ.get("WAY_VARIANT", "").split("+")


def wrap(owner, name, label=None):
    old, label = getattr(owner, name), label or name

    @functools.wraps(old)
    def timed(*args, **options):
        began = time.monotonic()
        try:
            return old(*args, **options)
        finally:
            EVENTS.append((label, began, time.monotonic()))

    setattr(owner, name, timed)


def dump(who):
    with open(os.path.join(FOLDER, f"{who}.json"), "w") as file:
        json.dump(EVENTS, file)


def variants():
    from unstraggle.engines import local, local_worker
    from unstraggle.torch import problem

    if "nohooks" in VARIANT:
        problem.TorchProblem.heed = lambda self, stopped: self._open()
    if "spin" in VARIANT:
        old = local_worker.Worker.next_job
        collect = local.Local._collect

        def next_job(self):
            os.set_blocking(self._orders, False)
            while True:
                try:
                    return old(self)
                except BlockingIOError:
                    pass

        def spin(self, timeout, opening=False):
            if opening:
                return collect(self, timeout, opening)
            until = time.monotonic() + timeout
            while not self._events and time.monotonic() < until:
                collect(self, 0.0, opening)

        local_worker.Worker.next_job = next_job
        local.Local._collect = spin
    if "asleep" in VARIANT:
        local_worker.AWAKE = -1.0
    if "cores" in VARIANT:
        cores = sorted(os.sched_getaffinity(0))
        main = local_worker.Worker.join

        def join(self):
            os.sched_setaffinity(0, cores[8:])
            main(self)

        local_worker.Worker.join = join
        os.sched_setaffinity(0, cores[:8])


def traced():
    import torch

    from unstraggle.engines import local, local_worker
    from unstraggle.runtime import master
    from unstraggle.torch import coded, device_gather, passes, problem, reading, replica, ways

    for name in ("accumulate", "accumulate_all", "hear", "heed"):
        wrap(problem.TorchProblem, name, f"w.{name}")
    for name in ("load", "head", "collected", "collect"):
        wrap(replica.Replica, name, f"w.{name}")
    wrap(reading.Reading, "read", "w.read")
    wrap(passes.Passes, "forward", "w.forward")
    wrap(passes.Passes, "look_at_losses", "w.look_at_losses")
    wrap(torch.Tensor, "backward", "w.backward")
    wrap(local_worker.Worker, "next_job", "w.next_job")
    wrap(local_worker.Worker, "begin", "w.begin")
    inner = local_worker.Worker.send
    count = [0]

    def send(self, *args):
        began = time.monotonic()
        inner(self, *args)
        EVENTS.append(("w.send", began, time.monotonic()))
        count[0] += 1
        if count[0] % 30 == 0:
            dump(f"worker{self.number}")

    local_worker.Worker.send = send
    for name in ("_told", "_params", "_fill", "backward"):
        wrap(coded.Coded, name, f"m.{name}")
    wrap(master, "_checked", "m.checked")
    wrap(master.Current, "estimate", "m.estimate")
    wrap(local.Local, "start", "m.start")
    wrap(local.Local, "next", "m.next")
    wrap(ways.Ipc, "publish", "m.publish")
    wrap(device_gather.DeviceGather, "finish", "m.finish")
    wrap(coded.Coded, "_prepare", "m._prepare")
    wrap(master.Master, "_learn", "m._learn")
    wrap(master.Current, "_keep", "m._keep")


if FOLDER or VARIANT != [""]:
    variants()
if FOLDER:
    traced()
