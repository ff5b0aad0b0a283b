"""The connection to Ray: to a cluster that is there, or to one on this machine that ends with the last engine that uses it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

from ..errors import Invalid, UnstraggleError
from .environment import environment, thread_limits

QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
"""Without these Ray tells its makers about its use, and warns about how it will treat GPUs some day."""


GUARDED = (2, 59)
"""From this version on, a Ray that is started here asks whoever connects for a token; its ports are open on all interfaces."""


def require_guarded(version: str) -> None:
    """Refuse to start a Ray that runs the code of whoever reaches one of its ports."""
    if tuple(int(number) for number in version.split(".")[:2]) < GUARDED:
        raise UnstraggleError(
            f"Ray {version} would run code of whoever can reach its ports, which are open on all interfaces of this machine. "
            "Use ray>=2.59, which asks for a token (pip install -U ray), or the address of a cluster that you guard yourself."
        )


def load() -> Any:
    """The package ray, or how to get it."""
    try:
        return import_module("ray")
    except ImportError as error:
        raise UnstraggleError("engines.Ray needs ray, which is not installed. Run: pip install 'unstraggle[ray]'") from error


@dataclass(frozen=True)
class Connection:
    """Ray, as an engine uses it. own: this package connected to it. alone: it runs on this machine only."""

    own: bool
    alone: bool

    users: ClassVar[int] = 0
    """Engines of this process that use a Ray to which this package connected."""

    @classmethod
    def join(cls, address: str | None, workers: int, threads: int) -> Connection:
        """Use the Ray that this process is connected to, connect to the one at an address, or start one."""
        ray = load()
        if address is not None and address.startswith("ray://"):
            raise Invalid(
                f"Workers connect to the master, so it must run on a machine of the cluster, but got address={address!r}. "
                'Run the script there (as a Ray job, or on the head node) with address="auto".'
            )
        if ray.is_initialized():
            return cls._joined(own=cls.users > 0, alone=False)
        if address not in (None, "local") or (address is None and "RAY_ADDRESS" in os.environ):
            cls._start(address)
            return cls._joined(own=True, alone=False)
        require_guarded(ray.__version__)
        with environment(QUIET | thread_limits(threads) | {"RAY_worker_maximum_startup_concurrency": str(workers)}):
            cls._start("local", num_cpus=workers, include_dashboard=False, log_to_driver=False)
        return cls._joined(own=True, alone=True)

    @classmethod
    def _start(cls, address: str | None, **options: Any) -> None:
        """ray.init; one that fails leaves no processes behind."""
        try:
            load().init(address, logging_level="ERROR", **options)
        except Exception as error:
            load().shutdown()
            raise UnstraggleError(
                f"Ray could not be started, or joined at address={address!r}. Where a cluster asks for Ray's token, whoever "
                f"joins it needs RAY_AUTH_MODE=token and the token. Ray says: {error}"
            ) from error

    @classmethod
    def _joined(cls, own: bool, alone: bool) -> Connection:
        cls.users += own
        return cls(own, alone)

    def leave(self) -> None:
        """Disconnect, and end what was started, unless another engine uses it or the connection was there before."""
        if not self.own:
            return
        type(self).users -= 1
        if type(self).users == 0:
            load().shutdown()
