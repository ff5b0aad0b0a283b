"""unstraggle: gradient coding, so that synchronous training does not wait for its slowest worker."""

from . import codes, latency, plan, problems, trace
from .code import Code, Messages, Tasks
from .decoders import Fixed, LeastSquares, Parts, Span
from .errors import Invalid, NotRecovered, UnstraggleError
from .expression import parse_code, parse_latency
from .noise import NoiseGain, noise_gain
from .round import Arrived, Cancel, Elapsed, Lost, Round, State
from .rounds import Rounds, Sample
from .rule import Need
from .simulate import replay, simulate
from .stop import Count, Deadline, First, Linger, Recovered
from .worker import Program, work

__version__ = "0.1.0"

__all__ = [
    "Arrived",
    "Cancel",
    "Code",
    "Count",
    "Deadline",
    "Elapsed",
    "First",
    "Fixed",
    "Invalid",
    "LeastSquares",
    "Linger",
    "Lost",
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
    "codes",
    "latency",
    "noise_gain",
    "parse_code",
    "parse_latency",
    "plan",
    "problems",
    "replay",
    "simulate",
    "trace",
    "work",
]
