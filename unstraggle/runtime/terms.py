"""Terms: all that the decisions of a round depend on besides its code and stop rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ..errors import Invalid
from ..scheme.recovery import By, Sending
from ..scheme.stop import Recovered, Stop
from .states import Shortfall

Transfer = Literal["push", "pull"]
"""How messages get to the master: by themselves, or announced and asked for."""


@dataclass(frozen=True)
class Terms:
    """What a round goes by besides its code and stop rule: all that its decisions depend on.

    limit: seconds after which patience is over. remind: seconds after which people are told whom the round waits for.
    lost: workers that are gone when it starts, and whether each may return. suspects: workers that failed when last asked.
    eps: relative error of the numbers in messages. busy: workers that are still at a task of an earlier round, where tasks are
    handed out. transfer: whether workers send messages by themselves, "push", or announce them and are asked for those that the
    decoder will use, "pull".
    """

    on_shortfall: Shortfall = "raise"
    limit: float | None = None
    remind: float | None = None
    sending: Sending = "all"
    lost: tuple[tuple[int, bool], ...] = ()
    suspects: frozenset[int] = frozenset()
    eps: float = 0.0
    busy: tuple[int, ...] = ()
    transfer: Transfer = "push"


def require_sending(sending: Any) -> Sending:
    """Check which messages are to be counted."""
    if sending not in ("all", "cluster_stop"):
        raise Invalid(f'sending must be "all" or "cluster_stop", but got {sending!r}.')
    return sending  # type: ignore[no-any-return]


def require_stop_by(stop: Stop) -> By:
    """The notion of recovered that lets a cluster stop early; only `Recovered` has one."""
    if isinstance(stop, Recovered):
        return stop.by
    raise Invalid(f'sending="cluster_stop" needs stop=Recovered(...), but got {stop}. Use sending="all" with other stop rules.')


def require_transfer(transfer: Any) -> Transfer:
    """Check how messages are to get to the master."""
    if transfer not in ("push", "pull"):
        raise Invalid(f'transfer must be "push" or "pull", but got {transfer!r}.')
    return transfer  # type: ignore[no-any-return]
