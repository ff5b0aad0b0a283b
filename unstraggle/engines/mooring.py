"""Mooring: whether messages of workers on devices come through pinned memory, where workers may be on any host."""

from __future__ import annotations

import logging
from typing import Any

from ..errors import Invalid
from ..problems.base import Moors
from ..scheme.code import Code

log = logging.getLogger("unstraggle")

WAYS = ("auto", "pinned", "host")


def require_way(engine: str, way: str) -> str:
    """The way that was asked for; `Invalid` where there is none such."""
    if way not in WAYS:
        raise Invalid(f"{engine}'s way is one of {', '.join(WAYS)}, but got {way!r}. Leave it out for the best that there is.")
    return way


def moored(problem: Any, code: Code, way: str) -> bool:
    """Whether messages of a problem, or of a worker's share of it, come from a device through pinned memory."""
    if isinstance(problem, Moors):
        return problem.moors(code, way)
    if way == "pinned":
        raise Invalid(f'way="pinned" is for problems on devices, but got {type(problem).__name__}. Leave it out.')
    return False


def agree(problem: Any, code: Code, way: str) -> None:
    """When an engine opens: refuse a way that cannot be, and say it in the log where there is one."""
    if moored(problem, code, way):
        log.info("Parameters and messages pass through pinned memory on the hosts of the workers.")
