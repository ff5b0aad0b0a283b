"""Schemes as data: every function returns a `Code`. One scheme per file; see CONTRIBUTING.md for how to add one.

A scheme needs one line here, `from .name import name as name`. All the rest is made from its facts, which stand in its file.
"""

from typing import TYPE_CHECKING

from .bernoulli import bernoulli as bernoulli
from .combine import blocks as blocks
from .combine import cluster as cluster
from .combine import stack as stack
from .communication_efficient import communication_efficient as communication_efficient
from .correlated_mmc import correlated_mmc as correlated_mmc
from .correlated_mmc import uncoded_mmc as uncoded_mmc
from .cyclic_repetition import cyclic_repetition as cyclic_repetition
from .erasurehead import erasurehead as erasurehead
from .expander import expander as expander
from .facts import Facts, facts_of
from .fractional_repetition import fractional_repetition as fractional_repetition
from .graph_assignment import graph_assignment as graph_assignment
from .group_based import group_based as group_based
from .heterogeneity_aware import heterogeneity_aware as heterogeneity_aware
from .heterogeneity_aware import proportional as proportional
from .ignore_stragglers import ignore_stragglers as ignore_stragglers
from .lagrange import lagrange as lagrange
from .modify import hybrid as hybrid
from .modify import quantize as quantize
from .optimal_decoding import optimal_decoding as optimal_decoding
from .optimally_structured import optimally_structured as optimally_structured
from .partial_stragglers import partial_stragglers as partial_stragglers
from .reed_solomon import reed_solomon as reed_solomon
from .stochastic import stochastic as stochastic
from .sums_on_request import sums_on_request as sums_on_request
from .two_track import two_track as two_track
from .uncoded import uncoded as uncoded
from .uncorrelated_mmc import uncorrelated_mmc as uncorrelated_mmc
from .work_conserving import work_conserving as work_conserving

SCHEMES: dict[str, Facts] = {name: facts for name, value in sorted(vars().items()) if (facts := facts_of(value))}
"""The public schemes by name, with what their files say of them."""

APPROXIMATE = tuple(name for name, facts in SCHEMES.items() if not facts.exact)
"""Schemes whose gradient is not exact: they go with a deadline."""

if not TYPE_CHECKING:  # type checkers know the names by the lines above
    __all__ = ["APPROXIMATE", "SCHEMES", "proportional", *SCHEMES]
