"""Contracts for people who write their own codes, engines and codecs."""

from __future__ import annotations

from .codecs import BrokenCodec, CodecReport, check_codec
from .codes import BrokenCode, CodeReport, Recorded, check_code, example_payloads
from .engines import BrokenEngine, EngineReport, check_engine

__all__ = [
    "BrokenCode",
    "BrokenCodec",
    "BrokenEngine",
    "CodeReport",
    "CodecReport",
    "EngineReport",
    "Recorded",
    "check_code",
    "check_codec",
    "check_engine",
    "example_payloads",
]
