"""The command line: one command per file."""

from __future__ import annotations

import signal
import sys
from typing import Any, NoReturn

from ...errors import Invalid, UnstraggleError
from .ending import Explained

__all__ = ["app", "exit_code", "main"]


def main() -> None:
    """Run the command line. Exit codes: 0 done, 1 a check failed or a run could not finish, 2 bad input, 130 Ctrl+C."""
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:  # an MPI rank has a handler of its own
        signal.signal(signal.SIGTERM, _terminate)
    try:
        from .commands import app  # here, so that Ctrl+C is taken care of from the start

        app(prog_name="unstraggle")
    except Explained:
        raise
    except SystemExit as end:
        if end.code in (130, 143):
            print("unstraggle: interrupted.", file=sys.stderr)
        raise
    except KeyboardInterrupt:
        sys.exit(_complain("interrupted.", 130))
    except (UnstraggleError, OSError) as error:
        sys.exit(_complain(error, exit_code(error)))


def exit_code(error: Exception) -> int:
    """2 for what another command line, file or installation puts right; 1 for checks and runs that failed.

    >>> from unstraggle import NotRecovered
    >>> exit_code(Invalid("s must be below n")), exit_code(NotRecovered("all workers are lost"))
    (2, 1)
    """
    missing = isinstance(error.__cause__, ImportError)
    return 2 if missing or isinstance(error, Invalid | OSError) else 1


def _complain(error: Any, code: int) -> int:
    print(f"unstraggle: {error}", file=sys.stderr)
    return code


def _terminate(number: int, _: Any) -> NoReturn:
    """SIGTERM ends as Ctrl+C does: workers are ended and traces written. A second one kills."""
    signal.signal(number, signal.SIG_DFL)
    raise SystemExit(128 + number)


def __getattr__(name: str) -> Any:
    if name == "app":
        from .commands import app

        return app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
