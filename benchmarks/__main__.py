"""Run all benchmarks, or those named, such as: python -m benchmarks simulator span."""

import sys
from importlib import import_module

NAMES = (
    "adaptive",
    "simulator",
    "span",
    "blocks",
    "blocks_live",
    "quantize",
    "reading",
    "bits",
    "claims",
    "reproducing",
    "engines",
    "live",
    "looking",
    "parts",
    "soak",
    "chaos",
    "starting",
    "training",
    "uneven",
    "planned",
    "traces_handed",
    "way",
)

unknown = set(sys.argv[1:]) - set(NAMES)
if unknown:
    sys.exit(f"There is no benchmark {', '.join(sorted(unknown))}. There are: {', '.join(NAMES)}.")
for name in sys.argv[1:] or NAMES:
    import_module(f".{name}", __package__).main()
