"""Codes that change from round to round, over one placement."""

import numpy as np
import pytest

from unstraggle import Invalid, Master, codes
from unstraggle.engines import Virtual
from unstraggle.latency import Exponential
from unstraggle.scheme.program import packed, unpacked
from unstraggle.trace import read

from ..dynamic_clustering import N, Spread, clustered, placement
from ..examples import EXAMPLES, example
from ..problems import least_squares

SLOW = np.where(np.isin(np.arange(N), (0, 1)), 100.0, 1.0)
"""Two stragglers of the first cluster, which tolerates one."""


def test_dynamic_clustering_gets_around_two_stragglers_of_a_cluster(tmp_path):
    problem = least_squares(placement(), dim=6)
    static = Master(clustered(np.repeat([0, 1], 4)), Virtual(problem, Exponential(rate=1.0)))
    dynamic = Master(placement(), Virtual(problem, Exponential(rate=1.0)), change=Spread(), trace=tmp_path / "run.jsonl")
    with static, dynamic:
        fixed = [static.gradient(np.ones(6), delays=SLOW).wait for _ in range(5)]
        estimates = [dynamic.gradient(np.ones(6), delays=SLOW) for _ in range(5)]
    assert fixed == [100.0] * 5 and [estimate.wait for estimate in estimates] == [100.0, 1.0, 1.0, 1.0, 1.0]
    for estimate in estimates:
        assert estimate.exact
        np.testing.assert_allclose(estimate.gradient, problem.gradient(np.ones(6)), rtol=1e-9)
    assert read(tmp_path / "run.jsonl").seconds.shape[:2] == (5, N)


def test_a_code_that_does_not_fit_its_placement_is_refused():
    problem = least_squares(placement(), dim=6)
    for wrong, why in (
        (codes.uncoded(4), "keeps workers, partitions and blocks"),
        (codes.uncoded_mmc(8, load=2), "keeps who sends message m"),
        (codes.cyclic_repetition(8, s=3), "does not give it"),
    ):
        with (
            Master(
                placement(), Virtual(problem, Exponential(rate=1.0)), change=lambda number, seen, wrong=wrong: wrong
            ) as master,
            pytest.raises(Invalid, match=why),
        ):
            master.gradient(np.ones(6))


@pytest.mark.parametrize("expression", EXAMPLES)
def test_programs_travel_without_pickle(expression):
    code = example(expression)
    if code.messages.plain.all():
        assert all(unpacked(packed(code.program(worker))) == code.program(worker) for worker in range(code.n))
