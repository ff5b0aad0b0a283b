"""unstraggle: gradient coding, so that synchronous training does not wait for its slowest worker."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import codes, engines, latency, plan, problems, quantizers, testing, torch, trace
    from .citations import cite
    from .code import Code, Messages, Tasks
    from .decoders import Fixed, LeastSquares, Parts, Span
    from .diagnosis import Diagnosis, diagnose
    from .engines.base import WorkerFailed
    from .errors import Invalid, NotRecovered, UnstraggleError
    from .estimate import Estimate
    from .events import Arrived, Dropped, Elapsed, Joined, Lost
    from .expression import parse_code, parse_latency
    from .master import Master
    from .noise import NoiseGain, noise_gain
    from .round import Cancel, Round, State
    from .rounds import Rounds, Sample
    from .rule import Need
    from .simulation import replay, simulate
    from .stop import Count, Deadline, First, Linger, Recovered
    from .worker import Program, work

__version__ = "0.1.0"

HOMES = {
    **dict.fromkeys(("Code", "Messages", "Tasks"), "code"),
    **dict.fromkeys(("Fixed", "LeastSquares", "Parts", "Span"), "decoders"),
    **dict.fromkeys(("Diagnosis", "diagnose"), "diagnosis"),
    **dict.fromkeys(("Invalid", "NotRecovered", "UnstraggleError"), "errors"),
    **dict.fromkeys(("parse_code", "parse_latency"), "expression"),
    **dict.fromkeys(("NoiseGain", "noise_gain"), "noise"),
    **dict.fromkeys(("Arrived", "Dropped", "Elapsed", "Joined", "Lost"), "events"),
    **dict.fromkeys(("Cancel", "Round", "State"), "round"),
    **dict.fromkeys(("Rounds", "Sample"), "rounds"),
    **dict.fromkeys(("replay", "simulate"), "simulation"),
    **dict.fromkeys(("Count", "Deadline", "First", "Linger", "Recovered"), "stop"),
    **dict.fromkeys(("Program", "work"), "worker"),
    "Estimate": "estimate",
    "Master": "master",
    "Need": "rule",
    "WorkerFailed": "engines.base",
    "cite": "citations",
}
"""Where each public name lives. It is imported when it is used: a worker process needs little of all this."""

MODULES = ("codes", "engines", "latency", "plan", "problems", "quantizers", "testing", "torch", "trace")

__all__ = [
    "Arrived",
    "Cancel",
    "Code",
    "Count",
    "Deadline",
    "Diagnosis",
    "Dropped",
    "Elapsed",
    "Estimate",
    "First",
    "Fixed",
    "Invalid",
    "Joined",
    "LeastSquares",
    "Linger",
    "Lost",
    "Master",
    "Messages",
    "Need",
    "NoiseGain",
    "NotRecovered",
    "Parts",
    "Program",
    "Recovered",
    "Round",
    "Rounds",
    "Sample",
    "Span",
    "State",
    "Tasks",
    "UnstraggleError",
    "WorkerFailed",
    "cite",
    "codes",
    "diagnose",
    "engines",
    "latency",
    "noise_gain",
    "parse_code",
    "parse_latency",
    "plan",
    "problems",
    "quantizers",
    "replay",
    "simulate",
    "testing",
    "torch",
    "trace",
    "work",
]


def __getattr__(name: str) -> Any:
    if name in MODULES:
        return import_module(f".{name}", __name__)
    if name in HOMES:
        value = getattr(import_module(f".{HOMES[name]}", __name__), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
