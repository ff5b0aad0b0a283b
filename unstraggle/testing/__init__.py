"""Contracts for people who write their own codes, engines and quantisers."""

from __future__ import annotations

from ..scheme.saved import same_code
from .codes import BrokenCode, CodeReport, Recorded, check_code, example_payloads
from .engines import BrokenEngine, EngineReport, check_engine
from .quantizers import BrokenQuantizer, QuantizerReport, check_quantizer

__all__ = [
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
    "same_code",
]
