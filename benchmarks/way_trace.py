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
    import torch

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
    if "yield" in VARIANT:
        torch.cuda.synchronize()


def traced():
    import torch

    from unstraggle.engines import local, local_worker
    from unstraggle.runtime import master
    from unstraggle.torch import coded, device_gather, problem, ways

    for name in ("_load", "_read", "_forward", "_add_grads", "_look_at_losses", "accumulate", "accumulate_all", "hear", "heed", "_view", "_head"):
        wrap(problem.TorchProblem, name, f"w.{name}")
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
    wrap(device_gather, "device_sum", "m.device_sum")
    wrap(device_gather.DeviceGather, "_sum", "m._sum")

    old = problem.TorchProblem._accumulated

    def accumulated(self, *args):
        if self._device.type != "cuda" if self._ready else True:
            return old(self, *args)
        a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        began = time.monotonic()
        a.record()
        look = self._look_at_losses

        def looked():
            b.record()
            look()

        self._look_at_losses = looked
        try:
            return old(self, *args)
        finally:
            del self._look_at_losses
            ended = time.monotonic()
            EVENTS.append(("w.device_ms", 0.0, a.elapsed_time(b) / 1e3))
            EVENTS.append(("w.accumulated", began, ended))

    problem.TorchProblem._accumulated = accumulated


if FOLDER or VARIANT != [""]:
    variants()
if FOLDER:
    traced()
