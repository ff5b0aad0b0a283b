"""The tests that need a CUDA device, and what came of them: python -m benchmarks.gpu_suite [RESULT.json].

Those that look at the memory of the device run alone, after the others.
"""

import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from .common import RESULTS, of_device

TESTS = Path(__file__).parent.parent / "tests"
ALONE = TESTS / "torch" / "test_torch_device_faults.py"
OPTIONS = ["-m", "gpu", "-q", "-p", "no:cacheprovider", "-p", "no:benchmark", "--show-capture=no"]


class Outcomes:
    """What pytest says of every test."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}
        self.seconds: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: Any) -> None:
        name = report.nodeid.split("tests/", 1)[-1]
        self.seconds[name] = round(self.seconds.get(name, 0.0) + report.duration, 1)
        if report.when == "call" or report.outcome != "passed":
            self.found[name] = report.outcome


def main(path: Path) -> int:
    outcomes, began = Outcomes(), time.perf_counter()
    kinds = (["-n", "6", "--ignore", str(ALONE), str(TESTS)], ["-n", "0", str(ALONE)])
    code = max(pytest.main([*OPTIONS, *kind], plugins=[outcomes]) for kind in kinds)
    result = {
        **of_device("gpu_suite"),
        "seconds": round(time.perf_counter() - began, 1),
        "outcomes": dict(Counter(outcomes.found.values())),
        "tests": {name: [outcomes.found[name], outcomes.seconds[name]] for name in sorted(outcomes.found)},
    }
    path.write_text(json.dumps(result, indent=1) + "\n")
    return int(code)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if sys.argv[1:] else RESULTS / "gpu_suite.json"))
