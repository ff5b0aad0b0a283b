"""One run: a scheme at a rate, with real gradients, quantised messages and sampled stragglers."""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unstraggle.errors import Invalid
from unstraggle.papers.quantized_osgc.schemes import Cluster, scheme, straggle_probabilities
from unstraggle.quantizers.layout import GUARD
from unstraggle.runtime.payload import rounding_seed

from .replica import Replica
from .tasks import DEVICE

BITS = range(2, 17)
LAST, EVERY = 20, 5
"""The mean training loss of so many last steps counts; of the steps before, every fifth is looked at."""

LOST = 3.0
"""A loss that is so many times the first one means that the run has diverged."""

STRAGGLERS = 7
"""Stream of the straggler draws, apart from those of data and rounding."""


@dataclass(frozen=True)
class Run:
    """Which run: everything that decides its result but the machine."""

    task: str
    scheme: str
    rate: float
    seed: int
    steps: int


def train(replica: Replica, run: Run, each: int) -> dict[str, Any]:
    """Train once. The seed fixes first parameters, batches, stragglers and rounding; all schemes share the first three."""
    workers, task = replica.task.workers, replica.task
    p = straggle_probabilities(workers)
    replica.reset(run.seed)
    code = scheme(run.scheme, cluster(replica, run.scheme, each)).code
    arrived = np.random.default_rng((STRAGGLERS, run.seed)).random((run.steps, workers)) >= p
    looks, bits, start = [], 0.0, time.perf_counter()
    for step in range(run.steps):
        batch = task.batch(run.seed, step)
        if step % EVERY == 0 or step >= run.steps - LAST:
            looks.append((step, replica.training_loss(batch)))
            if not looks[-1][1] < LOST * looks[0][1]:
                break
        try:
            direction, sent = estimate(replica, batch, code, arrived[step], run.seed * run.steps + step)
        except Invalid:  # quantisers refuse what is not finite
            looks.append((step, float("inf")))
            break
        replica.theta.add_(direction, alpha=-run.rate)
        bits += sent
    return _row(run, looks, bits, time.perf_counter() - start)


def estimate(replica: Replica, batch: tuple[Tensor, Tensor], code: Any, arrived: Any, number: int) -> tuple[Tensor, float]:
    """The mean gradient as a master decodes it, and the bits that were sent; code None: everyone answers, unquantised."""
    k, dim = replica.task.workers, replica.dim
    if code is None:
        return replica.gradient(batch, range(k), [1 / k] * k).clone(), 32.0 * k * dim
    got = arrived[code.messages.worker]
    weights, total, bits = code.decoder.weights(got)[0], torch.zeros(dim, device=DEVICE), 0.0
    out = total if DEVICE == "cuda" else total.numpy()
    for m in np.flatnonzero(got).tolist():
        row, codec = code.messages.coef[[m]], code.messages.codec[m]
        message = replica.gradient(batch, row.indices.tolist(), row.data.tolist())
        payload = codec.encode(message, rounding_seed(number, m))
        codec.accumulate(out, [payload], [float(weights[m]) / k])
        bits += int(code.messages.bits[m]) * dim + 32
    return total, bits


def cluster(replica: Replica, label: str, each: int) -> Cluster:
    """What the scheme is designed for, with measured variances if it asks for them."""
    p = tuple(straggle_probabilities(replica.task.workers).tolist())
    measured = measured_omega(replica) if "measured" in label else ()
    return Cluster(p, each * len(p), replica.dim, measured)


def measured_omega(replica: Replica) -> tuple[float, ...]:
    """Relative variance of quantisers with 2, 3, ... 16 bits: mean over some partial gradients at the present parameters."""
    k, batch = replica.task.workers, replica.task.batch(999, 0)
    parts = np.unique(np.linspace(0, k - 1, 4).astype(int)).tolist()
    table = [[variance(replica.gradient(batch, [part], [1.0]), bits) for bits in BITS] for part in parts]
    return tuple(np.mean(table, axis=0).tolist())


def variance(x: Tensor, bits: int) -> float:
    """What QSGD(bits).variance(x, relative=True) is, on the device of x and in float32."""
    step = float(torch.linalg.vector_norm(x)) * GUARD / (2 ** (bits - 1) - 1)
    above = torch.frac(x.abs() / step)
    return float((above * (1 - above)).sum(dtype=torch.float64)) * step**2 / float(x.square().sum(dtype=torch.float64))


def _row(run: Run, looks: list[tuple[int, float]], bits: float, seconds: float) -> dict[str, Any]:
    """What is written of a run; the final loss is None where it diverged."""
    done = looks[-1][0] + 1
    diverged = done < run.steps or not looks[-1][1] < LOST * looks[0][1]
    last = [loss for step, loss in looks if step >= run.steps - LAST]
    return {
        **vars(run),
        "final": None if diverged else round(float(np.mean(last)), 5),
        "losses": [[step, round(loss, 4) if np.isfinite(loss) else None] for step, loss in looks if step % EVERY == 0],
        "gigabits_a_step": bits / 1e9 / done,
        "seconds": round(seconds, 2),
    }
