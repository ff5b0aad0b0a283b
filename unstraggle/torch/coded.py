"""Coded: training in the user's own loop, with gradients from workers of which some are late."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..adaptive.trial import STEPS, Trial
from ..codes import uncoded
from ..doors import door
from ..engines.base import Engine, crowded
from ..errors import Invalid
from ..plan.auto import WORTH
from ..runtime.estimate import Estimate
from ..runtime.master import Finite
from ..runtime.states import Shortfall
from ..runtime.terms import Transfer
from ..scheme.code import Code
from ..scheme.stop import Stop
from .batches import Dealt, Placed
from .buffers import move_statistics
from .checks import (
    require_dealt,
    require_pieces,
    require_seed,
    require_shared,
)
from .context import pack
from .data import Collate
from .draft import Given, Wanted, usable
from .filling import Filling
from .head import Head
from .how import Forward, split_batch
from .info import Info, info_of
from .launch import require_one_master
from .layout import trainable
from .notice import Notice
from .outgoing import Outgoing
from .probe import PassCost, probed_for
from .problem import TorchProblem
from .replica import roots
from .samplers import Sampled
from .scheme import resolve
from .start import (
    ENGINES,
    adaptive_master,
    engine_maker,
    one_master,
    start_master,
    trying_master,
)
from .turns import LOSS, Turns, chosen, names_of, require_turns
from .watch import Watch


class Changed(Exception):
    """The model is not as workers have it, and they may compute already: the round begins anew."""


@door
class Coded:
    """`backward()` fills `p.grad` with the gradient of the loss over the step's whole batch, as `loss.backward()` would.

    model: any module; its trainable parameters must all be float32 or float64. loss_fn(outputs, targets): one number, the
    mean or the sum over the samples, or (sum, denominator), and behind that a dictionary of sums for `info.metrics`, if any;
    None where forward gives the loss. dataset: a `TensorDataset`, a tuple of tensors, or anything with a length and items;
    streams as `Shards`.
    scheme: a code, an expression such as "fractional_repetition(8, s=1)", a plan, "none" (wait for all), "auto": what
    `plan.auto` advises for `latency` (a model, a trace or its file), or without it, one spare worker in eight; or "adaptive":
    whichever is best by the run's own steps, and changed when the cluster changes, see `AdaptiveMaster`; or "balanced": work by
    the speeds in `latency`, without copies. worth: the least share of a step that "auto" should save. trial: on so many steps
    what `plan.auto` advises is tried, and waiting for all beside it, before it is believed (`Trial`); 0: at once. Where a trace
    does not tell what a pass costs however few samples it has, "auto" measures that before the start (`run.cost`).
    engine: "local", "ray", "mpi", "virtual" (with `latency` as a sampled clock) or a function from problem to engine.
    batch_size: samples per step over all partitions, by default all; shuffle, drop_last: as for a `DataLoader`. batches: a
    sampler or batch sampler of your own, see `Sampled`; a `DataLoader` in place of the dataset says all of that. accumulate: so
    many batches make one step, with one round. micro_batch: samples of a forward pass on a worker, at most, to save memory.
    one_pass: compute the partitions of a message in one forward and backward pass, which saves the fixed cost of the others; by
    default on accelerators, where nothing ties samples to their partition (batch normalisation, dropout, random numbers).
    read_ahead: read the samples of the next step while this one is computed, in a thread of each worker; by default where the
    dataset has items of its own and reading some draws no random numbers. readers: so many processes of each worker read ahead
    instead, as those of a `DataLoader` with `num_workers` do, with the random numbers that the worker would have drawn.
    A batch is dealt to the partitions anew in every step, see `Dealt`. parts: "random", "contiguous" or the samples of each
    partition, where a worker should have the samples of its own only, see `Placed`. stop, on_shortfall, patience,
    transfer, trace: as for `Master`, but with "auto" messages are fetched where the planner says so and the engine can, and an
    older trace is replaced, unless `append`. callbacks: called with the `Info` of every step.

    forward(model, batch) -> (outputs, targets): where a batch is not (inputs, ..., targets). Several losses on one set of
    workers are a dictionary of functions (model, batch) -> loss; `backward(name)` takes one. collate: makes a batch of samples.
    context: numbers, texts and tensors that go to the workers with every step, as the third argument of a forward that takes
    one; change them in `run.context`. Frozen parameters, buffers and attributes that you change in the model go by themselves.
    device: of the workers, or several that they share out. autocast: lower precision there, such as torch.bfloat16.
    statistics: "decode" the running statistics of batch normalisation with the gradient, or "discard" them. carried: buffers in
    which every sample moves a place of its own, such as the state of an LSTM for each stream of text; the next step begins with
    what this one left there, for all samples. check: compute a
    few samples before the start, to see that the loss is a sum or mean, that the same seed gives the same numbers, and which
    parameters no loss reaches: their `grad` stays None. Without it, the master does not read the data, and theirs is zero.
    shared: on the CPU with engine="local", the model's parameters live in the memory from which workers read them, so that an
    optimiser's step is the only one who writes them; until `close`.

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
        loss_fn: Callable[[Any, Any], Any] | None,
        dataset: Any,
        *,
        scheme: Any = "auto",
        workers: int | None = None,
        parts: Any = None,
        engine: str | Callable[[TorchProblem], Engine] = "local",
        engine_options: Mapping[str, Any] | None = None,
        latency: Any = None,
        worth: float = WORTH,
        trial: int = STEPS,
        batch_size: int | None = None,
        batches: Any = None,
        accumulate: int = 1,
        micro_batch: int | None = None,
        one_pass: bool | None = None,
        shuffle: bool = True,
        drop_last: bool = False,
        read_ahead: bool | None = None,
        readers: int = 0,
        seed: int = 0,
        reduction: str | None = None,
        forward: Forward | Mapping[str, Forward] = split_batch,
        context: Mapping[str, Any] | None = None,
        collate: Collate | None = None,
        device: str | Sequence[str] = "cpu",
        autocast: torch.dtype | None = None,
        statistics: str = "decode",
        carried: Sequence[str] = (),
        stop: Stop | None = None,
        on_shortfall: Shortfall = "wait",
        patience: float | None = None,
        transfer: Transfer | None = None,
        trace: Any = None,
        append: bool = False,
        shared: bool = False,
        callbacks: Sequence[Callable[[Info], None]] = (),
        check: bool = True,
    ) -> None:
        require_seed(seed)
        notice = Notice()
        require_one_master(engine)
        forward = forward if callable(forward) else Turns(forward)
        self.model, self.callbacks, self.step, self.seed = model, tuple(callbacks), 0, seed
        given = Given.of(dataset, batch_size, batches, collate)
        require_dealt(scheme, "Shards" if given.streams else parts, stop)
        usable(model, loss_fn, forward)
        self.context, self.losses = dict(context or {}), names_of(forward)
        self.cost: PassCost | None = None
        options = require_shared(shared, engine, model, dict(engine_options or {}))
        how = {"seed": seed, "forward": forward, "autocast": autocast, "micro": micro_batch, "readers": readers}
        dealing = shuffle and not given.streams, drop_last
        wanted = Wanted(model, loss_fn, given, parts, accumulate, dealing, device, statistics, how, self._values)

        def task_cost() -> float | None:
            if check and engine in (*ENGINES,) and given.batches is None:  # a sampler would draw a batch for this
                problem = wanted.draft(uncoded(workers or 1)).problem()
                self.cost = probed_for(problem, engine, options, latency, seed)
            return None if self.cost is None else self.cost.fixed

        with notice.during("planning the code; where a trace does not tell what a pass costs, it is measured"):
            size = sum(p.numel() for p in trainable(model).values())
            code, planned, saving, self.advised = resolve(scheme, workers, latency, size, given.of_a_step, worth, task_cost)
        require_pieces(accumulate, micro_batch, code)
        require_turns(forward, loss_fn, self.context, len(code.blocks))
        with notice.during("computing a few samples, to see what the loss is; check=False leaves that out"):
            draft = wanted.draft(code).checked(reduction, check, statistics, carried)
            self._draft = draft.for_workers(read_ahead, one_pass, check, statistics)
        if read_ahead is None and check:
            given.warn(self._draft.how)
        self.layout, self.code, self.batches = draft.layout, draft.code, draft.batches
        self._carried, self._shared, self._closed = frozenset(carried), shared, False
        self._by_time = (stop or planned or patience) is not None
        self._begin()
        make = engine_maker(engine, options, latency, seed)
        how_to_go_on = {"on_shortfall": on_shortfall, "patience": patience, "transfer": transfer, "trace": trace}
        starting: Any = adaptive_master if scheme == "adaptive" else one_master
        if saving is not None and trial and stop is None and not isinstance(self.batches, Placed):
            starting = partial(trying_master, Trial(self.code, saving, worth=worth, steps=trial))
        with notice.during(f"{code.n} workers for {code.name}, each with the model and its samples"):
            begin = partial(starting, self, make, stop or planned, given.of_a_step, how_to_go_on)
            self.master = start_master(self.problem, begin)
        if trace is not None and not append:
            # now that workers are there: rounds of another run would be taken for this one's
            Path(trace).unlink(missing_ok=True)

    def _begin(self) -> None:
        """What a step builds on."""
        self._turn, self._names = self.losses[0], frozenset(self.layout.names)
        self._head, self._filling = Head(self.layout, self._draft.how.mean), Filling()
        self._finite: Finite = None
        self._quiet = False
        self._second: dict[Tensor, Tensor] = {}
        self.take(self.code)

    def take(self, code: Code) -> TorchProblem:
        """The problem for a code, with the model as it is now. Batches stay the same, and are dealt to its partitions."""
        if code is not self.code:
            self._move_out()  # other workers read elsewhere
            self.code = code
            cast(Dealt | Sampled, self.batches).deal_to(code.shares)
        self.problem = self._draft.looking(code, self._by_time).problem()
        statistics = {f"model.{name}" for name in self.layout.statistics}
        self._watch = Watch(roots(self.model, self.problem.loss_fn), statistics)
        self._tree = self._watch.trees["model"]
        self._outgoing = Outgoing(self.layout, self._shared)
        return self.problem

    # A step

    def backward(self, loss: str | None = None, *, again: bool = False, delays: NDArray[np.float64] | None = None) -> Info:
        """Add the gradient of the next batch to `p.grad` of every trainable parameter, and go on to the next step.

        As with `loss.backward()`, gradients add up until they are zeroed. A step that was skipped leaves them alone. loss:
        which one, where there are several. again: take the batch and the random numbers of the step before. delays: (messages,)
        seconds before which a message may not leave its worker, for experiments.
        """
        if self._closed:
            raise Invalid(
                "This run was closed, and its workers have ended. Make another Coded, and load the state_dict of this one."
            )
        self._turn, step = chosen(self.losses, loss), self.step - bool(again)
        if step < 0:
            raise Invalid("again=True takes the batch of the step before, but there was none.")
        try:
            estimate, samples = self._gradient(step, delays, late=self._quiet and not self._sampled)
        except Changed:
            estimate, samples = self._gradient(step, delays)
        if estimate.skipped:
            self._filling.withdraw()
        else:
            self._fill(estimate, step)
        info = info_of(estimate, self.batches.epoch_of(step), samples, *self._head.loss_and_metrics(estimate))
        self.step = step + 1
        for call in self.callbacks:
            call(info)
        return info

    def _gradient(self, step: int, delays: NDArray[np.float64] | None, late: bool = False) -> tuple[Estimate, int]:
        """The gradient of a step, and its samples. late: look whether the model has changed while parameters are copied,
        or while workers compute, where these leave a processor for that."""
        params = self._params(late)  # first: a device or another thread copies them while the rest is prepared
        context = b"" if late else self._told(step)
        if late and crowded(self.master.engine):
            self._require_same(step)
            late = False
        samples = self.batches.size(step)
        scaling = self._head.scaling(samples, step)
        told: dict[str, Any] = {"delays": delays, "context": context, "finite": self._finite}
        meanwhile = partial(self._prepare, step if late else None)
        try:
            return self.master.gradient(params, step, scaling=scaling, meanwhile=meanwhile, **told), samples
        except BaseException:
            self._filling.withdraw()
            raise

    @property
    def _sampled(self) -> bool:
        """Whether the clock is sampled, so that nobody waits, and rounds that begin anew would be drawn anew."""
        return bool(getattr(self.master.engine, "sampled", False))

    @property
    def epoch(self) -> int:
        """Of the next step; with a sampler of one's own, of the last one."""
        return self.batches.epoch_of(self.step)

    @property
    def steps_per_epoch(self) -> int:
        return self.batches.steps

    def refresh(self) -> None:
        """Compare every number of frozen parameters and buffers with what workers have, and send what differs.

        Changes are noticed by themselves, see `Watch`; this is for those of a few numbers of a large tensor by way of `data`.
        """
        self._watch.compare(roots(self.problem.model, self.problem.loss_fn))

    def second(self, optimizer: torch.optim.Optimizer) -> list[Tensor | None] | None:
        """The second track of the last step, for `TwoTrackAdam.step(second=)`; None where the code has one track."""
        if not self._second:
            return None
        return [self._second.get(p) for group in optimizer.param_groups for p in group["params"]]

    # State

    def state_dict(self) -> dict[str, Any]:
        """What is needed to go on where this run stands; save it with those of the model and the optimiser."""
        state = {"step": self.step, "seed": self.seed, "code": self.code.name, "batches": self.batches.describe()}
        return {**state, "sampler": self.batches.state()} if isinstance(self.batches, Sampled) else state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state. Data, batches and seed must be those of the run that saved it; the code may differ."""
        for name, mine in {"seed": self.seed, "batches": self.batches.describe()}.items():
            saved = state.get(name)
            if saved != mine:
                raise Invalid(f"The saved run has {name}={saved!r}, but this one {mine!r}. Batches would not be the same.")
        self.step = int(state["step"])
        if isinstance(self.batches, Sampled):
            self.batches.load(state.get("sampler", {}))

    def close(self) -> None:
        """End the workers and write what is left of the trace. May be called twice."""
        self._closed = True
        self.master.close()
        self._move_out()

    def __enter__(self) -> Coded:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # Parameters out, gradients in

    def _params(self, late: bool = False) -> Any:
        """(dim,) the head and the parameters as they are now, written where workers read them. late: those of the last look."""
        if not late:
            self._tree.look()
            self._require_names()
        flat, every = self.master.room(), self._tree.tensors()
        self._finite = self._outgoing.write(flat, [every[name] for name in self.layout.places])
        return flat

    def _move_out(self) -> None:
        """Parameters that live where workers read them get memory of their own."""
        self._outgoing.move_out(list(self.model.parameters()))

    def _require_names(self) -> None:
        """Refuse other trainable parameters than those that workers know, as of the last look."""
        now = {name for name, p in self._tree.params().items() if p.requires_grad}
        if now != self._names:
            raise Invalid(
                f"The trainable parameters have changed: {sorted(now ^ self._names)}. "
                "Make another Coded after freezing or unfreezing, and load its state."
            )

    def _prepare(self, step: int | None = None) -> None:
        """Cut what will be the gradient, where it is known where that will be. step: look now for what its order should have
        brought."""
        if step is not None:
            self._require_same(step)
        coming = None if self._draft.unused.get(self._turn) else self.master.coming()
        self._filling.prepare(None if coming is None else tensor_of(coming[0]), self._cut)

    def _require_same(self, step: int) -> None:
        """Refuse a model that is not as it was at the last look."""
        if self._told(step) or not self._watch.same:
            raise Changed

    def _values(self, turn: str | None) -> dict[str, Any]:
        """What `forward` gets with a step."""
        return self.context if turn is None else {**self.context, LOSS: turn}

    def _told(self, step: int) -> bytes:
        """What goes with the order: what the master has changed in the model, and the values for `forward`."""
        found = self._watch.look()
        if isinstance(self.batches, Sampled):
            found["rows"] = self.batches.draw(step)
            after = self.batches.ahead(self.problem.how.depth)
            found |= {"next": after} if after else {}
        if values := self._values(self._turn):
            found["values"] = values
        self._quiet = not found
        return pack(found) if found else b""

    def _fill(self, estimate: Estimate, step: int) -> None:
        """Gradients that were none become views of the decoded vector."""
        first = self._outgoing.back(tensor_of(estimate.gradient))
        self._filling.fill(first, self._cut)
        if len(estimate.tracks) > 1:
            self._second = dict(self._cut(tensor_of(estimate.second)))
        if estimate.exact and self.layout.statistics:
            passes = sum(len(self.problem.pieces(part, step)) for part in range(self.problem.k))
            move_statistics(self.model, self.layout, first, passes, self._carried)

    def _cut(self, flat: Tensor) -> list[tuple[Tensor, Tensor]]:
        """The gradient of each parameter; none for those that no loss reaches, as in torch."""
        every = self._tree.tensors()
        tensors = [every[name] for name in self.layout.places]
        pieces = zip(self.layout.places, tensors, self.layout.cut(flat, tensors), strict=True)
        unused = self._draft.unused.get(self._turn, ())
        found = [(p, piece) for name, p, piece in pieces if name not in unused or bool(piece.any())]
        return found[len(self.layout.statistics) :]


def tensor_of(vector: Any) -> Tensor:
    """A vector as a tensor, if it is none."""
    return torch.from_numpy(vector) if isinstance(vector, np.ndarray) else vector
