"""Pictures: functions that return a matplotlib figure. One style: colour-blind safe, labelled with units, readable in print."""

from .figures import runtimes, time_against_load, time_and_load
from .plans import allocation, block_sizes, candidates, front, redundancy_curve
from .rounds import completion_times, fitted_distributions
from .runs import lateness, schemes, time_split, timeline
from .style import BLUE, COLOURS, GREY, ORANGE, _clean, _figure
from .tables import bits, code_matrix
from .training import loss, training

__all__ = [
    "BLUE",
    "COLOURS",
    "GREY",
    "ORANGE",
    "_clean",
    "_figure",
    "allocation",
    "bits",
    "block_sizes",
    "candidates",
    "code_matrix",
    "completion_times",
    "fitted_distributions",
    "front",
    "lateness",
    "loss",
    "redundancy_curve",
    "runtimes",
    "schemes",
    "time_against_load",
    "time_and_load",
    "time_split",
    "timeline",
    "training",
]
