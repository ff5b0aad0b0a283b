"""Exact one-message codes: all survivor sets for small n, many for large n."""

from itertools import combinations

import numpy as np
import pytest

from unstraggle import NotRecovered, codes, encoders
from unstraggle.encoders.support import cyclic_mask

SMALL = [(n, s) for n in range(1, 11) for s in range(n)]

MATRICES = {
    "random": lambda n, s: encoders.random(n, s),
    "fourier": lambda n, s: encoders.fourier(n, s),
    "null_space": lambda n, s: encoders.null_space(cyclic_mask(n, s + 1)),
    "complex": lambda n, s: encoders.polynomial(cyclic_mask(n, s + 1)),
    "real": lambda n, s: encoders.polynomial(cyclic_mask(n, s + 1), "real"),
}


def survivors(n, size):
    sets = np.zeros((len(list(combinations(range(n), size))), n), dtype=bool)
    for row, chosen in zip(sets, combinations(range(n), size), strict=True):
        row[list(chosen)] = True
    return sets


def worst_residual(matrix, sets):
    """Largest error of a decoded coefficient, decoding from exactly these rows."""
    worst = 0.0
    for got in sets:
        weights = np.linalg.lstsq(matrix[got].T, np.ones(matrix.shape[1]), rcond=None)[0]
        worst = max(worst, float(np.abs(weights @ matrix[got] - 1).max()))
    return worst


@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("n", range(1, 11))
def test_all_survivor_sets_of_small_codes(name, n):
    for s in range(n):
        matrix = MATRICES[name](n, s)
        assert np.array_equal(matrix != 0, cyclic_mask(n, s + 1)), "support is the cyclic mask"
        assert ((matrix != 0).sum(axis=0) == s + 1).all(), "column weight is s + 1"
        assert worst_residual(matrix, survivors(n, n - s)) <= 1e-8, (n, s)


@pytest.mark.parametrize(
    "make",
    [
        lambda n, s: codes.cyclic_repetition(n, s),
        lambda n, s: codes.cyclic_repetition(n, s, construction="random"),
        lambda n, s: codes.cyclic_repetition(n, s, construction="null_space"),
        lambda n, s: codes.reed_solomon(n, s),
        lambda n, s: codes.reed_solomon(n, s, field="real"),
    ],
    ids=["default", "random", "null_space", "complex", "real"],
)
@pytest.mark.parametrize("n", range(1, 11))
def test_decoder_recovers_all_survivor_sets(make, n):
    for s in range(n):
        code = make(n, s)
        sets = survivors(n, n - s)
        assert code.threshold == n - s and code.load == s + 1
        assert code.decoder.rule.met(sets).all()
        assert code.decoder.residual(sets).max() <= 1e-8


@pytest.mark.parametrize("n, s", [(n, s) for n, s in SMALL if n % (s + 1) == 0])
def test_fractional_repetition_recovers_all_survivor_sets(n, s):
    code = codes.fractional_repetition(n, s)
    assert code.threshold == n - s
    sets = survivors(n, n - s)
    assert code.decoder.rule.met(sets).all() and code.decoder.residual(sets).max() <= 1e-12
    one_of_each = np.arange(n) % (s + 1) == 0
    assert code.decoder.rule.met(one_of_each), "one worker of each group is enough"


@pytest.mark.parametrize("construction", ["random", "fourier", "null_space"])
@pytest.mark.parametrize("n, s", [(5, 2), (8, 3), (10, 6)])
def test_survivors_that_miss_a_partition_are_rejected(construction, n, s):
    code = codes.cyclic_repetition(n, s, construction=construction)
    for part in range(n):
        got = ~cyclic_mask(n, s + 1)[:, part]
        assert got.sum() == n - s - 1 and not code.decoder.rule.met(got)
        assert code.decoder.residual(got) > 1e-3
        with pytest.raises(NotRecovered, match="relative error"):
            code.decoder.weights(got)


@pytest.mark.parametrize("load", [25, 50])
def test_large_codes_keep_their_digits(load):
    """K = 100: float64 error at most 1e-9, float32 messages 1e-2 at worst and 1e-5 in the median."""
    n, rng = 100, np.random.default_rng(load)
    code = codes.cyclic_repetition(n, s=load - 1)
    partials = rng.standard_normal((n, 50))
    exact = partials.sum(axis=0)
    messages = code.messages.coef @ partials
    orders = [rng.permutation(n) for _ in range(100)] + [(start + np.arange(n)) % n for start in range(0, n, 10)]
    double, single = [], []
    for order in orders:
        got = np.isin(np.arange(n), order[: code.threshold])
        weights = code.decoder.weights(got)[0]
        double.append(np.linalg.norm(weights @ messages - exact) / np.linalg.norm(exact))
        single.append(np.linalg.norm(weights @ messages.astype(np.float32) - exact) / np.linalg.norm(exact))
    assert max(double) <= 1e-9
    assert max(single) <= 1e-2 and np.median(single) <= 1e-5


def test_default_construction_follows_the_conditioning_table():
    few, many = codes.cyclic_repetition(100, s=2), codes.cyclic_repetition(40, s=9)
    assert np.array_equal(few.messages.coef.toarray(), encoders.fourier(100, 2))
    assert np.array_equal(many.messages.coef.toarray(), encoders.null_space(cyclic_mask(40, 10)))
    small = codes.cyclic_repetition(20, s=9)
    assert np.array_equal(small.messages.coef.toarray(), encoders.fourier(20, 9))


def test_random_codes_amplify_noise_and_repetition_does_not():
    def median(construction):
        return np.median([codes.cyclic_repetition(40, 9, construction, seed).noise_gain().median for seed in range(4)])

    assert median("random") > 4 * median("null_space")
    assert codes.fractional_repetition(30, 9).noise_gain().worst == pytest.approx(1.0)


def test_polynomial_code_for_a_mask_with_unequal_columns():
    rng = np.random.default_rng(3)
    mask = rng.random((9, 5)) < 0.6
    mask[:2], mask[2, 0] = True, False
    code = codes.reed_solomon(mask=mask)
    assert code.threshold == (~mask).sum(axis=0).max() + 1
    assert code.decoder.residual(survivors(9, code.threshold)).max() <= 1e-8


@pytest.mark.parametrize("seed", range(3))
def test_null_space_code_for_a_mask_with_unequal_columns(seed):
    rng = np.random.default_rng(seed)
    mask = rng.random((9, 5)) < 0.6
    mask[:2] = True
    matrix = encoders.null_space(mask, seed)
    threshold = (~mask).sum(axis=0).max() + 1
    assert np.array_equal(matrix != 0, mask)
    assert worst_residual(matrix, survivors(9, threshold)) <= 1e-8
