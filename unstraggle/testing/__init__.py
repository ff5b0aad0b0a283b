"""Contracts for people who write their own codes, engines, codecs and problems."""

from __future__ import annotations

from ..scheme.saved import same_code
from .approximate import ApproximateReport
from .codecs import BrokenCodec, CodecReport, check_codec
from .codes import CodeReport, check_code
from .engines import BrokenEngine, EngineReport, check_engine
from .problems import BrokenProblem, ProblemReport, check_problem
from .shared import BrokenCode, Recorded, RecordedTasks, example_payloads

__all__ = [
    "ApproximateReport",
    "BrokenCode",
    "BrokenCodec",
    "BrokenEngine",
    "BrokenProblem",
    "CodeReport",
    "CodecReport",
    "EngineReport",
    "ProblemReport",
    "Recorded",
    "RecordedTasks",
    "check_code",
    "check_codec",
    "check_engine",
    "check_problem",
    "example_payloads",
    "same_code",
]
