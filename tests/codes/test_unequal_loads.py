"""Codes with loads by speed (Wang et al., ICDCS 2019): exact without any s workers, all done at about the same time."""

from itertools import combinations

import numpy as np
import pytest

from unstraggle import Invalid, simulate
from unstraggle.codes import cyclic_repetition, group_based, heterogeneity_aware, uncoded
from unstraggle.codes.heterogeneity_aware import shares
from unstraggle.latency import Heterogeneous, TwoSpeed

SPEEDS = [1, 1, 2, 2, 3, 3, 4]


def loads(code):
    return np.bincount(code.tasks.worker, minlength=code.n)


def decodes_without_any(code, s):
    for gone in combinations(range(code.n), s):
        got = ~np.isin(np.arange(code.n), gone)
        decoded = code.decoder.decode(got)
        np.testing.assert_allclose(decoded.weights @ code.messages.coef.toarray(), 1.0, atol=1e-8)
        assert code.decoder.rule.met(got)


@pytest.mark.parametrize("s", [0, 1, 2, 3])
def test_any_s_workers_may_be_missing(s):
    decodes_without_any(heterogeneity_aware(SPEEDS, s), s)
    for groups in range(1, s + 2):
        decodes_without_any(group_based(SPEEDS, s, groups=groups), s)


def test_loads_follow_the_speeds_and_cover_everything_s_plus_1_times():
    code = heterogeneity_aware(SPEEDS, 1, k=32)
    np.testing.assert_allclose(loads(code) / 64, np.array(SPEEDS) / 16, atol=1 / 64)
    assert (np.bincount(code.tasks.part) == 2).all() and code.threshold == 6
    grouped = group_based(SPEEDS, 1, k=32)
    assert (np.bincount(grouped.tasks.part) == 2).all() and grouped.noise_gain().worst == pytest.approx(1.0)


def test_a_worker_holds_no_partition_twice():
    assert shares(np.array([1.0, 1.0, 98.0]), total=12, most=6).tolist() == [3, 3, 6]
    assert loads(heterogeneity_aware([1, 1, 98], 1, k=6)).tolist() == [3, 3, 6]


def test_unequal_workers_end_together():
    """Speeds 1 to 4, nobody late: as fast as the total speed allows, where equal loads wait for the slowest."""
    latency = Heterogeneous([TwoSpeed(1 / speed, 1 / speed, 0) for speed in SPEEDS])
    code, equal = heterogeneity_aware(SPEEDS, 1, k=64), cyclic_repetition(7, s=1)
    best = 7 * 2 / sum(SPEEDS)
    took = simulate(code, latency, rounds=1).time.mean
    assert best * 0.95 < took < 1.1 * best < 0.6 * simulate(equal, latency, rounds=1).time.mean
    assert took < simulate(uncoded(7), latency, rounds=1).time.mean


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: heterogeneity_aware([1, 0], 1), "speed > 0"),
        (lambda: heterogeneity_aware([], 0), "speed > 0"),
        (lambda: heterogeneity_aware([1, 2], 2), "s"),
        (lambda: heterogeneity_aware([1, 2, 3], 1, k=2), "k"),
        (lambda: group_based([1, 2, 3], 1, groups=3), "groups"),
    ],
    ids=range(5),
)
def test_bad_input(call, words):
    with pytest.raises(Invalid) as caught:
        call()
    assert words in str(caught.value)
