"""For PyTorch users: training with coded gradients, and optimisers for them. Needs `pip install 'unstraggle[torch]'`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .accelerate import accelerated
    from .coded import Coded
    from .info import Info
    from .lightning import CodedStrategy
    from .module import TorchModule
    from .profile import Profile, profile_blocks
    from .trainer import CodedTrainer
    from .two_track_adam import TwoTrackAdam

__all__ = [
    "Coded",
    "CodedStrategy",
    "CodedTrainer",
    "Info",
    "Profile",
    "Shards",
    "TorchModule",
    "TwoTrackAdam",
    "accelerated",
    "profile_blocks",
]

HOMES = {
    "Coded": ".coded",
    "CodedStrategy": ".lightning",
    "CodedTrainer": ".trainer",
    "Info": ".info",
    "Profile": ".profile",
    "Shards": ".shards",
    "TorchModule": ".module",
    "TwoTrackAdam": ".two_track_adam",
    "accelerated": ".accelerate",
    "profile_blocks": ".profile",
}

LIBRARIES = {"torch": "PyTorch", "lightning": "Lightning", "accelerate": "Accelerate", "transformers": "Transformers"}


def __getattr__(name: str) -> Any:
    """Modules that import PyTorch are loaded on first use, so that importing this package never fails without it."""
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(HOMES[name], __name__), name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing not in LIBRARIES:
            raise
        needs = f"unstraggle.torch needs {LIBRARIES[missing]}, which is not installed."
        raise ImportError(f"{needs} Run: pip install 'unstraggle[{missing}]'") from error
