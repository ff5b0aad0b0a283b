"""What happens once, before the first step: the layout of the vector that travels, the engine, the workers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn

from .. import engines
from ..engines.base import Engine, keeps
from ..errors import Invalid, UnstraggleError
from ..runtime.master import Master
from ..runtime.terms import Transfer
from ..scheme.code import Code
from ..scheme.stop import Stop
from .checks import SAMPLES, Found, unpicklable
from .layout import Layout, layout_of, trainable
from .problem import TorchProblem
from .samplers import Sampled
from .scheme import clock
from .stages import backward_order, joints

if TYPE_CHECKING:
    from ..adaptive.master import AdaptiveMaster
    from ..adaptive.trial import Trial
    from .coded import Coded

log = logging.getLogger("unstraggle")

T = TypeVar("T")
Make = Callable[[TorchProblem], Engine]

ENGINES = {"local": "Local", "ray": "Ray", "mpi": "MPI"}


def start_master(problem: TorchProblem, start: Callable[[], T]) -> T:
    """Start the workers of a problem; where something cannot be sent to them, say what."""
    try:
        return start()
    except UnstraggleError:
        raise
    except Exception as error:
        parts = {"model": problem.model, "loss_fn": problem.loss_fn, "dataset": problem.data}
        why = unpicklable({**parts, "forward function": problem.how.forward})
        if why is None:
            raise
        raise Invalid(why) from error


def one_master(run: Coded, make: Make, stop: Stop | None, samples: int, options: dict[str, Any]) -> Master:
    """A master for the code of the run. Where nobody says how messages get to it: as was planned, if the engine can."""
    engine = make(run.problem)
    return Master(run.code, engine, stop, **options | {"transfer": options["transfer"] or _advised(run, engine)})


def _advised(run: Coded, engine: Engine) -> Transfer:
    return run.advised if keeps(engine) else "push"


def adaptive_master(run: Coded, make: Make, stop: Stop | None, samples: int, options: dict[str, Any]) -> AdaptiveMaster:
    """A master that changes the code of the run. samples: of a step."""
    from ..adaptive.master import AdaptiveMaster

    options = options | {"transfer": options["transfer"] or "push"}
    return AdaptiveMaster(run.code.n, lambda code: make(run.take(code)), samples=samples, **options)


def trying_master(
    trial: Trial, run: Coded, make: Make, stop: Stop | None, samples: int, options: dict[str, Any]
) -> AdaptiveMaster:
    """A master that tries the code of the run before it goes on with it."""
    from ..adaptive.master import AdaptiveMaster

    first = [make(run.problem)]
    options = options | {"transfer": options["transfer"] or _advised(run, first[0])}
    return AdaptiveMaster(run.code.n, lambda code: first.pop() if first else make(run.take(code)), decider=trial, **options)


def first_layout(model: nn.Module, code: Code, statistics: str) -> Layout:
    """Quantised messages carry gradients only: a loss among them would drown them in the noise of its size."""
    if statistics not in ("decode", "discard"):
        raise Invalid(f'statistics is "decode" or "discard", but got {statistics!r}.')
    plain = bool(code.messages.plain.all())
    layout = layout_of(model, loss=plain, statistics=statistics == "decode")
    if layout.statistics and not plain:
        raise Invalid(
            f"{code.name} quantises its messages, which is too coarse for the running statistics of batch normalisation. "
            'Use GroupNorm, or statistics="discard" and compute them after training.'
        )
    return layout


def with_sums(layout: Layout, found: Found, code: Code) -> Layout:
    """The layout with places for the denominator of the loss and for metrics."""
    if layout.loss:
        return replace(layout, ratio=found.reduction == "ratio", metrics=found.metrics)
    if found.reduction == "ratio":
        raise Invalid(
            f"{code.name} quantises its messages, which is too coarse for the denominator of a loss. Use a code of plain "
            "numbers, or a loss that is a mean or a sum over samples."
        )
    if found.metrics:
        log.warning("%s quantises its messages: metrics do not travel with them.", code.name)
    return layout


def with_moved_buffers(problem: TorchProblem, code: Code) -> Layout:
    """The layout with the buffers that a forward pass moves, such as those of spectral normalisation: as running statistics of
    batch normalisation they travel, and move by the mean over the partitions."""
    layout, moved = problem.layout, problem.moved_buffers(problem.batches.fullest(0), slice(SAMPLES))
    for one in moved:
        if not one.value.is_floating_point():
            raise Invalid(
                f"The forward pass moves {one.name}, a buffer of {one.value.dtype}, which partitions cannot move together. "
                "Move it in your training loop (workers get what you set), or make it floating-point if it may move by the "
                'mean over the partitions; statistics="discard" leaves it as it is.'
            )
    if moved and not code.messages.plain.all():
        raise Invalid(
            f"{code.name} quantises its messages, which is too coarse for the buffers that the forward pass moves, such as "
            f'{moved[0].name}. Use a code of plain numbers, or statistics="discard".'
        )
    if moved:
        names = ", ".join(one.name for one in moved)
        log.info("The forward pass moves %s: in every step by the mean over the partitions.", names)
    return replace(
        layout,
        statistics=(*layout.statistics, *(one.name for one in moved)),
        statistic_sizes=(*layout.statistic_sizes, *(one.value.numel() for one in moved)),
    )


def require_carried(problem: TorchProblem, carried: Sequence[str]) -> None:
    """Refuse carried buffers that do not travel, or in which two samples move the same place: moves are added up."""
    part = problem.batches.fullest(0)
    missing = [name for name in carried if name not in problem.layout.statistics]
    if missing:
        raise Invalid(
            f"carried={missing[0]!r} is no floating-point buffer that the forward pass moves. Register it (register_buffer), "
            'let forward write into it, and leave check=True and statistics="decode".'
        )
    if isinstance(problem.batches, Sampled):
        return  # no batch is drawn yet, and samples of different batches may share a place
    first, second = (problem.moves(part, slice(place, place + 1)) for place in range(2))
    for name in carried:
        if bool(((first[name] != 0) & (second[name] != 0)).any()):
            raise Invalid(
                f"carried={name!r}: two samples move the same places of this buffer, but each must have its own, such as the "
                "column of its stream: partitions are computed apart, and what they move is added up. Let samples come with "
                "their number, and write there only."
            )


def in_backward_order(problem: TorchProblem, code: Code) -> tuple[Layout, set[str], list[int]]:
    """The layout in the order of the backward pass, the parameters it never reaches, and where it can pause."""
    part = problem.batches.fullest(0)
    params: dict[str, Tensor] = dict(trainable(problem.model))

    def loss() -> Tensor:
        found = problem.loss(part, 0, slice(SAMPLES))
        assert found is not None
        return found

    with torch.enable_grad():
        order, unused = backward_order(loss(), params)
        ends = joints(loss(), {name: params[name] for name in order}) if len(code.blocks) > 1 else []
    layout = problem.layout
    sizes = tuple(params[name].numel() for name in order)
    return replace(layout, names=tuple(order), sizes=sizes), unused, ends


def engine_maker(engine: Any, options: dict[str, Any], latency: Any, seed: int) -> Make:
    """How to make the engine."""
    if callable(engine):
        return engine  # type: ignore[no-any-return]
    if engine == "virtual":
        if latency is None:
            raise Invalid('engine="virtual" needs latency=, a latency model or a trace: it is the clock.')
        return lambda problem: engines.Virtual(problem, clock(latency), rng=seed, **options)
    if engine not in ENGINES:
        raise Invalid(f'engine is "local", "ray", "mpi", "virtual" or a function from problem to engine, but got {engine!r}.')
    return lambda problem: getattr(engines, ENGINES[engine])(problem, **options)
