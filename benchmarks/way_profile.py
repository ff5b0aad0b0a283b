"""Throw-away: python -m benchmarks.way_profile"""

import json
import os
import statistics
import subprocess
import sys
import time

import torch
from torch import nn

from . import way_trace
from .way_gpu import DEVICE, THREADS
from .way_models import PICTURES, SMALL

SETTINGS = {"small": SMALL, "pictures": PICTURES}


def stepper(setting):
    model, (inputs, targets), loss_fn = setting.build().to(DEVICE), setting.data(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    at = 0

    def step():
        nonlocal at
        rows = torch.arange(at, at + setting.batch) % len(inputs)
        at += setting.batch
        optimizer.zero_grad()
        batch = inputs[rows].to(DEVICE), targets[rows].to(DEVICE)
        began = time.monotonic()
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = loss_fn(model(batch[0]), batch[1])
        way_trace.EVENTS.append(("a.forward", began, time.monotonic()))
        loss.backward()
        optimizer.step()

    return step


def blocks(steps, count=6, each=10):
    found = {name: [] for name in steps}
    for step in steps.values():
        for _ in range(6):
            step()
    for _ in range(count):
        for name, step in steps.items():
            torch.cuda.synchronize()
            began = time.perf_counter()
            for _ in range(each):
                step()
            torch.cuda.synchronize()
            found[name].append(1e3 * (time.perf_counter() - began) / each)
    return {name: [round(x, 2) for x in sorted(values)] for name, values in found.items()}


def one(name, scheme, ahead):
    from unstraggle.torch import Coded

    setting = SETTINGS[name]
    model = setting.build().to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    options = {"engine_options": {"way": "ipc", "threads": THREADS}, "device": DEVICE, "autocast": torch.bfloat16}
    splits = []
    with Coded(
        model, nn.CrossEntropyLoss(), setting.data(), scheme=scheme, batch_size=setting.batch, read_ahead=ahead, **options
    ) as run:

        def step():
            began = time.monotonic()
            optimizer.zero_grad()
            way_trace.EVENTS.append(("m.zero_grad", began, time.monotonic()))
            splits.append(run.backward().split)
            began = time.monotonic()
            optimizer.step()
            way_trace.EVENTS.append(("m.opt", began, time.monotonic()))

        found = blocks({"alone": stepper(setting), "coded": step})
    split = {key: round(1e3 * statistics.median([getattr(s, key) for s in splits[10:]]), 2) for key in vars(splits[0])}
    a, c = (statistics.median(found[key]) for key in ("alone", "coded"))
    print(
        f"== {name} {scheme} {os.environ.get('WAY_VARIANT')} ahead={ahead}: alone {a:.2f} coded {c:.2f} ratio {c / a:.3f}",
        split,
        found,
        flush=True,
    )
    if way_trace.FOLDER:
        way_trace.dump("master")
        table(way_trace.FOLDER)


def table(folder):
    """Medians of begin and end of everything, relative to the moment when the order was written."""
    files = sorted(os.listdir(folder))
    events = [tuple(e) + (f[:-5],) for f in files for e in json.load(open(os.path.join(folder, f)))]
    starts = sorted(e for label, b, e, w in events if label == "m.start")[12:]
    device = [e for label, b, e, w in events if label == "w.device_ms"]
    print(
        "device ms between first and last kernel of a pass:", round(1e3 * statistics.median(device[10:]), 2) if device else None
    )
    rows = {}
    import bisect

    for label, b, e, w in events:
        if label == "w.device_ms":
            continue
        i = bisect.bisect(starts, e + 1e-7) - 1
        if i < 0 or b < starts[0]:
            continue
        rows.setdefault((w, label), []).append((b - starts[i], e - starts[i], e - b))
    lines = []
    for (w, label), found in rows.items():
        bs, es, ds = zip(*found)
        lines.append(
            (
                statistics.median(bs),
                f"{w:8} {label:20} begin {1e3 * statistics.median(bs):8.3f} end {1e3 * statistics.median(es):8.3f} lasts {1e3 * statistics.median(ds):7.3f} (best {1e3 * min(ds):7.3f}) x{len(found)}",
            )
        )
    for _, line in sorted(lines):
        print(line)
    gaps = [b - a for a, b in zip(starts, starts[1:])]
    print("period", round(1e3 * statistics.median(gaps), 2), flush=True)


def kernels(name):
    from torch.profiler import ProfilerActivity, profile

    step = stepper(SETTINGS[name])
    for _ in range(5):
        step()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as p:
        for _ in range(3):
            step()
        torch.cuda.synchronize()
    found = [e for e in p.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    busy = sum(e.time_range.elapsed_us() for e in found) / 3e3
    print(f"kernels {name}: {len(found) / 3:.0f} a step, busy {busy:.2f} ms a step", flush=True)


PONG = """
import os, sys, time, torch
x = torch.zeros(1024, device="cuda"); torch.cuda.synchronize()
print("ready", flush=True)
for line in sys.stdin:
    kind = line.strip()
    t = time.monotonic()
    if kind == "work":
        x.add_(1); torch.cuda.synchronize()
    print(time.monotonic() - t, flush=True)
"""


def pingpong():
    child = subprocess.Popen([sys.executable, "-c", PONG], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    child.stdout.readline()
    x = torch.zeros(1024, device="cuda")

    def ask(kind):
        began = time.monotonic()
        child.stdin.write(kind + "\n")
        child.stdin.flush()
        theirs = float(child.stdout.readline())
        return theirs, time.monotonic() - began

    def mine():
        began = time.monotonic()
        x.add_(1)
        torch.cuda.synchronize()
        return time.monotonic() - began

    for name, other in (
        ("alone", None),
        ("a process that does nothing between", "idle"),
        ("a process that uses the device between", "work"),
    ):
        seen = []
        for _ in range(100):
            theirs = ask(other) if other else (0.0, 0.0)
            seen.append((mine(), *theirs))
        a, b, c = (1e3 * statistics.median(x) for x in zip(*seen))
        print(f"pingpong {name}: mine {a:.3f} ms, theirs {b:.3f}, round trip {c:.3f}", flush=True)
    child.kill()


if __name__ == "__main__":
    kind, *rest = sys.argv[1:]
    if kind == "one":
        one(rest[0], rest[1], {"0": False}.get(rest[2] if rest[2:] else ""))
    elif kind == "kernels":
        for name in SETTINGS:
            kernels(name)
    elif kind == "pingpong":
        pingpong()
