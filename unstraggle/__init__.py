"""unstraggle: gradient coding, so that synchronous training does not wait for its slowest worker."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import codes, engines, latency, plan, problems, quantizers, testing, torch, trace
    from .adaptive.master import AdaptiveMaster
    from .adaptive.switch import Switch
    from .app.citations import cite
    from .diagnosis import Diagnosis, diagnose
    from .errors import Invalid, NotRecovered, UnstraggleError
    from .runtime.estimate import Estimate
    from .runtime.events import Announced, Arrived, Dropped, Elapsed, Failed, Finished, Joined, Lost
    from .runtime.instructions import Ask, Cancel, Fail, Say, Tell, Until
    from .runtime.log import Diverged, replay_log
    from .runtime.master import Master
    from .runtime.message import WorkerFailed
    from .runtime.round import Round
    from .runtime.states import State
    from .runtime.step import Split, Step
    from .runtime.terms import Terms
    from .runtime.worker import work
    from .scheme.code import Code, Messages, Tasks
    from .scheme.decoders import (
        Approximates,
        Decoded,
        Decoder,
        Divided,
        Fixed,
        KnowsWeights,
        LeastSquares,
        Linear,
        Parts,
        Span,
    )
    from .scheme.noise import NoiseGain, noise_gain
    from .scheme.program import Program
    from .scheme.rule import Need
    from .scheme.stop import Checks, Count, Deadline, First, Linger, Planned, Recovered, Stop, Vectorised
    from .study.expression import parse_code, parse_latency
    from .study.replaying import replay
    from .study.rounds import Rounds, Sample
    from .study.simulation import simulate

__version__ = "0.1.0"

HOMES = {
    **dict.fromkeys(("Code", "Messages", "Tasks"), "scheme.code"),
    **dict.fromkeys(
        ("Approximates", "Decoded", "Decoder", "Divided", "Fixed", "KnowsWeights", "LeastSquares", "Linear", "Parts", "Span"),
        "scheme.decoders",
    ),
    **dict.fromkeys(("Diagnosis", "diagnose"), "diagnosis"),
    **dict.fromkeys(("Invalid", "NotRecovered", "UnstraggleError"), "errors"),
    **dict.fromkeys(("parse_code", "parse_latency"), "study.expression"),
    **dict.fromkeys(("NoiseGain", "noise_gain"), "scheme.noise"),
    **dict.fromkeys(("Announced", "Arrived", "Dropped", "Elapsed", "Failed", "Finished", "Joined", "Lost"), "runtime.events"),
    **dict.fromkeys(("Ask", "Cancel", "Fail", "Say", "Tell", "Until"), "runtime.instructions"),
    **dict.fromkeys(("Diverged", "replay_log"), "runtime.log"),
    "Round": "runtime.round",
    "Terms": "runtime.terms",
    "State": "runtime.states",
    **dict.fromkeys(("Split", "Step"), "runtime.step"),
    **dict.fromkeys(("Rounds", "Sample"), "study.rounds"),
    "replay": "study.replaying",
    "simulate": "study.simulation",
    **dict.fromkeys(
        ("Checks", "Count", "Deadline", "First", "Linger", "Planned", "Recovered", "Stop", "Vectorised"), "scheme.stop"
    ),
    "Program": "scheme.program",
    "work": "runtime.worker",
    "Estimate": "runtime.estimate",
    "AdaptiveMaster": "adaptive.master",
    "Master": "runtime.master",
    "Switch": "adaptive.switch",
    "Need": "scheme.rule",
    "WorkerFailed": "runtime.message",
    "cite": "app.citations",
}
"""Where each public name lives. It is imported when it is used: a worker process needs little of all this."""

MODULES = ("codes", "engines", "latency", "plan", "problems", "quantizers", "testing", "torch", "trace")

__all__ = [
    "AdaptiveMaster",
    "Announced",
    "Approximates",
    "Arrived",
    "Ask",
    "Cancel",
    "Checks",
    "Code",
    "Count",
    "Deadline",
    "Decoded",
    "Decoder",
    "Diagnosis",
    "Diverged",
    "Divided",
    "Dropped",
    "Elapsed",
    "Estimate",
    "Fail",
    "Failed",
    "Finished",
    "First",
    "Fixed",
    "Invalid",
    "Joined",
    "KnowsWeights",
    "LeastSquares",
    "Linear",
    "Linger",
    "Lost",
    "Master",
    "Messages",
    "Need",
    "NoiseGain",
    "NotRecovered",
    "Parts",
    "Planned",
    "Program",
    "Recovered",
    "Round",
    "Rounds",
    "Sample",
    "Say",
    "Span",
    "Split",
    "State",
    "Step",
    "Stop",
    "Switch",
    "Tasks",
    "Tell",
    "Terms",
    "UnstraggleError",
    "Until",
    "Vectorised",
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
    "replay_log",
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
