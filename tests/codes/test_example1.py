"""Example 1 of the multi-message paper (K = 6, r = 3, m = 2) and the golden data of its codes."""

from itertools import combinations

import numpy as np
import pytest

from unstraggle import codes
from unstraggle.encoders.support import cyclic_mask
from unstraggle.scheme.noise import set_noise_gain


def got(code, messages):
    return np.isin(np.arange(len(code.messages)), list(messages))


def sent_by(code, **counts):
    """The first so many messages of the named workers (w1 is the paper's worker 1)."""
    chosen = []
    for worker, count in counts.items():
        mine = np.flatnonzero(code.messages.worker == int(worker[1:]) - 1)
        chosen += mine[np.argsort(code.messages.after[mine])][:count].tolist()
    return got(code, chosen)


def test_assignment_matrix():
    rows = ["111000", "011100", "001110", "000111", "100011", "110001"]
    assert cyclic_mask(6, 3).astype(int).tolist() == [[int(bit) for bit in row] for row in rows]


def test_thresholds():
    assert codes.cyclic_repetition(6, s=2).threshold == 4
    assert codes.correlated_mmc(6, load=3, order=2).threshold == 5
    assert codes.uncorrelated_mmc(6, load=3, orders=[3, 2]).threshold == 8


def test_golden_rows_of_the_real_code():
    rows = codes.cyclic_repetition(6, s=2).messages.coef.toarray()
    assert rows[0] == pytest.approx([1, 0.634, 0.2679, 0, 0, 0], abs=5e-5)
    assert rows[1] == pytest.approx([0, 0.7887, 1, 0.5774, 0, 0], abs=5e-5)


def test_golden_noise_gains():
    real, unity = codes.cyclic_repetition(6, s=2), codes.reed_solomon(6, s=2)
    subsets = [got(real, chosen) for chosen in combinations(range(6), 4)]
    assert max(set_noise_gain(real, chosen) for chosen in subsets) == pytest.approx(5.1, abs=0.05)
    assert max(set_noise_gain(unity, chosen) for chosen in subsets) < 3


def test_correlated_messages_are_plain_sums_of_neighbours():
    code = codes.correlated_mmc(6, load=3, order=2)
    coef = code.messages.coef.toarray()
    for message in range(12):
        number = (code.messages.worker[message] + code.messages.after[message] - 2) % 6
        expected = np.zeros(6)
        expected[[number, (number + 1) % 6]] = 1
        assert coef[message] == pytest.approx(expected, abs=1e-12)


def test_correlated_scenario_workers_1_2_4_send_two_each():
    code = codes.correlated_mmc(6, load=3, order=2)
    arrived = sent_by(code, w1=2, w2=2, w4=2)
    assert code.decoder.rule.met(arrived)
    assert code.decoder.residual(arrived) < 1e-12
    assert not code.decoder.rule.met(sent_by(code, w1=2, w2=2, w4=1))


@pytest.mark.parametrize("numbers", [{0, 2, 4}, {1, 3, 5}])
def test_three_alternate_messages_decode_by_span_with_weights_one(numbers):
    code = codes.correlated_mmc(6, load=3, order=2)
    number = (code.messages.worker + code.messages.after - 2) % 6
    first = [int(np.flatnonzero(number == a)[0]) for a in numbers]
    arrived = got(code, first)
    assert not code.decoder.rule.met(arrived)
    assert code.decoder.weights(arrived)[0, first] == pytest.approx(np.ones(3))


def test_uncorrelated_scenario_three_workers_two_messages_two_workers_one():
    code = codes.uncorrelated_mmc(6, load=3, orders=[3, 2])
    arrived = sent_by(code, w1=2, w2=2, w3=2, w4=1, w5=1)
    assert arrived.sum() == 8 and code.decoder.rule.met(arrived) and code.decoder.residual(arrived) < 1e-9


def test_all_495_eight_subsets_decode_and_a_seven_subset_does_not():
    code = codes.uncorrelated_mmc(6, load=3, orders=[3, 2])
    mask = code.messages.coef.toarray() != 0
    assert ((~mask).sum(axis=0) == 7).all()
    subsets = np.array([got(code, chosen) for chosen in combinations(range(12), 8)])
    assert len(subsets) == 495 and code.decoder.residual(subsets).max() <= 1e-8
    without_first = ~mask[:, 0]
    assert without_first.sum() == 7 and code.decoder.residual(without_first) > 1e-3


def test_most_smaller_subsets_decode_already():
    """The threshold is a worst case: six messages do in about 93 % of the cases, seven in about 99 %."""
    code = codes.uncorrelated_mmc(6, load=3, orders=[3, 2])
    share = {}
    for size in (6, 7):
        subsets = np.array([got(code, chosen) for chosen in combinations(range(12), size)])
        share[size] = (code.decoder.residual(subsets) < 1e-6).mean()
    assert share[6] == pytest.approx(0.935, abs=0.01) and share[7] == pytest.approx(0.992, abs=0.005)
