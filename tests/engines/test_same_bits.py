"""Repetition on real processes: whoever is first, the gradient is the same to the bit."""

import numpy as np

from unstraggle import Master, codes
from unstraggle.engines import Chaos, Local
from unstraggle.latency import ShiftedExponential
from unstraggle.problems import LeastSquares


def test_repetition_gives_one_gradient_in_1000_rounds_of_random_stragglers():
    code = codes.fractional_repetition(6, s=2)
    rng = np.random.default_rng(0)
    problem = LeastSquares.split(rng.standard_normal((60, 24)), rng.standard_normal(60), code.k)
    engine = Chaos(Local(problem), latency=ShiftedExponential(rate=4000.0), rng=3)
    firsts, gradients = set(), set()
    with Master(code, engine) as master:
        for _ in range(1000):
            gradients.add(master.gradient(np.ones(24)).gradient.tobytes())
            firsts.add(tuple(engine.delays.reshape(2, 3).argmin(axis=1)))
    assert len(firsts) == 9 and len(gradients) == 1
