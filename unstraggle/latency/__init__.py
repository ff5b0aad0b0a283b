"""Latency models: how long tasks take and when messages arrive. One file a family; every one is a small frozen value."""

from .base import Latency, arrivals
from .shifted_exponential import Exponential, ShiftedExponential

MODELS = ("Exponential", "ShiftedExponential")
"""The models that can be named in an expression."""

__all__ = ["MODELS", "Exponential", "Latency", "ShiftedExponential", "arrivals"]
