"""Schemes as data: every function returns a `Code`. One scheme a file; see CONTRIBUTING.md for how to add one."""

from .combine import blocks, cluster, stack
from .correlated_mmc import correlated_mmc, uncoded_mmc
from .cyclic_repetition import cyclic_repetition
from .fractional_repetition import fractional_repetition
from .lagrange import lagrange
from .modify import hybrid
from .partial_stragglers import partial_stragglers
from .reed_solomon import reed_solomon
from .uncoded import uncoded
from .uncorrelated_mmc import uncorrelated_mmc

__all__ = [
    "blocks",
    "cluster",
    "correlated_mmc",
    "cyclic_repetition",
    "fractional_repetition",
    "hybrid",
    "lagrange",
    "partial_stragglers",
    "reed_solomon",
    "stack",
    "uncoded",
    "uncoded_mmc",
    "uncorrelated_mmc",
]
