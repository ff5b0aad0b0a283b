"""Multi-message codes, clusters and hybrids: identities and orderings, round by round."""

import numpy as np
import pytest

from unstraggle import Recovered, codes
from unstraggle.latency import ShiftedExponential

LATENCY = ShiftedExponential(rate=10, shift=0.01)


def times(code, by="rule", rounds=2000, seed=0):
    """Completion times; equal seeds and equal n mean equal speeds of the workers."""
    return Recovered(by).time(code, LATENCY.sample(code, rounds, np.random.default_rng(seed)))


@pytest.mark.parametrize("n, load", [(6, 3), (10, 4), (12, 12)])
def test_full_order_is_cyclic_repetition(n, load):
    full, gradient_code = codes.correlated_mmc(n, load, order=load), codes.cyclic_repetition(n, s=load - 1)
    assert np.array_equal(full.messages.coef.toarray(), gradient_code.messages.coef.toarray())
    assert np.array_equal(times(full), times(gradient_code))


def test_order_one_is_uncoded_multi_message():
    assert np.array_equal(times(codes.correlated_mmc(12, 5, order=1)), times(codes.uncoded_mmc(12, 5)))
    assert (
        codes.uncoded_mmc(12, 5).messages.coef.toarray() == np.eye(12)[codes.uncoded_mmc(12, 5).messages.coef.indices]
    ).all()


def test_one_order_equal_to_the_load_is_clustered_gradient_coding():
    one = codes.cluster(codes.uncorrelated_mmc(6, 3, orders=[3]), times=2)
    assert np.array_equal(times(one), times(codes.cluster(codes.cyclic_repetition(6, s=2), times=2)))


def test_order_vector_is_a_set():
    up, down = (codes.uncorrelated_mmc(6, 5, orders=orders) for orders in ([2, 4, 5], [5, 2, 4]))
    assert np.array_equal(up.messages.coef.toarray(), down.messages.coef.toarray())


def test_correlated_with_all_the_data_is_never_later_than_repetition():
    for order in (1, 3, 6, 10):
        code = codes.cluster(codes.correlated_mmc(10, 10, order), times=4)
        assert (times(code) <= times(codes.fractional_repetition(40, 9))).all()


@pytest.mark.parametrize("by", ["rule", "span"])
@pytest.mark.parametrize(
    "code",
    [
        codes.uncorrelated_mmc(5, 5, orders=[3, 5]),
        codes.uncorrelated_mmc(10, 10, orders=[6, 8, 10]),
        codes.correlated_mmc(8, 8, order=5),
        codes.cyclic_repetition(6, s=5),
    ],
    ids=lambda code: code.name,
)
def test_hybrid_is_never_later_than_the_code_nor_than_repetition(code, by):
    both = codes.cluster(code, times=3)
    mixed = times(codes.hybrid(both), by)
    assert (mixed <= times(both, by)).all()
    assert (mixed <= times(codes.fractional_repetition(3 * code.n, code.n - 1))).all()
    assert np.array_equal(mixed, times(codes.cluster(codes.hybrid(code), times=3), by)), "inside or outside is the same"


def test_hybrid_completes_at_the_earlier_of_the_two():
    """The time of the threshold-th coded message, or of the first worker that is done."""
    code = codes.uncorrelated_mmc(5, 5, orders=[3, 5])
    arrivals = LATENCY.sample(code, 5000, np.random.default_rng(1))
    coded, full = arrivals[:, code.messages.after == 3], arrivals[:, code.messages.after == 5]
    expected = np.minimum(np.sort(coded, axis=1)[:, 2], full.min(axis=1))
    assert np.array_equal(Recovered().time(codes.hybrid(code), arrivals), expected)


def test_hybrid_means_of_the_paper_example():
    """K = r = 5, orders [5, 3], mu = 10, alpha = 0.01: MMC .1810, repetition .15, hybrid .1436."""
    code = codes.uncorrelated_mmc(5, 5, orders=[5, 3])
    assert code.threshold == 3
    assert times(code, rounds=100_000).mean() == pytest.approx(0.1810, abs=0.002)
    assert times(codes.fractional_repetition(5, 4), rounds=100_000).mean() == pytest.approx(0.15, abs=0.002)
    assert times(codes.hybrid(code), rounds=100_000).mean() == pytest.approx(0.1436, abs=0.002)


def test_hybrid_below_the_cluster_size_has_no_rule():
    from unstraggle import Invalid

    code = codes.hybrid(codes.uncorrelated_mmc(8, 4, orders=[2, 4]))
    assert code.threshold is None and np.isfinite(times(code, by="span")).all()
    with pytest.raises(Invalid, match='Use by="span"'):
        times(code, by="rule")


@pytest.mark.parametrize("clusters", [2, 4])
def test_clustering_a_one_message_code_never_hurts(clusters):
    alone = codes.cyclic_repetition(40, s=9)
    clustered = codes.cluster(codes.cyclic_repetition(40 // clusters, s=9), times=clusters)
    assert clustered.threshold == alone.threshold == 31
    assert (times(clustered) <= times(alone)).all()


def test_clustering_a_multi_message_code_can_hurt():
    """Messages of one cluster cannot help another: in some rounds the clustered code is later."""
    clustered, alone = codes.cluster(codes.uncoded_mmc(6, 3), times=2), codes.uncoded_mmc(12, 3)
    later = times(clustered) > times(alone)
    assert later.any() and not later.all()


def test_different_clusters_may_have_different_codes():
    code = codes.cluster(codes.cyclic_repetition(6, s=2), codes.uncoded_mmc(4, 2))
    assert (code.n, code.k) == (10, 10)
    first, second = codes.cyclic_repetition(6, s=2), codes.uncoded_mmc(4, 2)
    arrivals = LATENCY.sample(code, 500, np.random.default_rng(2))
    parts = Recovered().time(first, arrivals[:, :6]), Recovered().time(second, arrivals[:, 6:])
    assert np.array_equal(Recovered().time(code, arrivals), np.maximum(*parts))


def test_blocks_end_when_the_last_block_does():
    """Paper B, figure 1: N = L = 4, T = (.1, .1, .25, 1); s = 1, s = 2 and s = (1, 1, 2, 2) take 2.0, 1.2 and 1.0."""
    speeds = np.array([[0.1, 0.1, 0.25, 1.0]])
    one, two = codes.cyclic_repetition(4, s=1), codes.cyclic_repetition(4, s=2)
    mixed = codes.blocks([2, 2], one, two)
    for code, expected in ((one, 2.0), (two, 1.2), (mixed, 1.0)):
        arrivals = speeds[:, code.messages.worker] * code.ready()
        assert 4 * Recovered().time(code, arrivals)[0] == pytest.approx(expected)


def test_partial_stragglers_take_what_the_formula_says():
    """Work (s + 1) / (s + a) max(a T_(n-s), T_(n)), in units of 1/n of the data."""
    for n, s, slowdown in ((10, 2, 4.0), (8, 3, 1.5), (20, 5, 6.0)):
        code = codes.partial_stragglers(n, s, slowdown)
        speeds = LATENCY.draw((3000, n), np.random.default_rng(n))
        ordered = np.sort(speeds, axis=1)
        expected = (s + 1) / (s + slowdown) * np.maximum(slowdown * ordered[:, n - s - 1], ordered[:, -1])
        got = Recovered().time(code, speeds[:, code.messages.worker] * code.ready())
        assert np.allclose(got, expected, rtol=1e-12)
        assert code.shares[:n].sum() == pytest.approx((s + 1) / (s + slowdown)) and code.shares.sum() == pytest.approx(1)
