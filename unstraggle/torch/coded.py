"""Coded: training in the user's own loop, with gradients from workers of which some are late."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..doors import door
from ..engines.base import Engine
from ..errors import Invalid
from ..runtime.estimate import Estimate
from ..runtime.states import Shortfall
from ..scheme.stop import Stop
from .batches import Batches, partitions
from .blocks import aligned
from .checks import averages, require_same_again
from .data import Collate, length, source
from .info import Info, info_of
from .layout import trainable
from .problem import Forward, How, TorchProblem, own_copy, split_batch
from .scheme import resolve
from .start import engine_maker, first_layout, in_backward_order, start_master


@door
class Coded:
    """`backward()` fills `p.grad` with the gradient of the loss over the step's whole batch, as `loss.backward()` would.

    model: any module; its trainable parameters must all be float32 or float64. loss_fn(outputs, targets): one number, the
    mean or the sum over the samples. dataset: a `TensorDataset`, a tuple of tensors, or anything with a length and items.
    scheme: a code, an expression such as "fractional_repetition(8, s=1)", a plan, "none" (wait for all) or "auto": what
    `plan.auto` advises for `latency` (a model, a trace or its file), or without it, one spare worker in eight.
    engine: "local", "ray", "mpi", "virtual" (with `latency` as a sampled clock) or a function from problem to engine.
    batch_size: samples per step over all partitions, by default all; shuffle, drop_last: as for a `DataLoader`, see `Batches`.
    parts: the samples of each partition, where they should not be contiguous. stop, on_shortfall, patience, trace: as for
    `Master`. callbacks: called with the `Info` of every step.

    forward(model, batch) -> (outputs, targets): where a batch is not (inputs, ..., targets). collate: makes a batch of samples.
    device: of the workers, or several that they share out. autocast: lower precision there, such as torch.bfloat16.
    statistics: "decode" the running statistics of batch normalisation with the gradient, or "discard" them. check: compute a
    few samples before the start, to see that the loss is a sum or mean, that the same seed gives the same numbers, and which
    parameters no loss reaches: their `grad` stays None. Without it, the master does not read the data, and theirs is zero.

    >>> from unstraggle.latency import ShiftedExponential
    >>> torch.manual_seed(0) and None
    >>> model, data = nn.Linear(3, 1), (torch.randn(40, 3), torch.randn(40, 1))
    >>> run = Coded(model, nn.MSELoss(), data, scheme="cyclic_repetition(4, s=1)", batch_size=16, engine="virtual",
    ...             latency=ShiftedExponential(rate=1.0))
    >>> with run:
    ...     info = run.backward()
    >>> info.exact, len(info.used), info.samples, model.weight.grad.shape
    (True, 3, 16, torch.Size([1, 3]))
    """

    def __init__(
        self,
        model: nn.Module,
        loss_fn: Callable[[Any, Any], Tensor],
        dataset: Any,
        *,
        scheme: Any = "auto",
        workers: int | None = None,
        parts: Any = None,
        engine: str | Callable[[TorchProblem], Engine] = "local",
        engine_options: Mapping[str, Any] | None = None,
        latency: Any = None,
        batch_size: int | None = None,
        shuffle: bool = True,
        drop_last: bool = False,
        seed: int = 0,
        reduction: str | None = None,
        forward: Forward = split_batch,
        collate: Collate | None = None,
        device: str | Sequence[str] = "cpu",
        autocast: torch.dtype | None = None,
        statistics: str = "decode",
        stop: Stop | None = None,
        on_shortfall: Shortfall = "wait",
        patience: float | None = None,
        trace: Any = None,
        callbacks: Sequence[Callable[[Info], None]] = (),
        check: bool = True,
    ) -> None:
        if not isinstance(seed, int) or seed < 0:
            raise Invalid(f"seed is a whole number >= 0, but got {seed!r}.")
        self.model, self.callbacks, self.step, self.seed = model, tuple(callbacks), 0, seed
        size = sum(p.numel() for p in trainable(model).values())
        code, planned = resolve(scheme, workers, latency, size)
        rows = partitions(length(dataset), parts, code.shares)
        self.batches = Batches(tuple(map(len, rows)), batch_size, seed, shuffle, drop_last)
        layout = first_layout(model, code, statistics)
        how = How(seed, True, forward, (device,) if isinstance(device, str) else tuple(device), autocast)
        problem = TorchProblem(own_copy(model), loss_fn, source(dataset, rows, collate), layout, self.batches, how)
        problem.how = replace(how, mean=averages(problem, reduction, check))
        self.code, self._unused = code, set[str]()
        if check:
            require_same_again(problem)
        if check or len(code.blocks) > 1:
            layout, self._unused, ends = in_backward_order(problem, code)
            self.code = aligned(code, layout, ends) if ends else code
        self.layout = layout
        self.problem = TorchProblem(problem.model, loss_fn, problem.data, layout, self.batches, problem.how)
        self._flat = np.zeros(self.layout.dim, self.layout.dtype)
        self._second: dict[nn.Parameter, Tensor] = {}
        make = engine_maker(engine, dict(engine_options or {}), latency, seed)
        how_to_go_on = {"on_shortfall": on_shortfall, "patience": patience, "trace": trace}
        self.master = start_master(self.code, self.problem, make, stop or planned, how_to_go_on)

    # A step

    def backward(self, *, delays: NDArray[np.float64] | None = None) -> Info:
        """Add the gradient of the next batch to `p.grad` of every trainable parameter, and go on to the next step.

        As with `loss.backward()`, gradients add up until they are zeroed. A step that was skipped leaves them alone. delays:
        (messages,) seconds before which a message may not leave its worker, for experiments.
        """
        estimate = self.master.gradient(self._params(), self.step, delays=delays)
        samples = self.batches.size(self.step)
        scale = 1 / samples if self.problem.how.mean else 1.0
        loss = scale * float(estimate.gradient[0]) if self.layout.loss and not estimate.skipped else None
        if not estimate.skipped:
            self._fill(estimate, scale)
        info = info_of(estimate, self.epoch, samples, loss)
        self.step += 1
        for call in self.callbacks:
            call(info)
        return info

    @property
    def epoch(self) -> int:
        """Of the next step."""
        return self.step // self.batches.steps

    @property
    def steps_per_epoch(self) -> int:
        return self.batches.steps

    def second(self, optimizer: torch.optim.Optimizer) -> list[Tensor | None] | None:
        """The second track of the last step, for `TwoTrackAdam.step(second=)`; None where the code has one track."""
        if not self._second:
            return None
        return [self._second.get(p) for group in optimizer.param_groups for p in group["params"]]

    # State

    def state_dict(self) -> dict[str, Any]:
        """What is needed to go on where this run stands; save it with those of the model and the optimiser."""
        return {"step": self.step, "seed": self.seed, "code": self.code.name, "batches": self._batching()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state. Data, batches and seed must be those of the run that saved it; the code may differ."""
        for name, mine in {"seed": self.seed, "batches": self._batching()}.items():
            saved = state.get(name)
            if saved != mine:
                raise Invalid(f"The saved run has {name}={saved!r}, but this one {mine!r}. Batches would not be the same.")
        self.step = int(state["step"])

    def _batching(self) -> dict[str, Any]:
        mine = self.batches
        return {"sizes": list(mine.sizes), "batch": mine.batch, "shuffle": mine.shuffle, "drop_last": mine.drop_last}

    def close(self) -> None:
        """End the workers and write what is left of the trace. May be called twice."""
        self.master.close()

    def __enter__(self) -> Coded:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # Parameters out, gradients in

    def _params(self) -> NDArray[Any]:
        """(dim,) the head and the parameters as they are now."""
        tensors = self.layout.tensors(self.model)
        now = trainable(self.model)
        if now.keys() != set(self.layout.names):
            raise Invalid(
                f"The trainable parameters have changed: {sorted(now.keys() ^ set(self.layout.names))}. "
                "Make another Coded after freezing or unfreezing, and load its state."
            )
        for name, place in self.layout.places.items():
            self._flat[place] = tensors[name].detach().reshape(-1).cpu().numpy()
        return self._flat

    def _fill(self, estimate: Estimate, scale: float) -> None:
        first = torch.from_numpy(estimate.gradient)
        first[self.layout.head :] *= scale
        for p, grad in self._cut(first).items():
            if p.grad is None:
                p.grad = grad.to(p.device)
            else:
                p.grad += grad.to(p.device)
        if len(estimate.tracks) > 1:
            self._second = self._cut(scale * torch.from_numpy(estimate.second))
        if estimate.exact and self.layout.statistics:
            self._update_statistics(first)

    def _cut(self, flat: Tensor) -> dict[nn.Parameter, Tensor]:
        """The gradient of each parameter; none for those that no loss reaches, as in torch."""
        found = {}
        for name, p in trainable(self.model).items():
            grad = flat[self.layout.places[name]].view(p.shape)
            if name not in self._unused or bool(grad.any()):
                found[p] = grad
        return found

    @torch.no_grad()
    def _update_statistics(self, flat: Tensor) -> None:
        """Running statistics move by the mean of what they did in the partitions that had samples."""
        parts = sum(len(self.batches.rows(self.step, part)) > 0 for part in range(self.problem.k))
        tensors = self.layout.tensors(self.model)
        for name in self.layout.statistics:
            tensors[name] += flat[self.layout.places[name]].view(tensors[name].shape).to(tensors[name].device) / parts
        for layer in self.model.modules():
            if isinstance(layer, nn.modules.batchnorm._NormBase) and layer.num_batches_tracked is not None and layer.training:
                layer.num_batches_tracked += 1
