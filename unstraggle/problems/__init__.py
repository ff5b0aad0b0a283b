"""Problems: the only place that knows data and models."""

from .least_squares import LeastSquares

__all__ = ["LeastSquares"]
