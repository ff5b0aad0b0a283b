"""What is checked before the workers start: that the loss can be split over samples, and that the same seed gives the same."""

from __future__ import annotations

import inspect
import io
import os
import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..checks import require_count
from ..engines import travel
from ..errors import Invalid
from ..scheme.code import Code
from .ahead import drawing
from .data import Columns, Items, put_together
from .outcome import Outcome
from .problem import TorchProblem
from .seeds import seeded
from .shards import Shards

SAMPLES = 4
"""Samples that the checks use."""

MOST_READERS = 256
"""More processes of one worker are a mistake."""

TOLERANCE = {np.dtype(np.float32): 1e-3, np.dtype(np.float64): 1e-6}
"""Relative difference that counts as rounding: what is wrong is wrong by much more."""


@dataclass(frozen=True)
class Found:
    """What a loss function turned out to be: the mean, the sum or the ratio of sums over samples, and its metrics by name."""

    reduction: str
    metrics: tuple[str, ...] = ()


def reduction_of(problem: TorchProblem, declared: str | None, check: bool) -> Found:
    """What the loss is over samples: as declared, as the loss function says, or as it turns out."""
    if declared not in (None, "mean", "sum", "ratio"):
        raise Invalid(
            f'reduction is "mean", "sum" or "ratio", but got {declared!r}. It says what loss_fn does over the samples.'
        )
    said = "ratio" if problem.how.split else declared or getattr(problem.loss_fn, "reduction", None)
    if not check:
        return Found("mean" if said is None else said)
    seen = in_evaluation(problem, _measured)
    with torch.no_grad():
        trained = problem.outcome(problem.batches.fullest(0), 0, slice(SAMPLES))
    assert trained is not None
    seen = replace(seen, metrics=tuple(sorted({*seen.metrics, *trained.metrics})))
    if seen.ratio:
        return Found(_required(problem, "ratio", declared, {"ratio"} if seen.adds else set()), seen.metrics)
    if seen.random and said in ("mean", "sum"):
        return Found(said, seen.metrics)
    if seen.random:
        raise Invalid(
            f"{problem.where(0, 0)}: it cannot be seen whether the loss is a mean or a sum over samples, since the forward "
            "pass draws random numbers in evaluation mode, too, or there is one sample only. "
            'Declare reduction="mean" or "sum", or let loss_fn give (sum, denominator).'
        )
    fits = {name for name, fit in {"sum": seen.adds, "mean": seen.averages}.items() if fit}
    both = said if said in fits else "mean" if "mean" in fits and "sum" not in fits else "sum"
    return Found(_required(problem, both, declared, fits), seen.metrics)


def _required(problem: TorchProblem, found: str, declared: str | None, fits: set[str]) -> str:
    if not fits:
        raise Invalid(
            f"{problem.where(problem.batches.fullest(0), 0)}: the loss of some samples is neither the sum nor mean of their "
            "losses, so partitions cannot be computed apart. Weighted means and means over tokens are such: let loss_fn give "
            "(sum, denominator), which are added up over all partitions and divided once. Losses that compare samples "
            "(InfoNCE) cannot be cut. Use check=False if you know better."
        )
    if declared is not None and declared not in fits:
        raise Invalid(f'reduction="{declared}" was declared, but the loss is a {found} over the samples. Leave it out.')
    return found


@dataclass(frozen=True)
class Seen:
    """Of the loss of a batch and its two pieces: whether it adds up, or averages; or could not be compared."""

    ratio: bool
    random: bool = False
    adds: bool = True
    averages: bool = True
    metrics: tuple[str, ...] = ()


def _measured(problem: TorchProblem) -> Seen:
    """Samples are read once, for their augmentation may be random, and evaluated together and in two pieces."""
    part, places = problem.batches.some(SAMPLES)
    with seeded((problem.how.seed,), torch.device("cpu")):
        batch = problem.reader(part, places)
    size = len(places)
    one, again = (problem.evaluate(part, batch(slice(size)), seed) for seed in (0, 1))
    ratio, metrics = one.denominator is not None, tuple(sorted(one.metrics))
    whole, other = (_numbers(each) for each in (one, again))
    if size < 2 or not np.array_equal(whole, other):
        return Seen(ratio, random=True, metrics=metrics)
    first, rest = (_numbers(problem.evaluate(part, batch(piece), 0)) for piece in (slice(1), slice(1, size)))
    allowed = TOLERANCE[problem.dtype] * (abs(first) + abs(rest)) + 1e-12
    adds = bool((abs(whole - first - rest) <= allowed).all())
    return Seen(ratio, False, adds, bool((abs(whole - (first + (size - 1) * rest) / size) <= allowed).all()), metrics)


def _numbers(found: Outcome) -> NDArray[np.float64]:
    """The loss, and its denominator."""
    return np.array([float(each) for each in (found.loss, found.denominator) if each is not None])


