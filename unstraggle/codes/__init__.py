"""Schemes as data: every function returns a `Code`. One scheme a file; see CONTRIBUTING.md for how to add one."""

from .bernoulli import bernoulli
from .combine import blocks, cluster, stack
from .correlated_mmc import correlated_mmc, uncoded_mmc
from .cyclic_repetition import cyclic_repetition
from .erasurehead import erasurehead
from .expander import expander
from .fractional_repetition import fractional_repetition
from .ignore_stragglers import ignore_stragglers
from .lagrange import lagrange
from .modify import hybrid, quantize
from .optimal_decoding import optimal_decoding
from .optimally_structured import optimally_structured
from .partial_stragglers import partial_stragglers
from .reed_solomon import reed_solomon
from .stochastic import stochastic
from .uncoded import uncoded
from .uncorrelated_mmc import uncorrelated_mmc

APPROXIMATE = (
    "bernoulli",
    "erasurehead",
    "expander",
    "ignore_stragglers",
    "optimally_structured",
    "optimal_decoding",
    "stochastic",
)
"""Schemes whose gradient is not exact: they go with a deadline."""

__all__ = [
    "APPROXIMATE",
    "bernoulli",
    "blocks",
    "cluster",
    "correlated_mmc",
    "cyclic_repetition",
    "erasurehead",
    "expander",
    "fractional_repetition",
    "hybrid",
    "ignore_stragglers",
    "lagrange",
    "optimal_decoding",
    "optimally_structured",
    "partial_stragglers",
    "quantize",
    "reed_solomon",
    "stack",
    "stochastic",
    "uncoded",
    "uncoded_mmc",
    "uncorrelated_mmc",
]
