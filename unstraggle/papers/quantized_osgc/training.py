"""Training with sampled stragglers and real gradients: one run, its estimator, and the search for a scheme's best rate."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...quantizers import QSGD, ErrorFeedback, Plain
from ...runtime.payload import rounding_seed
from ...scheme.code import Code
from ...torch.module import TorchModule
from ...torch.two_track_adam import TwoTrackAdam
from .problems import accuracy, mnist, python_text, shown
from .scenes import detection, is_detection, precision
from .schemes import Cluster, Scheme, scheme, straggle_probabilities

Floats = NDArray[np.float64]

CAP = 10.0
"""Losses above it, and those that are not numbers, count as this: the run has diverged."""

NOTHING = 0.03
"""A loss that differs from the first one by less than this share means that next to nothing was learned."""

STEPS_OF_THREE = 9
"""Rates are tried up to 3^8 times the shared one, and down to 3^-8."""

STRAGGLERS = 7
"""Stream of the straggler draws, apart from those of data and rounding."""

PROBLEMS: dict[str, Callable[..., TorchModule]] = {
    "mnist": mnist,
    "skewed": lambda k, seed: mnist(k, seed, skewed=True),
    "text": python_text,
}


@dataclass(frozen=True)
class Panel:
    """One comparison: problem, workers, bits per worker and coordinate, optimiser and the rate that all schemes share."""

    problem: str = "mnist"
    n: int = 50
    each: int = 4
    optimizer: str = "sgd"
    rate: float = 0.05
    deadline: float = 1.1
    fastest: float = 2.0
    steps: int = 100
    every: int = 5
    passes: int = 1
    """Mini-batches a partition and step, each with messages of its own; the rate acts on the sum of their gradients."""
    tuned: bool = True
    """Whether schemes are also run at a rate of their own."""

    @property
    def p(self) -> Floats:
        return straggle_probabilities(self.n, self.deadline, self.fastest)

    def batches(self, step: int) -> range:
        """Numbers of the mini-batches of a step."""
        return range(step * self.passes, (step + 1) * self.passes)


@dataclass(frozen=True, eq=False)
class Run:
    """What a run leaves: loss (points,) and bits sent so far (points,) at the steps shown, accuracy (of detectors AP50).

    final: mean loss of the last fifth of the points, which is less noisy than the last.
    """

    loss: Floats
    bits: Floats
    accuracy: float
    params: NDArray[Any] | None = None
    """What was learned, kept for detectors only; None of a run that diverged."""

    @property
    def final(self) -> float:
        return float(self.loss[-max(1, len(self.loss) // 5) :].mean())


def train(panel: Panel, label: str, rate: float, seed: int) -> Run:
    """Train once. The seed fixes first parameters, batches, stragglers and rounding; all schemes share the first three."""
    problem = _problem(panel.problem, panel.n, seed)
    how = _scheme(panel, label, seed, problem.dim)
    arrived = np.random.default_rng((STRAGGLERS, seed)).random((panel.steps, panel.n)) >= panel.p
    params, data = torch.nn.Parameter(torch.from_numpy(problem.initial())), shown(problem)
    optimizer: Any = (TwoTrackAdam if panel.optimizer == "adam" else torch.optim.SGD)([params], lr=rate)
    estimator, sent = Estimator(problem, how, seed * panel.steps * panel.passes), 0.0
    losses, bits = [problem.mean_loss(params.detach().numpy(), *data)], [0.0]
    for step in range(panel.steps):
        tracks, spent = _sum([estimator(params.detach().numpy(), number, arrived[step]) for number in panel.batches(step)])
        sent += spent
        if not np.isfinite(tracks).all():
            losses.append(CAP)
            break
        params.grad = torch.from_numpy((tracks[0] / problem.samples).astype(np.float32))
        optimizer.step(**({"second": tracks[-1] / problem.samples} if panel.optimizer == "adam" else {}))
        if (step + 1) % panel.every == 0:
            losses.append(problem.mean_loss(params.detach().numpy(), *data))
            bits.append(sent)
            if not losses[-1] <= CAP:
                break
    return _run(panel, losses, bits, problem, params.detach().numpy())


def _sum(found: list[tuple[NDArray[Any], float]]) -> tuple[NDArray[Any], float]:
    """Gradients and bits of several mini-batches together."""
    if len(found) == 1:
        return found[0]
    return np.sum([tracks for tracks, _ in found], axis=0), sum(bits for _, bits in found)


class Estimator:
    """The gradient that a master decodes from the messages of the workers that arrived: (tracks, dim) and the bits they cost.

    first: number of the first round, which seeds the rounding as the engines do.
    """

    def __init__(self, problem: TorchModule, how: Scheme, first: int = 0) -> None:
        self.problem, self.how, self.first = problem, how, first
        self.codecs: list[Any] = list(how.code.messages.codec) if how.code else []
        if how.feedback:
            scaled = how.feedback == "scaled"
            self.codecs = [c if isinstance(c, Plain) else ErrorFeedback(c, scaled=scaled) for c in self.codecs]

    def __call__(self, params: NDArray[Any], step: int, arrived: NDArray[np.bool_]) -> tuple[NDArray[Any], float]:
        code = self.how.code
        if code is None:
            return self.problem.gradient(params, step)[None], 32.0 * len(arrived) * self.problem.dim
        got = arrived[code.messages.worker]
        everyone = self.how.feedback and not self.how.live
        worked = np.arange(len(got)) if everyone else np.flatnonzero(got)
        messages = self._messages(code, params, step, worked)
        if not np.isfinite(messages).all():  # diverged; quantisers refuse such messages
            return np.full((1, self.problem.dim), np.nan), 0.0
        read = [self._sent(m, numbers, step, bool(got[m])) for m, numbers in zip(worked.tolist(), messages, strict=True)]
        used = [numbers for m, numbers in zip(worked.tolist(), read, strict=True) if got[m]]
        payloads = np.array(used, dtype=np.float64).reshape(len(used), self.problem.dim)
        return code.decoder.weights(got)[:, np.flatnonzero(got)] @ payloads, self._bits(code, got)

    def _messages(self, code: Code, params: NDArray[Any], step: int, worked: NDArray[np.int64]) -> NDArray[np.float32]:
        """(messages, dim) what the workers combine, from the partial gradients that they need."""
        coef: Any = code.messages.coef[worked]
        parts = np.unique(coef.indices).astype(np.int64)
        if not len(parts):
            return np.zeros((len(worked), self.problem.dim), dtype=np.float32)
        return np.asarray(coef[:, parts].astype(np.float32) @ self.problem.grads(params, step, parts))

    def _sent(self, m: int, numbers: NDArray[np.float32], step: int, used: bool) -> NDArray[np.float32]:
        """The message as the master reads it; a memory learns whether it was used."""
        codec = self.codecs[m]
        if isinstance(codec, Plain):
            return numbers
        if not used:  # as encode and lost, which leave everything in memory, but quicker
            codec.error = numbers + (0 if codec.error is None else codec.error)
            return numbers
        return np.asarray(codec.decode(codec.encode(numbers, rounding_seed(self.first + step, m))))

    def _bits(self, code: Code, got: NDArray[np.bool_]) -> float:
        """Bits of the messages that arrived: each coordinate, and a norm of 32 bits where it is quantised."""
        bits = code.messages.bits[got].astype(float)
        return float((bits * self.problem.dim + 32 * (bits < 32)).sum())


def tuned_rate(panel: Panel, label: str, seeds: range) -> tuple[float, dict[float, float]]:
    """The rate with the least mean final loss on these seeds, and the losses tried: by threes, then by the root of three.

    From the shared rate it goes up while losses fall or next to nothing is learned, else down while they fall or runs diverge.
    """
    tried: dict[float, float] = {}
    start = float(np.mean([train(replace(panel, steps=0), label, panel.rate, seed).final for seed in seeds]))

    def at(place: float) -> float:
        rate = _rate(panel, place)
        if rate not in tried:
            tried[rate] = float(np.mean([train(panel, label, rate, seed).final for seed in seeds]))
        return tried[rate]

    best = 0
    for place in range(1, STEPS_OF_THREE):
        if at(place) >= at(best) and abs(at(place) / start - 1) > NOTHING:
            break
        best = min(best, place, key=at)
    for place in range(-1, -STEPS_OF_THREE, -1):
        if best > 0 or (1 + NOTHING) * start >= at(place) >= at(best):
            break
        best = min(best, place, key=at)
    return _rate(panel, min((best, best - 0.5, best + 0.5), key=at)), tried


def _rate(panel: Panel, place: float) -> float:
    """The shared rate times so many threes, to four digits."""
    return float(f"{panel.rate * 3**place:.4g}")


def study(panel: Panel, label: str, seeds: range, tuning: range) -> dict[str, Any]:
    """A scheme in a panel: a run per seed at the shared rate and, unless only that counts, at its best, chosen on `tuning`."""
    begun = time.process_time()
    found: dict[str, Any] = {"shared": [train(panel, label, panel.rate, seed) for seed in seeds]}
    found |= {"scheme": label, "rate": panel.rate, "tried": {}}
    if panel.tuned:
        found["rate"], found["tried"] = tuned_rate(panel, label, tuning)
        found["tuned"] = [train(panel, label, found["rate"], seed) for seed in seeds]
    return found | {"seconds": time.process_time() - begun}


@cache
def _problem(name: str, k: int, seed: int) -> TorchModule:
    return detection(name, k, seed) if is_detection(name) else PROBLEMS[name](k, seed)


@cache
def _scheme(panel: Panel, label: str, seed: int, dim: int) -> Scheme:
    measured = _measured(panel.problem, panel.n) if "measured" in label else ()
    return scheme(label, Cluster(tuple(panel.p.tolist()), panel.each * panel.n, dim, measured, seed))


@cache
def _measured(name: str, k: int) -> tuple[float, ...]:
    """Relative variance of the quantisers with 2 to 16 bits: mean over some partial gradients before training."""
    problem = _problem(name, k, 999)
    grads = problem.grads(problem.initial(), 0, np.unique(np.linspace(0, k - 1, 8).astype(int)))
    return tuple(float(np.mean([QSGD(bits).variance(g, relative=True) for g in grads])) for bits in range(2, 17))


def _run(panel: Panel, losses: list[float], bits: list[float], problem: TorchModule, params: NDArray[Any]) -> Run:
    """Fill up what a diverged run leaves out."""
    points = panel.steps // panel.every + 1
    clipped = [min(loss, CAP) if loss == loss else CAP for loss in losses]
    loss = np.array(clipped + [CAP] * (points - len(losses)))
    sent = np.array(bits + [bits[-1]] * (points - len(bits)))
    if loss[-1] >= CAP or panel.problem == "text":
        return Run(loss, sent, float("nan"))
    if is_detection(panel.problem):
        return Run(loss, sent, precision(panel.problem, problem, params), params)
    return Run(loss, sent, accuracy(problem, params))
