"""Compiles the tests, what they import, and the kernels that they use, once; processes that begin together would each do so.

`make` runs it after the installation. A kernel that is missing here is compiled by the first tests that call it: nothing fails.
"""

import contextlib
from importlib import import_module
from itertools import product

import numpy as np
import pytest

from unstraggle import codes, latency, parse_code, plan, simulate, trace
from unstraggle.quantizers import QSGD, Sign
from unstraggle.runtime.mate import WORTH
from unstraggle.runtime.sums import weighted_sum
from unstraggle.testing import check_code

PACKAGES = ("scipy.stats", "matplotlib.pyplot", "torch", "hypothesis", "ray", "lightning.pytorch", "accelerate")
CODES = ("cyclic_repetition(4, s=1)", "reed_solomon(4, s=1)", "uncorrelated_mmc(4, load=3, orders=[2, 3])")
HANDED = ("work_conserving(4, load=2, pieces=2)", "sums_on_request(4, load=2, pieces=2)")
MODEL = latency.ShiftedExponential(rate=10.0, shift=0.01)
COLLECT = ("--collect-only", "-p", "no:terminal", "-o", "addopts=")
"""With these pytest rewrites the assertions of all tests, keeps what it wrote, and says nothing."""


def main():
    pytest.main([*COLLECT])  # before hypothesis is imported, which it wants to do itself
    for name in PACKAGES:
        with contextlib.suppress(ImportError):
            import_module(name)
    simulations()
    plans()
    quantisers()
    sums()


def simulations():
    for text, by, carry in product(CODES, ("rule", "span"), (False, True)):
        simulate(parse_code(text), MODEL, rounds=100, rng=0, by=by, carry=carry)
    for text, model, carry in product(HANDED, (MODEL, latency.ShiftedExponential(10.0, 0.01, per="task")), (False, True)):
        simulate(parse_code(text), model, rounds=100, rng=0, carry=carry)


def plans():
    for link in ({}, {"round_trip": 0.004}, {"dim": 1000, "bandwidth": 1e6}):
        plan.auto(MODEL, n=4, rounds=100, **link)
    plan.auto(trace.from_seconds(np.random.default_rng(0).exponential(size=(40, 4, 2)), work=0.5))
    plan.block_sizes(MODEL, 6, dim=1000)


def quantisers():
    """Each number of bits has its own kernels, with small buckets and without."""
    check_code(codes.quantize(codes.uncoded(4), bits=8, bucket=512))
    x = np.random.default_rng(0).standard_normal(3000).astype(np.float32)
    for quantiser in (*(QSGD(bits, bucket) for bits in range(2, 17) for bucket in (None, 512)), Sign(), Sign(512)):
        payload = quantiser.encode(x, seed=1)
        quantiser.accumulate(quantiser.decode(payload), [payload, payload], [0.5, 2.0])


def sums():
    """Long ones are shared with another thread."""
    for kind in ("f4", "f8"):
        weighted_sum(np.empty(WORTH, kind), [1.0], [np.ones(WORTH, kind)])


if __name__ == "__main__":
    main()
