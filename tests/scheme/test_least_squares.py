"""Least squares on arrived sets that are rank-deficient: the residual of the singular value decomposition, bounded weights."""

from dataclasses import dataclass

import numpy as np
import pytest

from unstraggle import Count, Master, codes
from unstraggle.engines import Virtual
from unstraggle.latency import Exponential
from unstraggle.scheme.decoders import LeastSquares, parts_of

from ..examples import APPROXIMATE_EXAMPLES, EXAMPLES, example

ALL = [example(expression) for expression in (*EXAMPLES, *APPROXIMATE_EXAMPLES)]
GRAPHS = [codes.optimal_decoding(n, degree=degree) for n, degree in ((12, 2), (24, 2), (20, 4))]
CODES = [code for code in ALL + GRAPHS if all(isinstance(part.decoder, LeastSquares) for part in parts_of(code.decoder))]


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_any_arrived_set_decodes_as_well_as_can_be(code):
    """Random sets, most of them with few messages missing: these are often rank-deficient."""
    rng = np.random.default_rng(1)
    for _ in range(150):
        got = np.ones(len(code.messages), dtype=bool)
        got[
            rng.permutation(len(got))[: min(len(got), rng.integers(0, 5) if rng.random() < 0.7 else rng.integers(len(got)))]
        ] = False
        for part in parts_of(code.decoder):
            check(part.decoder, got[part.messages])


def check(decoder, got):
    rows, target = decoder.rows.toarray()[got], np.atleast_2d(decoder.target)
    best = (np.linalg.pinv(rows.T, rcond=1e-10) @ target.T).T if got.any() else np.zeros((len(target), 0))
    found = decoder.decode(got)
    assert found.residual == pytest.approx(np.linalg.norm(best @ rows - target) / np.linalg.norm(target), abs=1e-6)
    assert (np.abs(found.weights) * decoder.lengths).max() < 1e4 * np.linalg.norm(target)


@dataclass(frozen=True, eq=False)
class Narrow:
    """Fixed random partial gradients in float32."""

    k: int
    dim: int = 8
    dtype = np.dtype(np.float32)

    def grad(self, params, part, where=slice(None), step=0):
        return np.random.default_rng(part).standard_normal(self.dim).astype(np.float32)[where]


def test_rank_deficient_sets_of_a_live_run_stay_bounded():
    """Weights of 1e15 made gradients in float32 wrong by up to 1.5e7 times their size, in 18 of 400 rounds."""
    code = codes.optimal_decoding(24, degree=2)
    problem = Narrow(code.k)
    truth = np.sum([problem.grad(None, part) for part in range(code.k)], axis=0)
    with Master(code, Virtual(problem, Exponential(rate=1.0), rng=0), Count(21)) as master:
        errors = [np.linalg.norm(master.gradient(np.zeros(8)).gradient - truth) for _ in range(400)]
    assert max(errors) < np.linalg.norm(truth)


@pytest.mark.parametrize("code", CODES[:6], ids=lambda code: code.name)
def test_the_answer_that_is_kept_is_that_of_the_same_set(code):
    """The last arrived set is answered at once, another one as if none had been asked for; nobody can write to an answer."""
    rng = np.random.default_rng(2)
    for part in parts_of(code.decoder):
        sets = [rng.random(part.decoder.size) < 0.7 for _ in range(4)]
        for got in (sets[0], sets[0], *sets, sets[0]):
            kept, anew = part.decoder.decode(got.copy()), part.decoder._decoded(got)
            np.testing.assert_array_equal(kept.weights, anew.weights)
            assert (kept.residual, kept.gain) == (anew.residual, anew.gain)
        assert part.decoder.decode(got) is part.decoder.decode(got)
        with pytest.raises(ValueError, match="read-only"):
            kept.weights[:] = 0
