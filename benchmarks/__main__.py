"""Run all benchmarks, or those named: python -m benchmarks [simulator] [span] [blocks] [quantize] [bits] [engines] [soak]."""

import sys

from . import bits, blocks, engines, quantize, simulator, soak, span

MODULES = {
    "simulator": simulator,
    "span": span,
    "blocks": blocks,
    "quantize": quantize,
    "bits": bits,
    "engines": engines,
    "soak": soak,
}

for name in sys.argv[1:] or MODULES:
    MODULES[name].main()
