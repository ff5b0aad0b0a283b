"""profile_blocks: what the groups of layers of a network cost, measured, for codes whose blocks are layers."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..codes import blocks, cyclic_repetition, uncoded
from ..doors import door
from ..errors import Invalid
from ..plan.base import Plan
from ..randomness import Seed, generator
from ..scheme.code import Code, Tasks
from ..scheme.names import no_expression
from .how import Forward, split_batch
from .layer_plan import round_times, runs, search, sorted_speeds
from .layout import layout_of, trainable
from .replica import own_copy
from .stages import Staged, backward_order, joints


@dataclass(frozen=True)
class Profile:
    """Groups of layers between which the backward pass can pause, in backward order: the last layers first.

    names: of the first and last parameter of a group. sizes: its coordinates. forward: seconds of the forward pass. passed: of
    the backward pass through each group without the gradients of its own parameters. whole: with them.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    forward: float
    passed: tuple[float, ...]
    whole: tuple[float, ...]

    @property
    def costs(self) -> tuple[float, ...]:
        """Seconds of each group as if they were independent: for `plan.block_sizes(..., dim=groups, costs=)`.

        The forward pass counts for the first group. What this leaves out: whoever computes a later group of another partition
        also has to pass the groups before it. `measured` puts that into a code.
        """
        return (self.forward + self.whole[0], *self.whole[1:])

    def code(self, tolerances: Sequence[int], n: int) -> Code:
        """The code that tolerates tolerances[g] stragglers on group g, with measured work."""
        if len(tolerances) != len(self.sizes) or not all(0 <= s < n for s in tolerances):
            raise Invalid(
                f"Profile.code needs for each of the {len(self.sizes)} groups a number of stragglers from 0 to {n - 1}, "
                f"but got {list(tolerances)}."
            )
        parts = runs(tolerances)
        inner = [uncoded(n) if s == 0 else cyclic_repetition(n, s) for s, _ in parts]
        return self.measured(blocks([sum(self.sizes[groups]) for _, groups in parts], *inner))

    def plan(
        self, latency: Any, n: int, method: str | None = None, *, rounds: int = 4000, rng: Seed = 0, **options: Any
    ) -> Plan:
        """How many stragglers each group should tolerate, for workers like `latency`: `params["tolerances"]`.

        Searches for the least mean time of a round with the work that a worker really does: for a group of another partition
        it also does that one's forward pass and passes the groups before. Often that is too much, and all groups get the same.
        method: one of `plan.block_sizes`, which takes groups for independent; `params["if_independent"]` is what it promises,
        and cost what it takes. rounds: of the search; the cost is the mean over 20,000 other ones.
        """
        from ..plan import block_sizes

        first, second = generator(rng).spawn(2)
        paper = block_sizes(latency, n, len(self.sizes), method or "optimal", costs=self.costs, **options)
        chosen = tuple(int(s) for s in np.repeat(np.arange(n), paper.params["sizes"]))
        if method is None:
            chosen = search(self, sorted_speeds(latency, n, rounds, first), [chosen])
        times = round_times(self, chosen, sorted_speeds(latency, n, 20_000, second))
        mean, half = float(times.mean()), 1.96 * float(times.std()) / np.sqrt(len(times))
        params = {"tolerances": list(chosen), "sizes": np.bincount(chosen, minlength=n).tolist(), "if_independent": paper.cost}
        name = f"layers({', '.join(map(str, chosen))})"
        return Plan(name, lambda: self.code(chosen, n), mean, (mean - half, mean + half), params=params)

    def measured(self, code: Code) -> Code:
        """The code with the work of each task as measured, in units of a whole partial gradient.

        A worker's first task of a partition includes the forward pass, and a task includes the groups that are passed on the
        way to it and were not reached before.
        """
        ends = self._ends(code)
        total = self.forward + sum(self.whole)
        work = np.empty(len(code.tasks))
        for queue in code.tasks.queues:
            reached: dict[int, int] = {}
            for task in queue[queue >= 0].tolist():
                part, block = int(code.tasks.part[task]), int(code.tasks.block[task])
                begin, end = ends[block], ends[block + 1]
                seconds = sum(self.passed[reached.get(part, 0) : begin]) + sum(self.whole[begin:end])
                seconds += 0.0 if part in reached else self.forward
                work[task] = seconds / total * code.n * code.shares[part]
                reached[part] = end
        tasks = Tasks(code.tasks.worker, code.tasks.part, code.tasks.block, work)
        return replace(code, name=no_expression(f"{code.name}, work as measured"), tasks=tasks)

    def _ends(self, code: Code) -> list[int]:
        """After how many groups each block ends."""
        stops = np.cumsum(self.sizes)
        places = [int(np.argmin(np.abs(stops - end))) + 1 for end in np.cumsum(code.blocks) * stops[-1]]
        return [0, *places]

    def __str__(self) -> str:
        width = max(map(len, self.names))
        rows = [("group", "coordinates", "ms"), ("(forward)", "", f"{1e3 * self.forward:.3f}")]
        for name, size, cost in zip(self.names, self.sizes, self.whole, strict=True):
            rows.append((name, f"{size:,}", f"{1e3 * cost:.3f}"))
        return "\n".join(f"{name:{width}} {size:>14} {cost:>10}" for name, size, cost in rows)


