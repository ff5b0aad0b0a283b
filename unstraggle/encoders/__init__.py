"""Encoding matrices: coefficients on a given support such that enough rows span the ones. One construction per file."""

from .fourier import fourier
from .mixing import mixing
from .null_space import null_space
from .polynomial import polynomial
from .random import random

__all__ = ["fourier", "mixing", "null_space", "polynomial", "random"]
