"""unstraggle plan bits, plan deadline and plan convergence: workers that may miss a deadline, and messages of few bits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from ...errors import Invalid
from .output import busy
from .plan import Workers, _finish, _latency, _source, plan
from .shared import AsJson, Folder, Key, one_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

Late = Annotated[
    str,
    typer.Argument(metavar="P", help="Straggle probabilities such as 0.1,0.5,0.9; or a latency model or trace, with --tau."),
]
Tau = Annotated[float | None, typer.Option(help="Seconds after which a worker is late, for a latency model or a trace.")]
Dim = Annotated[int, typer.Option(help="Coordinates of the gradient.")]
Budget = Annotated[int, typer.Option(help="Bits per coordinate of all workers together.")]
Omega = Annotated[
    str,
    typer.Option(help="Noise of a quantiser: paper or qsgd, both bounds.", autocompletion=one_of(lambda: ("paper", "qsgd"))),
]


@plan.command("bits")
def allocate(
    late: Late,
    budget: Budget,
    dim: Dim,
    tau: Tau = None,
    workers: Workers = None,
    key: Key = None,
    method: Annotated[
        str,
        typer.Option(
            help="How: dp, fast, subsets, greedy, equal or relaxation.",
            autocompletion=one_of(lambda: ("dp", "fast", "subsets")),
        ),
    ] = "dp",
    gamma: Annotated[str, typer.Option(help="Weight of quantisers' noise: a number, or balanced.")] = "1",
    omega: Omega = "paper",
    silent: Annotated[bool, typer.Option("--silent", help="Let workers send nothing where that lowers the error.")] = False,
    as_json: AsJson = False,
    out: Folder = None,
) -> None:
    """Give the workers' messages bits, such that the joint design errs least.

    Example: unstraggle plan bits 0.1,0.5,0.9 --budget 18 --dim 1000
    """
    from ...plan import bits
    from ..plots import allocation

    p = _probabilities(late, tau, workers, key)
    how: Any = {"method": method, "gamma": gamma if gamma == "balanced" else _number("--gamma", gamma)}
    found = bits(p, budget=budget, dim=dim, omega=omega, silent=silent, **how)
    lines = [str(found), f"error bound: C^2 k^2 times {1 / found.objective:.5g}" if found.objective else "nobody is heard"]
    lines += [f"  p = {chance:.4g}: {number} bits" for chance, number in zip(p.tolist(), found.bits.tolist(), strict=True)]
    _finish(found.to_dict() | {"p": p.tolist()}, lines, allocation(p, found), as_json, out)


@plan.command("deadline")
def stop_waiting(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A trace, or a latency model, e.g. 'Exponential(1)'.")],
    workers: Workers = None,
    key: Key = None,
    dim: Annotated[int | None, typer.Option(help="Coordinates of the gradient.")] = None,
    budget: Annotated[int | None, typer.Option(help="Bits per coordinate of all workers together.")] = None,
    bandwidth: Annotated[float | None, typer.Option(help="Bytes per second of a worker's link.")] = None,
    as_json: AsJson = False,
    out: Folder = None,
) -> None:
    """Choose when to stop waiting, with the code and the bits for it; assumes a strongly convex loss.

    Example: unstraggle plan deadline "ShiftedExponential(rate=1, shift=1)" -n 10
    """
    from ...plan import deadline

    latency, n = _per_worker(source, key, workers)
    with busy("planning", as_json):
        found = deadline(latency, n, dim=dim, budget=budget, bandwidth=bandwidth)
    p, sent = np.array(found.params["p"]), found.params["bits"]
    lines = [
        f"Stop after {found.params['tau']:.5g}: {100 * p.mean():.3g} % of the messages are late, error at most "
        f"{found.params['error']:.4g} (C k)^2",
        "assumes a strongly convex loss with steps of 1 / (convexity t): the time to any target is in proportion to "
        f"tau (1 + error) = {found.cost:.5g}",
    ]
    lines += [] if sent is None else [f"bits of the workers: {' '.join(map(str, sent))}"]
    _finish(found.to_dict(), lines, None, as_json, out)


@plan.command("convergence")
def steps_to(
    late: Late,
    target: Annotated[float, typer.Option(help="Of |theta - optimum|^2, or of |gradient|^2 for smooth losses.")],
    tau: Tau = None,
    workers: Workers = None,
    key: Key = None,
    partitions: Annotated[int | None, typer.Option("-k", "--partitions", help="By default as many as workers.")] = None,
    loss: Annotated[str, typer.Option(help="One of: strongly convex; smooth; smooth, decaying.")] = "strongly convex",
    bits: Annotated[str | None, typer.Option(help="Bits of the messages, such as 4 or 4,8,8.")] = None,
    dim: Annotated[int | None, typer.Option(help="Coordinates of the gradient, for --bits.")] = None,
    omega: Omega = "paper",
    norm: Annotated[float, typer.Option(help="Longest partial gradient.")] = 1.0,
    convexity: Annotated[float, typer.Option(help="Modulus of strong convexity.")] = 1.0,
    smoothness: Annotated[float, typer.Option(help="Of the sum of all losses.")] = 1.0,
    gap: Annotated[float, typer.Option(help="First loss less the least one.")] = 1.0,
    scale: Annotated[float, typer.Option(help="Of the step sizes of smooth losses.")] = 1.0,
    sampling: Annotated[float, typer.Option(help="Variance that mini-batches add.")] = 0.0,
    as_json: AsJson = False,
    out: Folder = None,
) -> None:
    """Bound the steps to a target for given stragglers and bits.

    Example: unstraggle plan convergence 0.1,0.5,0.9 --target 0.01 --bits 8 --dim 1000
    """
    from ...plan import convergence

    p = _probabilities(late, tau, workers, key)
    sent = None if bits is None else _column("--bits", bits, len(p)).astype(int)
    constants = {"norm": norm, "convexity": convexity, "smoothness": smoothness, "gap": gap, "scale": scale}
    how: Any = {"loss": loss, "bits": sent, "dim": dim, "omega": omega, "sampling": sampling, "target": target, **constants}
    found = convergence(p, partitions or len(p), **how)
    lines = [str(found), "a worst case: compare designs by the ratio of their steps"]
    _finish(found.to_dict(), lines, None, as_json, out)


def _probabilities(text: str, tau: float | None, workers: int | None, key: str | None) -> NDArray[np.float64]:
    """(n,) numbers, or how often a model or a trace is later than tau with one task."""
    from ...plan.deadline import late_shares

    if _is_list(text):
        if tau is not None or workers is not None:
            raise Invalid("Straggle probabilities are given: leave out --tau and --workers.")
        return _column("P", text, 0)
    if tau is None:
        raise Invalid("A latency model or a trace needs --tau, the seconds after which a worker is late.")
    latency, n = _per_worker(text, key, workers)
    return late_shares(latency, n, tau)


def _per_worker(text: str, key: str | None, workers: int | None) -> tuple[Any, int]:
    """A latency model and the number of workers; of a trace, each worker with its own measured times."""
    from ...latency import Empirical, Heterogeneous
    from ...trace import Trace

    source = _source(text, key)
    if not isinstance(source, Trace):
        return _latency(text, key, workers)
    _latency(text, key, workers)  # which refuses another number of workers
    return Heterogeneous([Empirical(times) for times in source.seconds.T]), source.n


def _is_list(text: str) -> bool:
    return "(" not in text and all(character in "0123456789.,eE+- " for character in text)


def _column(name: str, text: str, n: int) -> NDArray[np.float64]:
    """Numbers separated by commas or spaces; one for all where n is known."""
    values = np.array([_number(name, part) for part in text.replace(",", " ").split()])
    return np.broadcast_to(values, n) if n and len(values) == 1 else values


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise Invalid(f"{name} needs numbers, but got {text!r}.") from None