@door
def profile_blocks(
    model: nn.Module,
    loss_fn: Callable[[Any, Any], Tensor],
    batch: Any,
    *,
    forward: Forward = split_batch,
    repeats: int = 5,
    threads: int = 1,
) -> Profile:
    """Measure the forward pass and each group of layers of the backward pass: medians over `repeats`, after one to warm up.

    batch: samples of one partition, as a worker gets them. threads: of the workers.

    >>> profile = profile_blocks(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)), nn.MSELoss(),
    ...                          (torch.randn(5, 4), torch.randn(5, 1)))
    >>> profile.names, profile.sizes
    (('2.bias .. 2.weight', '0.bias .. 0.weight'), (9, 40))
    """
    copied = own_copy(model)
    params: dict[str, Tensor] = dict(trainable(copied))

    def loss() -> Tensor:
        return loss_fn(*forward(copied, batch))

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        order, _ = backward_order(loss(), params)
        params = {name: params[name] for name in order}
        ends = [0, *joints(loss(), params)]
        layout = layout_of(copied, order=order, loss=False, statistics=False)
        groups = [range(a, b) for a, b in pairwise(ends)]
        rounds = [_once(loss, layout, list(params.values()), groups) for _ in range(repeats + 1)][1:]
    finally:
        torch.set_num_threads(before)
    times = [statistics.median(column) for column in zip(*rounds, strict=True)]
    count = len(groups)
    return Profile(
        tuple(_name(order[group.start], order[group.stop - 1]) for group in groups),
        tuple(sum(layout.sizes[group.start : group.stop]) for group in groups),
        times[0],
        tuple(times[1 : count + 1]),
        tuple(times[count + 1 :]),
    )


def _once(loss: Callable[[], Tensor], layout: Any, params: list[Tensor], groups: Sequence[range]) -> list[float]:
    """Seconds of the forward pass, of passing each group, and of computing it."""
    found = []
    for wanted in (False, True):
        began = time.perf_counter()
        value = loss()
        seconds = [time.perf_counter() - began]
        staged = Staged(value, value.detach().reshape(1)[:0], params, layout)
        for group in groups:
            began = time.perf_counter()
            staged.advance(list(group) if wanted else [], group.stop)
            seconds.append(time.perf_counter() - began)
        found += seconds if not wanted else seconds[1:]
    return found


def _name(first: str, last: str) -> str:
    return first if first == last else f"{first} .. {last}"
