"""Engines: how orders reach workers and messages the master. They carry, `Round` decides."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..runtime.message import Message, Order, WorkerFailed
from .base import Engine, Processes

if TYPE_CHECKING:
    from .chaos import Chaos
    from .local import Local
    from .mpi import MPI
    from .ray import Ray
    from .virtual import Virtual

__all__ = ["MPI", "Chaos", "Engine", "Local", "Message", "Order", "Processes", "Ray", "Virtual", "WorkerFailed"]

HOMES = {"Chaos": ".chaos", "Local": ".local", "MPI": ".mpi", "Ray": ".ray", "Virtual": ".virtual"}


def __getattr__(name: str) -> Any:
    """Engines are imported when they are used: some need libraries that others do without."""
    if name in HOMES:
        return getattr(import_module(HOMES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
