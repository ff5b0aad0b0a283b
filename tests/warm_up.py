"""Compiles the tests, what they import, and the kernels that they use, once; processes that begin together would each do so.

`make` runs it after the installation.
"""

import contextlib
from importlib import import_module

import pytest

from unstraggle import latency, parse_code, simulate
from unstraggle.testing import check_code

PACKAGES = ("scipy.stats", "matplotlib.pyplot", "torch", "hypothesis", "ray", "lightning.pytorch", "accelerate")
CODES = ("cyclic_repetition(4, s=1)", "uncorrelated_mmc(4, load=3, orders=[2, 3])", "quantize(uncoded(4), bits=8, bucket=512)")

COLLECT = ("--collect-only", "-p", "no:terminal", "-o", "addopts=")
"""With these pytest rewrites the assertions of all tests, keeps what it wrote, and says nothing."""


def main():
    pytest.main([*COLLECT])  # before hypothesis is imported, which it wants to do itself
    for name in PACKAGES:
        with contextlib.suppress(ImportError):
            import_module(name)
    for text in CODES:
        check_code(parse_code(text))
        for by in ("rule", "span"):
            simulate(parse_code(text), latency.Exponential(1.0), rounds=100, rng=0, by=by)


if __name__ == "__main__":
    main()
