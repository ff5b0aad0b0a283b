"""Problems: the only place that knows data and models."""

from __future__ import annotations

from .base import (
    Accumulates,
    ComputesAll,
    Encodes,
    HasLoss,
    Joins,
    Listens,
    Moors,
    Overwrites,
    Prepares,
    Problem,
    Restricts,
    Shares,
    Shows,
    Stays,
    Stops,
    Travels,
)
from .least_squares import LeastSquares
from .logistic import Logistic

__all__ = [
    "Accumulates",
    "ComputesAll",
    "Encodes",
    "HasLoss",
    "Joins",
    "LeastSquares",
    "Listens",
    "Logistic",
    "Moors",
    "Overwrites",
    "Prepares",
    "Problem",
    "Restricts",
    "Shares",
    "Shows",
    "Stays",
    "Stops",
    "Travels",
]
