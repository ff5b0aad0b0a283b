"""Run all benchmarks, or those named, such as: python -m benchmarks simulator span."""

import sys

from . import bits, blocks, blocks_live, chaos, engines, quantize, simulator, soak, span, starting, training

MODULES = {
    "simulator": simulator,
    "span": span,
    "blocks": blocks,
    "blocks_live": blocks_live,
    "quantize": quantize,
    "bits": bits,
    "engines": engines,
    "soak": soak,
    "chaos": chaos,
    "starting": starting,
    "training": training,
}

for name in sys.argv[1:] or MODULES:
    MODULES[name].main()
