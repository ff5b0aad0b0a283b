"""Problems: the only place that knows data and models."""

from __future__ import annotations

from .base import Problem
from .least_squares import LeastSquares
from .logistic import Logistic

__all__ = ["LeastSquares", "Logistic", "Problem"]
