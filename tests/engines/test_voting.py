"""Workers that compute wrong numbers are found by comparing copies."""

import logging

import numpy as np
import pytest

from unstraggle import Invalid, Master, NotRecovered, codes
from unstraggle.engines import Chaos, Dropped, Lost, Virtual, Voting
from unstraggle.engines.voting import Ballot, copies_of, same
from unstraggle.latency import ShiftedExponential
from unstraggle.runtime.frame import checksum
from unstraggle.testing import check_engine

from ..problems import least_squares

LATENCY = ShiftedExponential(rate=1.0, shift=0.1)


class Lying(Virtual):
    """Some workers add one to all that they send, with a checksum that fits: the same lie."""

    liars = ()

    def next(self, until):
        events = super().next(until)
        for one in events:
            if getattr(one, "worker", None) in self.liars and hasattr(one, "payload"):
                one.payload = np.frombuffer((np.frombuffer(one.payload) + 1.0).tobytes(), np.uint8)
                one.checksum = checksum(one.payload)
        return events


def voted(code, liars, rounds=20, wrap=lambda engine: engine, **options):
    """Largest relative error, and how often workers were outvoted."""
    problem = least_squares(code)
    inner = Lying(problem, LATENCY, rng=0)
    inner.liars = liars
    engine = Voting(wrap(inner), **options)
    rng, errors = np.random.default_rng(0), []
    with Master(code, engine, on_shortfall="raise") as master:
        for _ in range(rounds):
            params = rng.standard_normal(24)
            estimate, right = master.gradient(params), problem.gradient(params)
            errors.append(np.abs(estimate.gradient - right).max() / np.abs(right).max())
            assert estimate.exact
    return max(errors), engine.outvoted


@pytest.mark.parametrize(
    "code", [codes.fractional_repetition(6, s=2), codes.uncoded_mmc(5, load=3)], ids=lambda code: code.name
)
@pytest.mark.parametrize("liar", range(3))
def test_a_lying_worker_is_found_and_its_numbers_are_not_used(code, liar):
    error, outvoted = voted(code, (liar,))
    assert error < 1e-12 and set(outvoted) == {liar}


def test_two_that_tell_the_same_lie_need_three_that_do_not():
    code = codes.fractional_repetition(10, s=4)
    assert voted(code, (0, 1))[0] > 1e-3, "the first two copies agree"
    error, outvoted = voted(code, (0, 1), agree=3)
    assert error < 1e-12 and set(outvoted) == {0, 1}


def test_honest_workers_are_believed_under_chaos():
    error, outvoted = voted(
        codes.fractional_repetition(6, s=2), (), wrap=lambda inner: Chaos(inner, duplicate=0.3, hold=0.3, rng=1)
    )
    assert error < 1e-12 and not outvoted


def test_a_lie_without_a_majority_is_found_and_the_round_does_not_end_with_it():
    with pytest.raises(NotRecovered, match="came damaged"):
        voted(codes.fractional_repetition(4, s=1), (0,))


def test_the_first_time_is_said(caplog):
    with caplog.at_level(logging.WARNING, "unstraggle"):
        voted(codes.fractional_repetition(6, s=2), (1,))
    assert sum("Worker 1 is outvoted in round" in one.message for one in caplog.records) == 1


class Shrinks(Virtual):
    """Worker 1 is lost at the start and does not return."""

    def next(self, until):
        if not getattr(self, "told", False):
            self.told = True
            return [Lost(1, self.clock(), returns=False)]
        return [one for one in super().next(until) if getattr(one, "worker", None) != 1] or [Dropped(1, self.clock())]


def test_copies_that_wait_for_one_that_is_lost_are_given_up():
    code = codes.fractional_repetition(4, s=1)
    engine = Voting(Shrinks(least_squares(code), LATENCY, rng=0))
    with Master(code, engine, on_shortfall="raise") as master, pytest.raises(NotRecovered):
        master.gradient(np.zeros(24))


def test_it_is_an_engine_like_others():
    """With codes whose messages have copies; what is tried with others is for the engine inside."""
    kinds = [codes.fractional_repetition(4, s=3), codes.uncoded_mmc(4, load=3)]
    report = check_engine(lambda problem: Voting(Virtual(problem, LATENCY, rng=0)), kinds, faults=False)
    assert report.codes == 2 and report.worst_error < 1e-12


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (codes.uncoded(4), "message 0 of uncoded\\(4\\) comes 1 times from 1. Use fractional_repetition\\(n, s=2\\)"),
        (codes.cyclic_repetition(4, s=1), "comes 1 times from 1"),
        (codes.work_conserving(3, load=3, pieces=1), "sums of what was handed out"),
        (codes.quantize(codes.fractional_repetition(4, s=1), bits=4, bucket=512), "quantised"),
    ],
    ids=["uncoded", "cyclic", "handed", "quantised"],
)
def test_codes_that_cannot_be_voted_on_are_refused(code, words):
    with pytest.raises(Invalid, match=words):
        copies_of(code, 2)


def test_bad_arguments():
    engine = Virtual(least_squares(codes.uncoded(2)), LATENCY)
    with pytest.raises(Invalid, match="agree"):
        Voting(engine, agree=1)
    with pytest.raises(Invalid, match="tolerance"):
        Voting(engine, tolerance=-1.0)


def test_numbers_are_the_same_to_rounding():
    ones = np.ones(3)
    assert same(ones, ones + 1e-13, 1e-12) and not same(ones, ones + 1e-11, 1e-12)
    assert same(np.zeros(3), np.zeros(3), 0.0) and not same(ones, np.ones(4), 1.0)
    assert not same(np.full(3, np.nan), np.full(3, np.nan), 1.0) and not same(np.full(3, np.inf), np.full(3, np.inf), 1.0)


def test_copies_are_given_up_when_too_few_can_come():
    ballot = Ballot((0, 1, 2), agree=2, tolerance=0.0)
    ballot.cast(0, "a", np.ones(1))
    assert ballot.undecided() == []
    ballot.silent |= {1, 2}
    assert ballot.undecided() == [0] and not ballot.held
    assert ballot.cast(0, "a", np.ones(1)) == ([], [])
    assert ballot.cast(1, "b", np.ones(1)) == (["a", "b"], []) and ballot.undecided() == []