def in_evaluation(problem: TorchProblem, ask: Callable[[TorchProblem], Seen]) -> Seen:
    """Ask with the model in evaluation mode, and leave it as it was."""
    modes = {layer: layer.training for layer in problem.model.modules()}
    problem.model.eval()
    try:
        return ask(problem)
    finally:
        for layer, mode in modes.items():
            layer.training = mode


def require_same_again(problem: TorchProblem) -> None:
    """Compute one loss and its gradient twice: the same seed must give the same numbers."""
    part = problem.batches.fullest(0)
    first, second = (torch.nan_to_num(_gradient(problem, part), 0.0, 0.0, 0.0) for _ in range(2))  # the round tells of these
    scale = max(float(first.abs().max()), 1e-30)
    difference = float((first - second).abs().max()) / scale
    if not difference <= TOLERANCE[problem.dtype]:
        raise Invalid(
            f"{problem.where(part, 0)}: two evaluations with the same seed differ by {difference:.2g} of the largest number: "
            "workers would disagree. Draw random numbers from torch, numpy or random only, in the dataset or the forward pass, "
            "and keep no state between calls; or use check=False if you know better."
        )


def require_readers(data: Columns | Items, readers: int, asked: bool | None) -> None:
    """Refuse processes that would have nothing to read, or cannot. asked: whether to read ahead."""
    require_count("Coded", "readers", readers, 0, MOST_READERS, "It is the processes of each worker that read for it.")
    if not readers:
        return
    if asked is False:
        raise Invalid(f"readers={readers} read ahead, but read_ahead is False. Leave one of them out.")
    if isinstance(data, Columns):
        raise Invalid(f"readers={readers} read the items of a dataset, but tensors lie in memory already. Leave it out.")
    if isinstance(data.dataset, Shards) and readers > 1:
        raise Invalid(
            f"A stream is read in its order, by one process of each worker, but got readers={readers}. Use readers=1."
        )
    if not hasattr(os, "memfd_create"):
        raise Invalid(f"readers={readers} needs Linux, for processes that share memory without a name. Leave it out.")


def reads_ahead(problem: TorchProblem, asked: bool | None, check: bool) -> bool:
    """Whether workers read the samples of the next steps while they compute. asked: by the user; None: where processes read,
    and where reading a few is seen to draw no random numbers, which are one sequence for all threads of a process."""
    if asked is not None and not isinstance(asked, bool):
        raise Invalid(f"read_ahead is True, False or None, but got {asked!r}.")
    require_readers(problem.data, problem.how.readers, asked)
    if problem.how.readers:
        return True
    if isinstance(problem.data, Columns):
        return asked is not False and any(torch.device(one).type != "cpu" for one in problem.how.devices)
    if asked is False or not check:
        return bool(asked)
    with seeded((problem.how.seed,), torch.device("cpu")), drawing() as drew:
        problem.reader(*problem.batches.some(SAMPLES))
    if drew[0] and asked:
        raise Invalid(
            "read_ahead=True reads samples in a thread beside the computation, but reading some draws random numbers, which "
            "both would take from one sequence. Use readers=1, a process that reads for each worker, or leave it out."
        )
    return not drew[0]


def joins(problem: TorchProblem, asked: bool | None, check: bool) -> bool:
    """Whether workers compute the partitions of a message in one pass. asked: by the user; None: on accelerators, where a pass
    has a fixed cost, if nothing ties samples or draws to their partition."""
    if asked is not None and not isinstance(asked, bool):
        raise Invalid(f"one_pass is True, False or None, but got {asked!r}.")
    remote = any(torch.device(one).type != "cpu" for one in problem.how.devices)
    if asked is False or (asked is None and not (check and remote)):
        return False
    why = tied(problem)
    if why and asked:
        raise Invalid(f"one_pass=True puts the partitions of a message into one forward pass, but {why}. Leave it out.")
    return not why


def tied(problem: TorchProblem) -> str:
    """Why partitions must be computed apart; empty where they need not."""
    layers = [layer for layer in problem.model.modules() if layer.training]
    if any(isinstance(layer, nn.modules.batchnorm._NormBase) for layer in layers):
        return "batch normalisation takes its statistics from a partition"
    if any(isinstance(layer, nn.modules.dropout._DropoutNd) and layer.p > 0 for layer in layers):
        return "dropout is drawn for a partition"
    if problem.layout.statistics:
        return f"the forward pass moves the buffer {problem.layout.statistics[0]}, by the mean over partitions"
    if problem.how.micro is not None:
        return "micro_batch= wants smaller passes"
    return _measured_ties(problem)


