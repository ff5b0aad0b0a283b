"""One test over many small cases: all that fail are named, not only the first."""

import traceback
from contextlib import contextmanager

import pytest


@contextmanager
def folded():
    """Gives `case`, a context for each case with its name; fails at the end if any case did.

    with folded() as case:
        for number in (1, 2, 3):
            with case(f"number {number}"):
                assert number < 3
    """
    failed, tried = [], []

    @contextmanager
    def case(name):
        tried.append(name)
        try:
            yield
        except (Exception, pytest.fail.Exception) as error:
            failed.append(f"{name}\n{''.join(traceback.format_exception(error, limit=-2))}")

    yield case
    assert not failed, f"{len(failed)} of {len(tried)} cases failed:\n" + "\n".join(failed)
