"""What all tests share: slow ones are skipped unless they are asked for, and Ctrl+C works however pytest was started."""

import signal

import pytest


def pytest_configure(config):
    """A shell that starts pytest in the background has it ignore SIGINT, and so would every process that tests start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


TOGETHER = ("test_install", "test_engine_mpi", "test_engine_ray", "test_plan_orders")
"""Modules whose set-up takes long: their tests run in one process, which sets up once."""


def pytest_collection_modifyitems(config, items):
    for item in items:
        if item.path.stem in TOGETHER:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
    if config.getoption("markexpr"):
        return
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="slow: run with pytest -m slow"))
