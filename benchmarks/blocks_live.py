"""Block codes on real workers: rounds against the theory of the same draws, on a linear model and on a network in stages."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import unstraggle as us
from unstraggle.latency import ShiftedExponential
from unstraggle.plan import block_sizes
from unstraggle.problems import LeastSquares
from unstraggle.scheme.code import Code
from unstraggle.statistics import mean_and_half
from unstraggle.torch import Coded, profile_blocks

from .common import save

ROUNDS, SEED = 60, 7
LINEAR = {"n": 20, "dim": 2000, "samples": 4000, "latency": ShiftedExponential(rate=12, shift=0.01)}
STAGED = {"n": 8, "width": 256, "depth": 6, "samples": 512, "latency": ShiftedExponential(rate=6, shift=0.05)}
"""A unit of work takes 0.1 to 0.2 s on average, so that two cores have time for the real gradients of all workers."""

Step = Callable[[], float]


def rounds(name: str, code: Code, chaos: us.engines.Chaos, step: Step, latency: Any, predicted: float | None) -> dict[str, Any]:
    """Mean time of a round over that of the same draws in theory. step: one round, and its seconds."""
    step()
    pairs = [(step(), us.replay(code, chaos.delays[None]).time.mean) for _ in range(ROUNDS)]
    measured, theory = np.array(pairs).T
    mean, half = mean_and_half(measured)
    row = {
        "scheme": name,
        "measured_s": [round(float(mean), 4), round(float(half), 4)],
        "theory_of_the_same_draws_s": round(float(theory.mean()), 4),
        "ratio": round(float(mean / theory.mean()), 4),
        "simulated_mean_s": round(us.simulate(code, latency, rounds=100_000, rng=0).time.mean, 4),
        "planned_mean_s": predicted and round(predicted, 4),
    }
    print(row, flush=True)
    return row


def linear(n: int, dim: int, samples: int, latency: Any) -> dict[str, Any]:
    """Least squares, whose gradient can be computed coordinate by coordinate, as the paper has it."""
    random = np.random.default_rng(0)
    problem = LeastSquares.split(random.standard_normal((samples, dim)), random.standard_normal(samples), n)
    plans = {method: block_sizes(latency, n, dim, method) for method in ("optimal", "time", "frequency", "single")}
    designs = {"wait for all": (us.codes.uncoded(n), None)} | {name: (p.code, p.cost) for name, p in plans.items()}
    rows = []
    for name, (code, predicted) in designs.items():
        chaos = us.engines.Chaos(us.engines.Local(problem), latency=latency, rng=SEED)
        with us.Master(code, chaos) as master:
            rows.append(rounds(name, code, chaos, lambda: master.gradient(np.zeros(dim)).wait, latency, predicted))
    sizes = {name: {s: size for s, size in enumerate(p.params["sizes"]) if size} for name, p in plans.items()}
    return {"workers": n, "coordinates": dim, "latency": str(latency), "coordinates_that_tolerate": sizes, "rows": rows}


def network(width: int, depth: int) -> nn.Module:
    torch.manual_seed(0)
    layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.Tanh())]
    return nn.Sequential(nn.Linear(64, width), nn.Tanh(), *layers, nn.Linear(width, 10))


def data(samples: int) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(0)
    return torch.randn(samples, 64, generator=random), torch.randint(10, (samples,), generator=random)


def staged(n: int, width: int, depth: int, samples: int, latency: Any) -> dict[str, Any]:
    """A network whose blocks are groups of layers: costs are measured, and go into the plan and into the theory."""
    torch.set_num_threads(1)
    inputs, targets = data(samples)
    part = slice(samples // n)
    profile = profile_blocks(network(width, depth), nn.CrossEntropyLoss(), (inputs[part], targets[part]), repeats=20)
    print(profile)
    plans = {"real work": profile.plan(latency, n), "paper": profile.plan(latency, n, method="optimal")}
    designs = {"wait for all": (us.codes.uncoded(n), None)} | {name: (p.code, p.cost) for name, p in plans.items()}
    rows = [
        _trained(name, code, network(width, depth), (inputs, targets), latency, cost) for name, (code, cost) in designs.items()
    ]
    chosen = {name: plan.params["tolerances"] for name, plan in plans.items()}
    about = {"workers": n, "parameters": sum(profile.sizes), "groups": len(profile.sizes), "latency": str(latency)}
    costs = {"forward_ms": round(1e3 * profile.forward, 3), "groups_ms": [round(1e3 * cost, 3) for cost in profile.whole]}
    promised = {"paper_promises_s": round(plans["paper"].params["if_independent"], 4), "groups_tolerate": chosen}
    return about | costs | promised | {"rows": rows}


def _trained(name: str, code: Code, model: nn.Module, samples: Any, latency: Any, predicted: float | None) -> dict[str, Any]:
    optimizer = torch.optim.SGD(model.parameters(), 0.05)

    def engine(problem: Any) -> us.engines.Chaos:
        return us.engines.Chaos(us.engines.Local(problem), latency=latency, rng=SEED)

    with Coded(model, nn.CrossEntropyLoss(), samples, scheme=code, engine=engine) as run:

        def step() -> float:
            optimizer.zero_grad()
            info = run.backward()
            optimizer.step()
            assert info.exact
            return info.wait

        return rounds(name, run.code, run.master.engine, step, latency, predicted)


def main() -> None:
    save("blocks_live", {"rounds": ROUNDS, "linear_model": linear(**LINEAR), "network_in_stages": staged(**STAGED)})
