"""Engines: how orders reach workers and messages the master. They carry, `Round` decides.

What an engine of one's own needs comes from here: the role (`Engine`); what it brings to workers (`Order`, as a `Job`) and to
the master (`Incoming`: `Message`, `Dropped`, `Failed`, `Lost`, `Joined`, `Finished`, `Announced`); what a worker is
(`share_of`, `run`, `Abandoned`); and who is there (`Roster`). See docs/howto/own_engine.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..runtime.events import Announced, Dropped, Failed, Finished, Joined, Lost
from ..runtime.frame import checksum
from ..runtime.instructions import Tell
from ..runtime.message import Incoming, Message, Order, WorkerFailed
from ..runtime.roster import Roster
from ..runtime.serve import Abandoned, Job, Share, run, share_of
from ..scheme.program import Outgoing
from .base import Engine, Follows, Keeps, Lends, Processes, Tells, prepared

if TYPE_CHECKING:
    from .chaos import Chaos
    from .local import Local
    from .mpi import MPI
    from .ray import Ray
    from .virtual import Virtual
    from .voting import Voting

__all__ = [
    "MPI",
    "Abandoned",
    "Announced",
    "Chaos",
    "Dropped",
    "Engine",
    "Failed",
    "Finished",
    "Follows",
    "Incoming",
    "Job",
    "Joined",
    "Keeps",
    "Lends",
    "Local",
    "Lost",
    "Message",
    "Order",
    "Outgoing",
    "Processes",
    "Ray",
    "Roster",
    "Share",
    "Tell",
    "Tells",
    "Virtual",
    "Voting",
    "WorkerFailed",
    "checksum",
    "prepared",
    "run",
    "share_of",
]

HOMES = {"Chaos": ".chaos", "Local": ".local", "MPI": ".mpi", "Ray": ".ray", "Virtual": ".virtual", "Voting": ".voting"}


def __getattr__(name: str) -> Any:
    """Engines are imported when they are used: some need libraries that others do without."""
    if name in HOMES:
        return getattr(import_module(HOMES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
