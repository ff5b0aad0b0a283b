"""Latency models: how long tasks take and when messages arrive. One family per file; every one is a small frozen value."""

from ..scheme.arrivals import Delivers, Durations, Latency, OrderStatistics, Resumes, Speeds, Survival
from .base import Family, OneSpeed, arrivals
from .empirical import Empirical, Replay
from .families import BurrXII, Gamma, LogNormal, Pareto, Weibull
from .fit import Candidate, Fit, fit
from .fixed_cost import CostEstimate, FixedCost, fixed_cost
from .heterogeneous import Heterogeneous
from .network import Network
from .persistent import Persistent
from .shifted_exponential import Exponential, ShiftedExponential
from .two_speed import Bernoulli, TwoSpeed

MODELS = (
    "Bernoulli",
    "BurrXII",
    "Empirical",
    "Exponential",
    "FixedCost",
    "Gamma",
    "Heterogeneous",
    "LogNormal",
    "Network",
    "Pareto",
    "Persistent",
    "Replay",
    "ShiftedExponential",
    "TwoSpeed",
    "Weibull",
)
"""The models that can be named in an expression."""

__all__ = [
    "MODELS",
    "Bernoulli",
    "BurrXII",
    "Candidate",
    "CostEstimate",
    "Delivers",
    "Durations",
    "Empirical",
    "Exponential",
    "Family",
    "Fit",
    "FixedCost",
    "Gamma",
    "Heterogeneous",
    "Latency",
    "LogNormal",
    "Network",
    "OneSpeed",
    "OrderStatistics",
    "Pareto",
    "Persistent",
    "Replay",
    "Resumes",
    "ShiftedExponential",
    "Speeds",
    "Survival",
    "TwoSpeed",
    "Weibull",
    "arrivals",
    "fit",
    "fixed_cost",
]
