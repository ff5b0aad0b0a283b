"""Run all benchmarks, or those named: python -m benchmarks [simulator] [span] [blocks] [quantize]."""

import sys

from . import blocks, quantize, simulator, span

ALL = {"simulator": simulator.main, "span": span.main, "blocks": blocks.main, "quantize": quantize.main}

for name in sys.argv[1:] or ALL:
    ALL[name]()
