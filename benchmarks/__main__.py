"""Run all benchmarks, or those named: python -m benchmarks [simulator] [span] [blocks]."""

import sys

from . import blocks, simulator, span

ALL = {"simulator": simulator.main, "span": span.main, "blocks": blocks.main}

for name in sys.argv[1:] or ALL:
    ALL[name]()
