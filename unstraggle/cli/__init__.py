"""The command line: one command a file."""

from __future__ import annotations

import sys

from ..errors import UnstraggleError
from . import check, diagnose, fit, plan, report, reproduce, run, simulate, train
from .app import app

__all__ = ["app", "check", "diagnose", "fit", "main", "plan", "report", "reproduce", "run", "simulate", "train"]


def main() -> None:
    """Run the command line. Exit codes: 0 done, 1 a check failed, 2 bad input."""
    from ..testing import BrokenCode

    try:
        app()
    except BrokenCode as error:
        sys.exit(_complain(error, 1))
    except UnstraggleError as error:
        sys.exit(_complain(error, 2))
    except OSError as error:
        sys.exit(_complain(error, 2))


def _complain(error: Exception, code: int) -> int:
    print(f"unstraggle: {error}", file=sys.stderr)
    return code
