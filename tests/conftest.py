"""What all tests share: slow ones are skipped unless asked for, long ones begin first, engines share what forks their workers,
and Ctrl+C works however pytest was started.
"""

import gc
import os
import signal

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("any machine", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")  # no bound on wall-clock time, and the same examples in every run
os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy is imported: threads that wait for one another spin

TOGETHER = {
    "installation": ("test_install.py",),
    "mpi": ("test_engine_mpi.py",),
    "ray": ("test_engine_ray.py",),
    "orders": ("test_plan_orders.py",),
    "waiting": ("test_broken_engines.py",),
    "lightning": ("test_torch_adapters.py", "[lightning_fit]", "[docs/training.md]"),
}
"""Tests that run in one process, by what their names hold: what they need takes long to set up or to import; or they wait,
which should not be all processes at once."""
LONG = (
    "test_contributing.py",
    "test_examples.py",
    "test_docs.py::test_code_runs",
    "test_docs.py::test_docstring_examples",
    "test_docs.py::test_pictures",
    "test_hosts.py",
    "test_scenarios.py",
    "test_cuda.py",
    "test_cli_train.py",
    "test_cli_interrupt.py",
    "test_cli_commands.py::test_table",
    "test_quantized_osgc.py",
    "test_figure1.py",
)
"""Tests that take many seconds, by what their names hold: they begin first, so that no process is left with one in the end."""


def pytest_configure(config):
    """A shell that starts pytest in the background has it ignore SIGINT, and so would every process that tests start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config, items):
    for item in items:
        for group in (name for name, parts in TOGETHER.items() if any(part in item.nodeid for part in parts)):
            item.add_marker(pytest.mark.xdist_group(group))
    if hasattr(config, "workerinput"):  # where several processes share the tests
        items.sort(key=lambda item: not any(part in item.nodeid for part in LONG))
    without_device = [item for item in items if "gpu" in item.keywords and not has_device()]
    for item in without_device:
        item.add_marker(pytest.mark.skip(reason="gpu: needs a CUDA device"))
    if config.getoption("markexpr"):
        return
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="slow: run with pytest -m slow"))


def has_device():
    import torch  # tests that need a device have imported it

    return torch.cuda.is_available()


def pytest_collection_finish():
    """Modules stay to the end: later collections of garbage need not look at them, of which there are millions of objects."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure():
    gc.unfreeze()  # libraries look in the end whether anything of theirs is left


@pytest.fixture(scope="session", autouse=True)
def nurseries():
    """See nurseries.py."""
    from .nurseries import shared_nurseries

    with shared_nurseries():
        yield
