"""Workers on a device through MPI or Ray, held against one process, run by test_torch_device_engines.py. Argument: the engine.

The master's model is on the host, and then on the device. Messages are long enough to go to another host in parts.
"""

import sys
import time

import torch
from torch import nn

import unstraggle as us

SCHEMES = ("uncoded(2)", "fractional_repetition(2, s=1)")
STEPS, BATCH = 5, 64
OPTIONS = {"ray": {"options": {"num_gpus": 0.25}}, "mpi": {}}


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 1024), nn.Tanh(), nn.Linear(1024, 1024), nn.Tanh(), nn.Linear(1024, 10))


def train(engine, scheme, home):
    """The largest relative difference of a gradient, and milliseconds of the last step."""
    generator, worst = torch.Generator().manual_seed(0), 0.0
    data = torch.randn(256, 64, generator=generator), torch.randint(0, 10, (256,), generator=generator)
    models = [network().to(home), network().to("cuda")]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    how = {"scheme": scheme, "batch_size": BATCH, "engine": engine, "engine_options": OPTIONS[engine], "device": "cuda"}
    with us.torch.Coded(models[0], nn.functional.cross_entropy, data, **how) as run:
        for step in range(STEPS):
            for optimizer in optimizers:
                optimizer.zero_grad()
            began = time.perf_counter()
            assert run.backward().exact
            took = time.perf_counter() - began
            rows = run.batches.batch_of(step)
            nn.functional.cross_entropy(models[1](data[0][rows].cuda()), data[1][rows].cuda()).backward()
            worst = max(worst, difference(*models))
            for optimizer in optimizers:
                optimizer.step()
    return worst, 1e3 * took


def difference(mine, other):
    found, expected = (torch.cat([p.grad.reshape(-1).cpu() for p in model.parameters()]) for model in (mine, other))
    return float((found - expected).norm() / expected.norm())


if __name__ == "__main__":
    for scheme in SCHEMES:
        for home in ("cpu", "cuda"):
            found, ms = train(sys.argv[1], scheme, home)
            print(f"{scheme}, model on {home}: differs by {found:.1e}, {ms:.1f} ms", flush=True)
            assert found < 1e-4
    print("passed")
