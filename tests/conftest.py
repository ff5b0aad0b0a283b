"""What all tests share: slow ones are skipped unless they are asked for."""

import pytest


def pytest_collection_modifyitems(config, items):
    if config.getoption("markexpr"):
        return
    for item in items:
        if "slow" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="slow: run with pytest -m slow"))
