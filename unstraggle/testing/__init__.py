"""Contracts for people who write their own codes, engines and quantisers."""

from __future__ import annotations

from .approximate import ApproximateReport
from .codes import CodeReport, check_code
from .engines import BrokenEngine, EngineReport, check_engine
from .quantizers import BrokenQuantizer, QuantizerReport, check_quantizer
from .shared import BrokenCode, Recorded, example_payloads

__all__ = [
    "ApproximateReport",
    "BrokenCode",
    "BrokenEngine",
    "BrokenQuantizer",
    "CodeReport",
    "EngineReport",
    "QuantizerReport",
    "Recorded",
    "check_code",
    "check_engine",
    "check_quantizer",
    "example_payloads",
]
