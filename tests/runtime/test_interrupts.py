"""Interrupts: they wait for the end of what must not be cut in two, and handlers are as before."""

import signal
import threading
from types import BuiltinFunctionType

import pytest

from unstraggle.runtime import interrupts
from unstraggle.runtime.interrupts import Interrupts


@pytest.fixture
def came():
    """Interrupts that were handled, by a handler of the program."""
    found = []
    before = signal.signal(signal.SIGINT, lambda number, frame: found.append(number))
    yield found
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_waits_until_it_is_heeded_and_a_second_one_does_not(came):
    handler = signal.getsignal(signal.SIGINT)
    with Interrupts() as waiting:
        assert signal.getsignal(signal.SIGINT) is not handler
        signal.raise_signal(signal.SIGINT)
        assert not came
        waiting.heed()
        assert came == [signal.SIGINT]
        waiting.heed()
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        assert len(came) == 2
    assert len(came) == 3 and signal.getsignal(signal.SIGINT) is handler


@pytest.mark.parametrize("handler", [signal.SIG_DFL, signal.SIG_IGN])
def test_signals_that_python_does_not_handle_are_left_alone(handler):
    before = signal.signal(signal.SIGTERM, handler)
    try:
        with Interrupts():
            assert signal.getsignal(signal.SIGTERM) is handler
    finally:
        signal.signal(signal.SIGTERM, before)


def test_in_other_threads_nothing_happens(came):
    found, handler = [], signal.getsignal(signal.SIGINT)

    def look():
        with Interrupts():
            found.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [handler]


def test_handlers_are_asked_for_without_an_enumeration():
    """Functions of `signal` look for each handler among SIG_DFL and SIG_IGN, and raise an error inside where it is neither."""
    assert isinstance(interrupts.handler_of, BuiltinFunctionType) and isinstance(interrupts.handle, BuiltinFunctionType)
