"""What this machine can do, in seconds rather than minutes: every speed against a yardstick of the same run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

Told = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Result:
    """What took how long, and what was timed beside it. ratio: speed over that of the yardstick; 1 means as fast."""

    what: str
    seconds: float
    yardstick: str
    yardstick_seconds: float

    @property
    def ratio(self) -> float:
        return self.yardstick_seconds / self.seconds

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**vars(self), "ratio": self.ratio}


@dataclass(frozen=True)
class Bench:
    """About what it says, where its function is, and whether it is run when none is named."""

    about: str
    home: str
    usual: bool = True

    def run(self, seed: int = 0) -> list[Result]:
        """Measure; takes some seconds."""
        module, _, function = self.home.partition(":")
        return list(getattr(import_module(f".{module}", __name__), function)(seed))


BENCHES = {
    "quantise": Bench("norm, rounding, packing and checksum of a vector, against copying it", "kernels:quantise"),
    "accumulate": Bench("add quantised messages up, against copying the vector", "kernels:accumulate"),
    "decode": Bench("sum messages with weights, against copying them", "kernels:decode"),
    "simulate": Bench("simulate rounds, against the same in plain NumPy", "rounds:simulated"),
    "local": Bench("messages of local workers, against pipes", "exchange:local"),
    "ray": Bench("messages of Ray actors, against pipes", "exchange:ray", usual=False),
    "mpi": Bench("messages of MPI ranks, against pipes", "exchange:mpi", usual=False),
}
