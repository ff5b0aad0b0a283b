"""The live page: a run as it goes, served by the master to a browser on the same machine."""

from .server import LivePage

__all__ = ["LivePage"]
