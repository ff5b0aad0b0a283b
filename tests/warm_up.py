"""Compiles what the tests import, and the kernels that they use, once; processes that begin together would each do it again.

`make` runs it after the installation.
"""

import contextlib
from importlib import import_module

from unstraggle import latency, parse_code, simulate
from unstraggle.testing import check_code

PACKAGES = ("scipy.stats", "matplotlib.pyplot", "torch", "hypothesis", "ray", "lightning.pytorch", "accelerate")
CODES = ("cyclic_repetition(4, s=1)", "uncorrelated_mmc(4, load=3, orders=[2, 3])", "quantize(uncoded(4), bits=8, bucket=512)")


def main():
    for name in PACKAGES:
        with contextlib.suppress(ImportError):
            import_module(name)
    for text in CODES:
        check_code(parse_code(text))
        for by in ("rule", "span"):
            simulate(parse_code(text), latency.Exponential(1.0), rounds=100, rng=0, by=by)


if __name__ == "__main__":
    main()
