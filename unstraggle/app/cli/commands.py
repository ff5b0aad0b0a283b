"""All commands: importing this gives the application with every one of them."""

from . import bench, check, diagnose, fit, measure, plan, plan_quantized, report, reproduce, run, simulate, train
from .shared import app

__all__ = [
    "app",
    "bench",
    "check",
    "diagnose",
    "fit",
    "measure",
    "plan",
    "plan_quantized",
    "report",
    "reproduce",
    "run",
    "simulate",
    "train",
]
