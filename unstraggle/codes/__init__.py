"""Schemes as data: every function returns a `Code`. One scheme a file; see CONTRIBUTING.md for how to add one."""

from .bernoulli_code import bernoulli_code
from .combine import blocks, cluster, stack
from .correlated_mmc import correlated_mmc, uncoded_mmc
from .cyclic_repetition import cyclic_repetition
from .erasure_head import erasure_head
from .expander_code import expander_code
from .fractional_repetition import fractional_repetition
from .ignore_stragglers import ignore_stragglers
from .joint_code import joint_code
from .lagrange import lagrange
from .modify import hybrid
from .partial_stragglers import partial_stragglers
from .reed_solomon import reed_solomon
from .regular_graph_code import regular_graph_code
from .stochastic_code import stochastic_code
from .uncoded import uncoded
from .uncorrelated_mmc import uncorrelated_mmc

APPROXIMATE = (
    "bernoulli_code",
    "erasure_head",
    "expander_code",
    "ignore_stragglers",
    "joint_code",
    "regular_graph_code",
    "stochastic_code",
)
"""Schemes whose gradient is not exact: they go with a deadline."""

__all__ = [
    "APPROXIMATE",
    "bernoulli_code",
    "blocks",
    "cluster",
    "correlated_mmc",
    "cyclic_repetition",
    "erasure_head",
    "expander_code",
    "fractional_repetition",
    "hybrid",
    "ignore_stragglers",
    "joint_code",
    "lagrange",
    "partial_stragglers",
    "reed_solomon",
    "regular_graph_code",
    "stack",
    "stochastic_code",
    "uncoded",
    "uncoded_mmc",
    "uncorrelated_mmc",
]
