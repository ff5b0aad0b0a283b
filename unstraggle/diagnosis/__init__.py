"""Diagnosis: are there stragglers in a trace, of which kind, what do they cost, and what would help?"""

from .remedies import Remedy
from .result import Diagnosis, Worker, percent
from .rules import diagnose

__all__ = ["Diagnosis", "Remedy", "Worker", "diagnose", "percent"]
