"""Names tell the truth: they parse back to the same code to the bit, or say that no expression makes it."""

import numpy as np
import pytest

from unstraggle import Invalid, codes, parse_code, plan
from unstraggle.latency import Heterogeneous, ShiftedExponential
from unstraggle.testing import same_code

from ..examples import APPROXIMATE_EXAMPLES, EXAMPLES, example

LATENCY = ShiftedExponential(rate=10, shift=0.01)
P = np.array([0.1, 1 / 3, 0.2, 0.7])

OPTIONS = {
    "seed of a cyclic code": lambda: codes.cyclic_repetition(24, s=7, seed=3),
    "seed of random coefficients": lambda: codes.cyclic_repetition(10, s=3, construction="random", seed=1),
    "construction of a correlated code": lambda: codes.correlated_mmc(6, load=3, order=2, construction="random", seed=2),
    "seed of an uncorrelated code": lambda: codes.uncorrelated_mmc(6, load=3, orders=[2, 3], seed=5),
    "slowdown with many digits": lambda: codes.partial_stragglers(6, s=1, slowdown=4 + 1e-9),
    "numbers of NumPy": lambda: codes.optimally_structured(P, omega=P / 3, gamma=np.float64(0.3)),
    "copies of NumPy": lambda: codes.stochastic(4, P, copies=np.array([1, 2, 2, 3]), placement="random", seed=7),
    "work of blocks": lambda: codes.blocks(P[:2], codes.uncoded(4), codes.cyclic_repetition(4, s=1), work=P[2:]),
    "shares of a stack": lambda: codes.stack(codes.uncoded(4), codes.uncoded_mmc(4, load=2), shares=P[:2]),
    "bits of each worker": lambda: codes.quantize(codes.stochastic(4, P), bits=np.array([2, 4, 8, 32]), bucket=512, dim=7),
    "two tracks": lambda: codes.two_track(codes.optimally_structured(P), P, P / 7, gamma=np.float64(0.3), objective="vector"),
    "two tracks of a plan": lambda: codes.two_track(plan.deadline(LATENCY, n=6).code, p=0.2),
    "clusters of a plan": lambda: codes.cluster(plan.deadline(LATENCY, n=6).code, codes.ignore_stragglers(3)),
    "redundancy": lambda: plan.redundancy(LATENCY, n=6, rounds=100).code,
    "no redundancy": lambda: plan.redundancy(ShiftedExponential(rate=10, shift=9), n=6, rounds=100).code,
    "deadline": lambda: plan.deadline(LATENCY, n=6).code,
    "deadline of workers that differ": lambda: plan.deadline(unequal(), n=6).code,
    "deadline with bits": lambda: plan.deadline(LATENCY, n=6, dim=1000, budget=24).code,
    **{
        f"block sizes, {method}": lambda method=method: plan.block_sizes(LATENCY, 5, 50, method, exact=True).code
        for method in ("optimal", "time", "frequency", "single", "tandon", "tandon_tuned", "ferdinand")
    },
    "blocks with costs": lambda: plan.block_sizes(LATENCY, 4, 3, costs=[0.1, 0.2, 1 / 3], exact=True).code,
}


def unequal():
    return Heterogeneous([ShiftedExponential(rate=rate, shift=0.1) for rate in (0.5, 1, 2, 4, 8, 16)])


def tells_the_truth(code):
    """Whether a name makes the same code, to the bit, or is in angle brackets and makes none."""
    if "<" not in code.name:
        return same_code(parse_code(code.name), code) and parse_code(code.name).name == code.name
    with pytest.raises(Invalid, match=r"no expression makes. Save the code: code.save"):
        parse_code(code.name)
    return True


@pytest.mark.parametrize("expression", EXAMPLES + APPROXIMATE_EXAMPLES)
def test_names_of_the_examples(expression):
    assert tells_the_truth(example(expression))


@pytest.mark.parametrize("what", OPTIONS)
def test_names_of_codes_with_options_and_of_plans(what):
    assert tells_the_truth(OPTIONS[what]())


def test_names_of_all_candidates_of_the_planner():
    found = plan.auto(ShiftedExponential(rate=10, shift=0.01), n=6, rounds=400, max_load=3)
    assert len(found.candidates) > 10
    assert all(tells_the_truth(candidate.plan.code) for candidate in found.candidates)


def test_names_of_a_front():
    front = plan.orders(LATENCY, n=6, load=3, rounds=200)
    assert len(front) > 2 and all(each.name == each.code.name and tells_the_truth(each.code) for each in front)
