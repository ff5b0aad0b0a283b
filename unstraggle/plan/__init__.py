"""Planners: which code for which cluster. Each returns a `Plan`, a front of them, or advice."""

from .advice import Advice, Candidate
from .auto import auto
from .base import Plan
from .block_sizes import block_sizes
from .cause import Cause, cause
from .front import Front
from .orders import orders
from .redundancy import redundancy

__all__ = ["Advice", "Candidate", "Cause", "Front", "Plan", "auto", "block_sizes", "cause", "orders", "redundancy"]