def _measured_ties(problem: TorchProblem) -> str:
    """Compute a few samples of two partitions together, with two seeds, and apart."""
    part = problem.batches.fullest(0)
    other = next((one for one in range(problem.k) if one != part and len(problem.batches.rows(0, one))), part)
    some, batches, sizes = problem.read_all((part, other), 0, slice(SAMPLES // 2))
    whole = put_together(batches, sizes)
    if whole is None:
        return "their batches cannot be put together: not all of what they are made of has a row per sample, of one shape"
    together, again = (_numbers(problem.evaluate(part, whole, seed)) for seed in (0, 1))
    if not np.array_equal(together, again):
        return "the forward pass draws random numbers for a partition"
    means = problem.how.mean and not problem.how.ratio
    weights = np.array(sizes) / sum(sizes) if means else np.ones(len(sizes))
    apart = np.array([_numbers(problem.evaluate(one, batch, 0)) for one, batch in zip(some, batches, strict=True)])
    allowed = TOLERANCE[problem.dtype] * (weights @ abs(apart)) + 1e-12
    return "" if (abs(together - weights @ apart) <= allowed).all() else "the loss of samples depends on those beside them"


def _gradient(problem: TorchProblem, part: int) -> Tensor:
    loss = problem.loss(part, 0, slice(SAMPLES))
    assert loss is not None
    params = [p for p in problem.model.parameters() if p.requires_grad]
    grads = torch.autograd.grad(loss, params, allow_unused=True)
    return torch.cat([loss.detach().reshape(1), *(g.reshape(-1) for g in grads if g is not None)]).double()


def takes_context(forward: Any) -> bool:
    """Whether a forward function wants what goes with a step, as a third argument."""
    try:
        inspect.signature(forward).bind(None, None, None)
    except (TypeError, ValueError):
        return False
    return True


def require_forward(loss_fn: Any, usual: bool) -> None:
    """Without loss_fn, forward gives the loss."""
    if loss_fn is None and usual:
        raise Invalid("Without loss_fn, give forward=, a function (model, batch) -> loss, or (sum, denominator).")


def require_seed(seed: Any) -> None:
    if not isinstance(seed, int) or seed < 0:
        raise Invalid(f"seed is a whole number >= 0, but got {seed!r}.")


def require_pieces(accumulate: Any, micro: Any, code: Code) -> None:
    """Whole numbers, and no micro-batches where the backward pass pauses between blocks of layers."""
    for name, value in (("accumulate", accumulate), ("micro_batch", 1 if micro is None else micro)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise Invalid(f"{name} is a whole number >= 1, but got {value!r}.")
    if micro is not None and len(code.blocks) > 1:
        raise Invalid(
            f"{code.name} has blocks of layers, for which the graphs of a partition must stay in memory: micro_batch= cannot "
            "save it. Leave one of them out."
        )


def require_dealt(scheme: Any, parts: Any, stop: Any) -> None:
    """A run that changes its code deals every batch anew, and waits until the gradient is exact."""
    if not isinstance(scheme, str) or scheme != "adaptive":
        return
    if parts is not None:
        raise Invalid(f'scheme="adaptive" changes the partitions as it goes, but got parts={parts!r}. Leave parts out.')
    if stop is not None:
        raise Invalid(f'scheme="adaptive" waits until the gradient is exact, but got stop={stop!r}. Leave it out.')


def require_no_parameters(loss_fn: Any, model: nn.Module) -> None:
    """Refuse a loss module that would have to be trained: workers compute gradients of the model's parameters only."""
    own = set(model.parameters())
    found = [name for name, p in loss_fn.named_parameters() if p.requires_grad and p not in own] if _is_module(loss_fn) else []
    if found:
        raise Invalid(
            f"loss_fn has parameters that require a gradient ({', '.join(found)}), which would not be trained. Put it into the "
            "model, and let forward(model, batch) compute with it, or freeze them."
        )


def require_dense(model: nn.Module) -> None:
    """Refuse layers whose gradients are sparse tensors: a message has a place for every coordinate."""
    found = [name for name, layer in model.named_modules() if getattr(layer, "sparse", False) is True]
    if found:
        raise Invalid(
            f"{found[0]} was made with sparse=True, but messages and decoded gradients are dense: one number for every "
            "coordinate. Make it with sparse=False, and use an optimiser for dense gradients (Adam in place of SparseAdam)."
        )


def _is_module(value: Any) -> bool:
    return isinstance(value, nn.Module)


def unpicklable(parts: dict[str, Any]) -> str | None:
    """Which of several things cannot be sent to a worker, and why; None if all can. First those that cannot be sent to any."""
    for dump in (travel.dump, pickle.dump):
        for name, value in parts.items():
            try:
                dump(value, io.BytesIO())
            except Exception as error:
                return _why_not(name, error)
    return None


def _why_not(name: str, error: Exception) -> str:
    return (
        f"The {name} cannot be sent to workers: {' '.join(str(error).split())}. Define it at the top level of a module "
        "(no lambda, no function inside a function), and open files when samples are read, not before."
    )


def require_shared(shared: bool, engine: Any, model: nn.Module, options: dict[str, Any]) -> dict[str, Any]:
    """Options of an engine whose workers read parameters where the model has them, if they are to."""
    if not shared:
        return options
    devices = {p.device.type for p in model.parameters()}
    if engine != "local" or devices != {"cpu"}:
        raise Invalid(
            f'shared=True is for engine="local" and a model on the CPU, but the engine is {engine!r} and the model on '
            f"{', '.join(sorted(devices))}. Leave it out."
        )
    return {**options, "sides": 1}
