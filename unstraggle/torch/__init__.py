"""For PyTorch users: training with coded gradients, and optimisers for them. Needs `pip install 'unstraggle[torch]'`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .coded import Coded
    from .info import Info
    from .profile import Profile, profile_blocks
    from .two_track_adam import TwoTrackAdam

__all__ = ["Coded", "Info", "Profile", "TwoTrackAdam", "profile_blocks"]

HOMES = {
    "Coded": ".coded",
    "Info": ".info",
    "Profile": ".profile",
    "TwoTrackAdam": ".two_track_adam",
    "profile_blocks": ".profile",
}

HINT = "unstraggle.torch needs PyTorch, which is not installed. Run: pip install 'unstraggle[torch]'"


def __getattr__(name: str) -> Any:
    """Modules that import PyTorch are loaded on first use, so that importing this package never fails without it."""
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(HOMES[name], __name__), name)
    except ModuleNotFoundError as error:
        raise ImportError(HINT) if error.name == "torch" else error from error
