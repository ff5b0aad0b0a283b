"""How commands end before they are done."""

from __future__ import annotations


class Explained(SystemExit):
    """The command ends with this exit code, and has said why."""
