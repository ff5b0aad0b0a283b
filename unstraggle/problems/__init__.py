"""Problems: the only place that knows data and models."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .base import Accumulates, ComputesAll, Encodes, HasLoss, Problem, Restricts, Shares
from .least_squares import LeastSquares
from .logistic import Logistic

if TYPE_CHECKING:
    from .torch_module import TorchModule

__all__ = [
    "Accumulates",
    "ComputesAll",
    "Encodes",
    "HasLoss",
    "LeastSquares",
    "Logistic",
    "Problem",
    "Restricts",
    "Shares",
    "TorchModule",
]


def __getattr__(name: str) -> Any:
    """What needs torch is imported when it is used."""
    if name == "TorchModule":
        return import_module(".torch_module", __name__).TorchModule
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
