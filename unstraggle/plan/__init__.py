"""Planners: which code for which cluster. Each returns a `Plan`, a front of them, an allocation, or advice."""

from ..codes.two_track import second_moment_weights, shrinkage, two_track
from .advice import Advice, Candidate
from .auto import auto
from .base import Plan
from .bits import Bits, bits
from .block_sizes import block_sizes
from .cause import Cause, cause
from .compression import Compression, compression
from .convergence import Convergence, convergence
from .deadline import deadline
from .error import Error, least_bound, lemma_bound, mean_squared_error
from .front import Front
from .orders import orders
from .redundancy import redundancy

__all__ = [
    "Advice",
    "Bits",
    "Candidate",
    "Cause",
    "Compression",
    "Convergence",
    "Error",
    "Front",
    "Plan",
    "auto",
    "bits",
    "block_sizes",
    "cause",
    "compression",
    "convergence",
    "deadline",
    "least_bound",
    "lemma_bound",
    "mean_squared_error",
    "orders",
    "redundancy",
    "second_moment_weights",
    "shrinkage",
    "two_track",
]
