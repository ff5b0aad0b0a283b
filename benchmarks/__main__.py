"""Run all benchmarks, or those named: python -m benchmarks [simulator] [span]."""

import sys

from . import simulator, span

ALL = {"simulator": simulator.main, "span": span.main}

for name in sys.argv[1:] or ALL:
    ALL[name]()
