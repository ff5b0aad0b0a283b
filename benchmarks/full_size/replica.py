"""A model whose parameters are one vector, and the gradients of weighted partitions of a step, recorded as a CUDA graph."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from .models import values
from .tasks import DEVICE, Task

WARM = 3
"""Runs before a graph is recorded: kernels are chosen and memory is taken."""


class Replica:
    """The model of all workers, who take turns. slots: partitions that are computed at a time.

    A worker's message is one backward pass: samples of its partitions side by side, each loss times the partition's
    coefficient. Small batches leave a GPU waiting for Python, so the pass is recorded once and replayed.
    """

    def __init__(self, task: Task, slots: int = 4, graphs: bool = True) -> None:
        self.task, self.slots = task, slots
        self.model = self._built(0)
        self.params = list(self.model.parameters())
        self.theta = values(self.model)
        self.grad = torch.zeros_like(self.theta)
        self._views = self._split(self.grad)
        for p, view in zip(self.params, self._split(self.theta), strict=True):
            p.data = view
        x, y = task.batch(0, 0)
        self.size = x.shape[1]
        self.x, self.y = x[:slots].flatten(0, 1).clone(), y[:slots].flatten(0, 1).clone()
        self.weight = torch.zeros(len(self.x), device=DEVICE)
        self.seen, self.goal, self.loss = x[:, 0].clone(), y[:, 0].clone(), torch.zeros((), device=DEVICE)
        self._backward, self._look = recorded(self._add_gradient, graphs), recorded(self._measure, graphs)

    @property
    def dim(self) -> int:
        return len(self.theta)

    def reset(self, seed: int) -> None:
        """First parameters of a run."""
        self.theta.copy_(values(self._built(seed)))

    def gradient(self, batch: tuple[Tensor, Tensor], parts: Sequence[int], coef: Sequence[float]) -> Tensor:
        """(dim,) the sum of coefficients times partial gradients; it is overwritten by the next one."""
        self.grad.zero_()
        for first in range(0, len(parts), self.slots):
            some = list(parts[first : first + self.slots])
            empty = self.slots - len(some)
            place = torch.tensor(some + [0] * empty, device=DEVICE)
            shares = [c / self.size for c in coef[first : first + self.slots]] + [0.0] * empty
            self.x.copy_(batch[0][place].flatten(0, 1))
            self.y.copy_(batch[1][place].flatten(0, 1))
            self.weight.copy_(torch.tensor(shares, device=DEVICE).repeat_interleave(self.size))
            self._backward()
        return self.grad

    def training_loss(self, batch: tuple[Tensor, Tensor]) -> float:
        """Mean over the first sample of every partition: the same samples for every scheme."""
        self.seen.copy_(batch[0][:, 0])
        self.goal.copy_(batch[1][:, 0])
        self._look()
        return float(self.loss)

    def _add_gradient(self) -> None:
        loss = (self.weight * self.task.losses(self.model, self.x, self.y)).sum()
        torch._foreach_add_(self._views, list(torch.autograd.grad(loss, self.params)))

    def _measure(self) -> None:
        with torch.no_grad():
            self.loss.copy_(self.task.losses(self.model, self.seen, self.goal).mean())

    def _built(self, seed: int) -> torch.nn.Module:
        torch.manual_seed(seed)
        with torch.device(DEVICE):
            return self.task.build().train()

    def _split(self, vector: Tensor) -> list[Tensor]:
        pieces = vector.split([p.numel() for p in self.params])
        return [piece.view(p.shape) for piece, p in zip(pieces, self.params, strict=True)]


def recorded(run: Callable[[], None], graphs: bool) -> Callable[[], None]:
    """What repeats `run` on its present tensors: a CUDA graph, or `run` itself where there is none."""
    if DEVICE != "cuda" or not graphs:
        return run
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(WARM):
            run()
    torch.cuda.current_stream().wait_stream(aside)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay
